"""Foreign containers: observed completely and cheaply, touched only by actions on adopted ones, and unable to hide ours."""

from collections.abc import Iterator

import pytest

from manifests.values.pod import Live
from providers.actions import RemoveContainer, StartContainer, StopContainer, UpdateContainer
from providers.errors import Foreign
from providers.facts import ContainerFact, ContainerState, ExitCause, Generation, wants_liveness
from providers.testing.checks import wait_until
from providers.wrappers.owned import owned
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import NETWORK, POLITE, Api

pytestmark = pytest.mark.server("dockerd")


class Theirs:
    """Foreign containers; removed at the end."""

    def __init__(self, api: Api, prefix: str) -> None:
        self.api, self.prefix = api, prefix
        self.names: list[str] = []

    def run(self, *argv: str, start: bool = True, **body: object) -> str:
        name = f"{self.prefix}-theirs-{len(self.names)}"
        self.names.append(name)
        self.api.create(name, *(argv or POLITE), **body)
        if start:
            self.api.start(name)
        return name


@pytest.fixture
def theirs(bench: Bench) -> Iterator[Theirs]:
    made = Theirs(bench.api, bench.instance)
    yield made
    for name in made.names:
        bench.api.remove(name)


def act(bench: Bench, fact: ContainerFact, live: Live) -> ContainerFact:
    """Restart an adopted container with a new policy."""
    mine = owned(bench.runtime, bench.instance)
    mine.perform(UpdateContainer("local", fact.name, fact.generation, (live,), adopted=True))
    mine.perform(StopContainer("local", fact.name, fact.generation, 2_000_000_000, adopted=True))
    mine.perform(StartContainer("local", fact.name, bench.fact(fact.name).generation, adopted=True))
    return bench.fact(fact.name)


def test_a_foreign_container_has_labels_ports_and_settings(bench: Bench, theirs: Theirs) -> None:
    name = theirs.run(
        Labels={"com.example.tier": "db", "app": "shop"},
        ExposedPorts={"5432/tcp": {}},
        HostConfig={"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}, "Memory": 64 << 20},
    )
    fact = bench.looked(name)
    assert (fact.state, fact.mark, fact.foreign_mark) == (ContainerState.RUNNING, None, False)
    assert fact.labels == (("app", "shop"), ("com.example.tier", "db"))
    assert [(port.number, port.address) for port in fact.ports] == [(5432, fact.address)]
    assert fact.addresses == ((NETWORK, fact.address),)
    assert fact.live == (Live("", 0, 64 << 20, "on-failure:3"),)
    assert fact.image.endswith("reconciler-test/busybox:1")
    assert bench.fact(name) == fact


def test_an_unchanged_foreign_container_is_inspected_once(bench: Bench, theirs: Theirs) -> None:
    container_id = bench.fact(theirs.run()).id

    def known() -> object:
        bench.runtime.observe()
        return bench.runtime._observer._containers[container_id]

    # It has just started, so the next look may inspect it again; later looks do not.
    wait_until(lambda: known() is known(), "a look finds it unchanged without an inspection")


def test_actions_without_adopted_do_not_touch_foreign_containers(bench: Bench, theirs: Theirs) -> None:
    name = theirs.run()
    fact = bench.fact(name)
    for action in (
        UpdateContainer("local", name, fact.generation, (Live("", restart="no"),)),
        StopContainer("local", name, fact.generation, 0),
        StartContainer("local", name, fact.generation),
        RemoveContainer("local", name, fact.generation),
    ):
        with pytest.raises(Foreign, match="no owner mark"):
            owned(bench.runtime, bench.instance).perform(action)
    assert bench.fact(name) == fact


def test_an_adopted_container_is_restarted_in_place_with_its_new_policy(bench: Bench, theirs: Theirs) -> None:
    name = theirs.run(HostConfig={"RestartPolicy": {"Name": "always"}})
    before = bench.fact(name)
    after = act(bench, before, Live("", restart="unless-stopped"))
    assert (after.id, after.state, after.live) == (
        before.id,
        ContainerState.RUNNING,
        (Live("", restart="unless-stopped"),),
    )
    assert after.generation != before.generation


def test_a_start_restores_the_policy_with_its_number_of_tries(bench: Bench, theirs: Theirs) -> None:
    name = theirs.run(HostConfig={"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}})
    fact = bench.fact(name)
    mine = owned(bench.runtime, bench.instance)
    mine.perform(StopContainer("local", name, fact.generation, 2_000_000_000, adopted=True))
    stopped = bench.fact(name)
    assert (stopped.exit_cause, stopped.live[0].restart) == (ExitCause.STOPPED_BY_US, "no")
    mine.perform(StartContainer("local", name, stopped.generation, adopted=True))
    assert bench.fact(name).live[0].restart == "on-failure:3"


def test_another_container_under_an_adopted_name_is_left_alone(bench: Bench, theirs: Theirs) -> None:
    name = theirs.run()
    fact = bench.fact(name)
    stale = Generation("0" * 64, fact.started_at)
    with pytest.raises(Foreign, match="was adopted"):
        owned(bench.runtime, bench.instance).perform(StopContainer("local", name, stale, 0, adopted=True))
    assert bench.fact(name) == fact


def test_a_label_for_liveness_allows_a_restart_and_no_removal(bench: Bench, theirs: Theirs) -> None:
    name = theirs.run(Labels={"reconciler.enhanced-liveness": "true"})
    fact = bench.fact(name)
    assert wants_liveness(fact)
    mine = owned(bench.runtime, bench.instance)
    mine.perform(StopContainer("local", name, fact.generation, 2_000_000_000, adopted=True))
    stopped = bench.fact(name)
    with pytest.raises(Foreign, match="allows restarts only"):
        mine.perform(RemoveContainer("local", name, stopped.generation, adopted=True))
    mine.perform(StartContainer("local", name, stopped.generation, adopted=True))
    assert bench.state(name) is ContainerState.RUNNING


def test_a_command_runs_in_an_adopted_container_by_its_id(bench: Bench, theirs: Theirs) -> None:
    fact = bench.fact(theirs.run())
    mine = owned(bench.runtime, bench.instance)
    with pytest.raises(Foreign):
        mine.exec_target(fact.name, ("/bin/true",))
    assert mine.exec_target(fact.id, ("/bin/true",)).argv[-1] == "/bin/true"


def test_members_in_inherited_labels_are_ignored(bench: Bench, theirs: Theirs) -> None:
    """A container from an image committed from ours must not be taken for an incomplete pod, and removed."""
    name = theirs.run(Labels={"reconciler.members": "log", "reconciler.networks": "none"}, start=False)
    fact = bench.fact(name)
    owned(bench.runtime, bench.instance).perform(StartContainer("local", name, fact.generation, adopted=True))
    assert bench.state(name) is ContainerState.RUNNING


@pytest.mark.parametrize(
    ("labels", "healer"),
    [
        ({"autoheal": "true"}, "autoheal, by the label autoheal"),
        ({"autoheal": "false"}, ""),
        ({"deunhealth.restart.on.unhealthy": "true"}, "deunhealth"),
        ({"com.docker.swarm.task.id": "x1"}, "Docker Swarm, as task x1"),
        ({}, ""),
    ],
)
def test_other_healers_are_reported(bench: Bench, theirs: Theirs, labels: dict[str, str], healer: str) -> None:
    reported = bench.looked(theirs.run(Labels=labels)).healer
    assert healer in reported
    assert bool(healer) == bool(reported)
