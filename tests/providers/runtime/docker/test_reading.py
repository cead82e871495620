"""Reading an engine's words without an engine: instants, ages, and what became of a container."""

from dataclasses import replace

import pytest

from providers.facts import ContainerState, ExitCause, Mark, container_name, mark_labels
from providers.runtime.docker.inspection import read_life
from providers.runtime.docker.instants import (
    SECOND,
    EngineLife,
    age_span,
    boot_wall,
    parse_instant,
    running_since,
    steady,
    to_steady,
    wall,
)
from providers.runtime.docker.life import Life, Surroundings, fact, make_pod
from providers.runtime.docker.networks import joined, networks_of, unjoined
from providers.runtime.docker.own_stops import Stop

MARK = Mark("demo", "web", 0, "0123456789abcdef")
NAME = container_name(MARK)
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T00:00:01.5Z", SECOND + SECOND // 2),
        ("2026-11-27T23:27:18.315547655Z", 1_795_822_038_315_547_655),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("0001-01-01T00:00:00Z", 0),
        ("", 0),
        ("yesterday", 0),
    ],
)
def test_an_instant_is_read_to_the_nanosecond(text: str, instant: int) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    ("status", "low", "high"),
    [
        ("Up Less than a second", 0, SECOND),
        ("Up 1 second", SECOND, 2 * SECOND),
        ("Up 59 seconds (healthy)", 59 * SECOND, MINUTE),
        ("Up About a minute", MINUTE, 2 * MINUTE),
        ("Up 5 minutes (Paused)", 5 * MINUTE, 6 * MINUTE),
        ("Up About an hour", HOUR, HOUR + 30 * MINUTE),
        ("Exited (137) 3 hours ago", 2 * HOUR + 30 * MINUTE, 4 * HOUR + 30 * MINUTE),
        ("Restarting (1) 5 seconds ago", 5 * SECOND, 6 * SECOND),
        ("Up 2 days", 2 * DAY - 30 * MINUTE, 3 * DAY + 30 * MINUTE),
    ],
)
def test_an_age_for_people_is_a_span(status: str, low: int, high: int) -> None:
    assert age_span(status) == (low, high)


@pytest.mark.parametrize("status", ["Created", "", "Removal In Progress", "Dead"])
def test_a_status_without_an_age_has_no_span(status: str) -> None:
    assert age_span(status) is None


def test_a_start_is_where_the_clock_says_when_the_process_is_somebody_elses() -> None:
    started = wall() - 1000 * SECOND
    assert abs(running_since(1, started) - to_steady(started)) < SECOND
    assert running_since(0, started) == to_steady(started)


def life(**changes: object) -> Life:
    """A main container that ended by itself a second ago."""
    labels = mark_labels(MARK, 1)
    found = Life(
        "id",
        NAME,
        labels,
        "exited",
        wall() - 60 * SECOND,
        wall() - SECOND,
        0,
        1,
        0,
        "bridge",
        {},
        (),
        "no",
        0,
        0,
        10,
        "",
    )
    return replace(found, **changes)


def around(**changes: object) -> Surroundings:
    long_ago = EngineLife(1, max(1, steady() - 3600 * SECOND))
    return replace(Surroundings("local", {}, long_ago, False), **changes)


def cause(found: Life, about: Surroundings) -> ExitCause | None:
    return fact(make_pod(found, ()), about).exit_cause


def test_an_end_is_told_apart_by_code_by_whom_and_by_when() -> None:
    ended = life()
    assert cause(ended, around()) is ExitCause.EXITED
    assert cause(replace(ended, exit_code=137), around()) is ExitCause.SIGNALLED
    stop = {"id": Stop(ended.started_at, "")}
    assert cause(ended, around(stops=stop)) is ExitCause.STOPPED_BY_US
    assert cause(ended, around(stops={"id": Stop(1, "")})) is ExitCause.EXITED
    restarted = EngineLife(1, steady() - 40 * SECOND)
    before = replace(ended, finished_at=wall() - 50 * SECOND, exit_code=137)
    assert cause(before, around(engine=restarted)) is ExitCause.HOST_RESTARTED
    rebooted = replace(ended, finished_at=boot_wall() - SECOND)
    assert cause(rebooted, around(engine=EngineLife())) is ExitCause.HOST_RESTARTED


def test_what_a_young_engine_may_restart_is_left_to_it() -> None:
    ended = life(restart="unless-stopped", finished_at=wall() - 50 * SECOND)
    young = around(engine=EngineLife(1, steady() - 10 * SECOND))
    old = around(engine=EngineLife(1, steady() - 40 * SECOND))
    assert fact(make_pod(ended, ()), young).state is ContainerState.RESTARTING
    assert fact(make_pod(ended, ()), old).state is ContainerState.EXITED
    assert fact(make_pod(replace(ended, restart="no"), ()), young).state is ContainerState.EXITED
    assert fact(make_pod(ended, ()), replace(young, podman=True)).state is ContainerState.EXITED


def test_a_state_that_nobody_knows_is_neither_running_nor_startable() -> None:
    assert life(word="hibernating").state is ContainerState.STOPPING


@pytest.mark.parametrize(
    ("name", "labels", "mine"),
    [
        (NAME, {}, True),
        (f"{NAME}-log", {"reconciler.container": "log"}, True),
        (f"{NAME}-log", {"reconciler.container": "proxy"}, False),
        (f"{NAME}-log", {}, False),
        (NAME, {"reconciler.container": "log"}, False),
        ("copy", {}, False),
    ],
)
def test_a_mark_counts_only_under_the_name_that_it_gives(name: str, labels: dict[str, str], mine: bool) -> None:
    found = life(name=name, labels={**mark_labels(MARK, 1), **labels})
    assert (found.mark == (MARK, False)) == mine
    assert (found.mark == (None, True)) == (not mine)


def test_an_inspection_of_the_oldest_engines_and_of_podman_is_read() -> None:
    found = read_life(
        {
            "Id": "x",
            "Name": NAME,
            "State": {"Status": "configured", "StartedAt": "0001-01-01T00:00:00Z"},
            "Config": {"Labels": None, "ExposedPorts": {"80/tcp": {}, "53/udp": {}, "all/tcp": {}}},
            "HostConfig": {"NanoCpus": 1_500_000_000, "Memory": -1, "RestartPolicy": {"Name": ""}},
            "NetworkSettings": {"Networks": {"podman": {"IPAddress": "10.88.0.2"}}},
        }
    )
    assert (found.state, found.ports, found.cpu, found.memory, found.restart) == (
        ContainerState.CREATED, (53, 80), 1500, 0, "no",
    )  # fmt: skip
    assert found.address == "10.88.0.2"


@pytest.mark.parametrize(
    ("mode", "further", "podman", "networks"),
    [
        ("edge", (), False, ("edge",)),
        ("edge", ("logs",), False, ("edge", "logs")),
        ("", (), False, ("bridge",)),
        ("default", (), False, ("bridge",)),
        ("bridge", ("logs",), False, ("bridge", "logs")),
        ("host", (), False, ()),
        ("none", (), False, ()),
        ("container:0123", (), False, ()),
        ("bridge", (), True, ()),
        ("bridge", ("logs",), True, ("logs",)),
        ("slirp4netns:cidr=10.0.0.0/24", (), True, ()),
    ],
)
def test_the_networks_of_a_container_are_those_that_it_can_be_taken_off(
    mode: str, further: tuple[str, ...], podman: bool, networks: tuple[str, ...]
) -> None:
    assert networks_of(mode, further, podman) == networks
    assert unjoined(networks, ("else", *networks)) == ()
    assert unjoined(networks, ("else",)) == tuple(sorted(networks))


def test_a_network_that_was_asked_for_by_its_id_is_found_under_its_name() -> None:
    there = joined({"edge": {"NetworkID": "0123456789abcdef" * 4}, "logs": {"NetworkID": ""}, "bare": None})
    assert unjoined(("0123456789abcdef" * 4, "0123456789ab", "edge", "logs", "bare"), there) == ()
    assert unjoined(("0123456789ac", "0123", "edg"), there) == ("0123", "0123456789ac", "edg")
