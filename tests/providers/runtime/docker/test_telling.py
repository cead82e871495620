"""Reading what an engine tells beyond a container's life, without an engine."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.pod import SecretSource
from providers.facts import Mark, PortFact, ProbeValue, container_name, mark_labels
from providers.runtime.docker.health import MAX_OUTPUT, published, read_bindings, read_healer, read_health
from providers.runtime.docker.inspection import listed_life, policy_body, read_life
from providers.runtime.docker.instants import SECOND, parse_instant, to_steady
from providers.runtime.docker.life import Pod
from providers.runtime.docker.secrets import DIGESTS_PER_LOOK, LABEL_SECRETS, Secrets, read_label, secrets_label

START, LATER = "2026-11-27T10:00:00Z", "2026-11-27T10:00:30.5Z"
MARK = Mark("demo", "web", 0, "0123456789abcdef")


def health(status: str, *log: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    state = {"Health": {"Status": status, "Log": list(log) or None, **fields}}
    return {"State": state, "Config": {"Healthcheck": {"Test": ["CMD", "x"], "Interval": 5 * SECOND}}}


@pytest.mark.parametrize(
    ("status", "value"),
    [("healthy", ProbeValue.PASS), ("unhealthy", ProbeValue.FAIL), ("starting", ProbeValue.UNKNOWN)],
)
def test_a_health_check_is_a_verdict_with_its_streak_and_its_age(status: str, value: ProbeValue) -> None:
    found = read_health(health(status, {"End": LATER, "Output": " busy\n"}, FailingStreak=3), parse_instant(START))
    assert found is not None
    assert (found.value, found.streak, found.interval, found.output) == (value, 3, 5 * SECOND, "busy")
    assert found.last_at == to_steady(parse_instant(LATER))


@pytest.mark.parametrize("status", ["none", "", "no idea"])
def test_a_container_without_a_health_check_has_none(status: str) -> None:
    assert read_health(health(status), parse_instant(START)) is None
    assert read_health({"State": {}}, parse_instant(START)) is None


def test_what_was_checked_in_an_earlier_life_says_nothing() -> None:
    found = read_health(health("starting", {"End": START, "Output": "old"}), parse_instant(LATER))
    assert found is not None
    assert (found.last_at, found.output) == (0, "")


def test_a_health_checks_output_is_bounded() -> None:
    found = read_health(health("healthy", {"End": LATER, "Output": "x" * 100_000}), parse_instant(START))
    assert found is not None
    assert len(found.output) == MAX_OUTPUT


@pytest.mark.parametrize(
    ("labels", "on_failure", "words"),
    [
        ({}, "", ""),
        ({}, "none", ""),
        ({"autoheal": "TRUE"}, "", "autoheal, by the label autoheal"),
        ({"autoheal": "no"}, "kill", "Podman, which will kill it when its health check fails"),
        ({"com.docker.swarm.task.id": "t1", "autoheal": "true"}, "", "Docker Swarm, as task t1"),
        ({"io.kubernetes.pod.name": "web-1"}, "", "the kubelet, as part of pod web-1"),
        ({"PODMAN_SYSTEMD_UNIT": "web.service"}, "", "systemd, as unit web.service"),
    ],
)
def test_another_healer_is_named_in_words(labels: dict[str, str], on_failure: str, words: str) -> None:
    assert read_healer(labels, on_failure) == words


def bound(*hosts: tuple[str, str], port: str = "80/tcp") -> tuple[tuple[int, str, int], ...]:
    ports = {port: [{"HostIp": address, "HostPort": number} for address, number in hosts], "9090/tcp": None}
    return read_bindings({"NetworkSettings": {"Ports": ports}})


BOTH = bound(("0.0.0.0", "8080"), ("::", "8080"))


@pytest.mark.parametrize(
    ("bindings", "address", "reached"),
    [
        (BOTH, "", ["127.0.0.1"]),
        (BOTH, "192.0.2.7", ["192.0.2.7"]),
        (BOTH, "2001:db8::7", ["2001:db8::7"]),
        (bound(("::", "8080")), "", ["::1"]),
        (bound(("::", "8080")), "192.0.2.7", []),
        (bound(("", "8080")), "192.0.2.7", ["192.0.2.7"]),
        (bound(("198.51.100.3", "8080")), "192.0.2.7", ["198.51.100.3"]),
        (bound(("127.0.0.1", "8080")), "192.0.2.7", ["127.0.0.1"]),
        (bound(("0.0.0.0", "")), "", []),
    ],
)
def test_a_mapping_is_reached_where_it_really_listens(
    bindings: tuple[tuple[int, str, int], ...], address: str, reached: list[str]
) -> None:
    assert list(published(bindings, address)) == [PortFact(80, one, 8080) for one in reached]


def test_a_port_of_another_protocol_does_not_hide_the_tcp_one() -> None:
    ports = {"53/udp": [{"HostIp": "", "HostPort": "1053"}], "53/tcp": [{"HostIp": "", "HostPort": "2053"}]}
    assert read_bindings({"NetworkSettings": {"Ports": ports}}) == ((53, "", 2053),)


@given(st.sampled_from(["no", "always", "unless-stopped", "on-failure", "on-failure:3"]))
def test_a_restart_policy_survives_being_read_and_written(text: str) -> None:
    found = {
        "Id": "x",
        "Name": "/n",
        "State": {},
        "Config": {},
        "HostConfig": {"RestartPolicy": policy_body(text)},
    }
    assert read_life(found).restart == text


def test_the_hosts_own_network_has_the_hosts_ports() -> None:
    found = {
        "Id": "x",
        "Name": "/n",
        "State": {"Status": "running", "StartedAt": START},
        "Config": {"ExposedPorts": {"8080/tcp": {}}},
        "HostConfig": {"NetworkMode": "host"},
    }
    assert published(read_life(found).bindings, "192.0.2.7") == (PortFact(8080, "192.0.2.7", 8080),)


def test_one_that_cannot_be_inspected_is_shown_as_the_list_has_it() -> None:
    entry = {"Id": "x", "Names": ["/other/alias", "/shop"], "State": "dead", "Labels": None, "Image": "shop:1"}
    life = listed_life(entry)
    assert (life.name, life.word, life.image, life.started_at) == ("shop", "dead", "shop:1", 0)


# --- secrets ----------------------------------------------------------------------------------------------------


def pod(sources: tuple[tuple[str, SecretSource], ...], values: dict[str, str], container_id: str = "x") -> Pod:
    labels = {**mark_labels(MARK, 1), LABEL_SECRETS: secrets_label("web", sources, values)}
    found = {"Id": container_id, "Name": container_name(MARK), "State": {}, "Config": {"Labels": labels}}
    return Pod(read_life(found), ())


def secret(path: Path, value: str) -> SecretSource:
    path.write_text(value)
    path.chmod(0o600)
    return SecretSource(file=str(path))


def test_a_look_computes_a_few_digests_and_the_next_ones_the_rest(tmp_path: Path) -> None:
    names = [f"S{number}" for number in range(DIGESTS_PER_LOOK + 3)]
    source = secret(tmp_path / "one", "old")
    found = pod(tuple((name, source) for name in names), dict.fromkeys(names, "old"))
    secret(tmp_path / "one", "new")
    secrets = Secrets()
    assert len(secrets.look().stale(found)) == DIGESTS_PER_LOOK
    assert secrets.look().stale(found) == tuple(sorted(f"web/{name}" for name in names))
    assert secrets.look().stale(found) == tuple(sorted(f"web/{name}" for name in names))


def test_a_digest_is_computed_once_per_change(tmp_path: Path) -> None:
    source = secret(tmp_path / "one", "old")
    found, secrets = pod((("S", source),), {"S": "old"}), Secrets()
    (entry,) = read_label(found.main.labels[LABEL_SECRETS])
    assert secrets.known(found.main, entry, "old") is None
    assert secrets.look().stale(found) == ()
    assert secrets.known(found.main, entry, "old") is False
    assert secrets.known(found.main, entry, "new") is None
    secret(tmp_path / "one", "new")
    assert secrets.look().stale(found) == ("web/S",)
    assert secrets.known(found.main, entry, "new") is True


def test_a_secret_that_cannot_be_resolved_is_unknown_and_no_change(tmp_path: Path) -> None:
    source = secret(tmp_path / "one", "old")
    found, secrets = pod((("S", source),), {"S": "old"}), Secrets()
    os.chmod(tmp_path / "one", 0o644)  # a file that everybody may read is refused
    assert secrets.look().stale(found) == ()
    os.unlink(tmp_path / "one")
    assert secrets.look().stale(found) == ()


@given(st.text() | st.from_type(type(None)).map(json.dumps) | st.just('{"container": "a", "variables": {"b": {}}}'))
def test_a_label_that_somebody_else_wrote_says_nothing(text: str) -> None:
    assert read_label(text) == ()


def test_a_label_that_names_no_place_is_unknown() -> None:
    found = pod((("S", SecretSource()),), {"S": "old"})
    assert Secrets().look().stale(found) == ()
