"""Facts and verdicts get the time of the instance at the edge, all of them and once."""

from dataclasses import fields
from typing import get_type_hints

from manifests.values.desired import SECOND
from providers.actions import StopContainer
from providers.facts import (
    ContainerFact,
    ContainerStart,
    ContainerState,
    EndFact,
    Generation,
    ProbeFact,
    ProbeValue,
    RuntimeHealth,
)
from reconciler.probes.target import Target
from reconciler.shell.host_facts import InstanceTimeProber, InstanceTimeRuntime, in_instance_time
from tests.builders import container
from tests.sim.manifest import Spec

OFFSET = 10**18
FULL = ContainerFact(
    "node-a",
    "web-0",
    "id-0",
    ContainerState.RUNNING,
    started_at=11,
    running_since=5,
    exited_at=7,
    restarts=3,
    exit_code=9,
    health=RuntimeHealth(ProbeValue.PASS, 2, 13, 30),
    starts=(ContainerStart("", 11, 17), ContainerStart("sidecar", 11, 0)),
    last_end=EndFact(19, 1, None),
    oom_at=23,
)


def test_every_steady_instant_of_a_fact_is_moved_and_nothing_else():
    moved = in_instance_time(FULL, OFFSET)
    assert (moved.running_since, moved.exited_at, moved.health.last_at) == (OFFSET + 5, OFFSET + 7, OFFSET + 13)
    assert [start.running_since for start in moved.starts] == [OFFSET + 17, 0]
    back = in_instance_time(moved, -OFFSET)
    assert back == FULL
    assert moved.generation == FULL.generation
    assert (moved.last_end, moved.oom_at, moved.restarts) == (FULL.last_end, FULL.oom_at, FULL.restarts)


def test_no_number_of_a_fact_is_forgotten():
    """A new number in `ContainerFact` must be decided on: is it a steady instant?"""
    hints = get_type_hints(ContainerFact)
    numbers = {field.name for field in fields(ContainerFact) if hints[field.name] in (int, int | None)}
    assert numbers == {"started_at", "running_since", "exit_code", "exited_at", "restarts", "oom_at"}


def test_zero_is_no_instant():
    stopped = ContainerFact("node-a", "web-0", "id-0", ContainerState.CREATED)
    assert in_instance_time(stopped, OFFSET) == stopped


class Runtime:
    name = "node-a"

    def __init__(self) -> None:
        self.facts: tuple[ContainerFact, ...] = (FULL,)
        self.done: list[object] = []

    def observe(self, names=None) -> tuple[ContainerFact, ...]:
        return tuple(fact for fact in self.facts if names is None or fact.name in names)

    def perform(self, action) -> None:
        self.done.append(action)


def test_a_fact_that_did_not_change_stays_the_same_object():
    inner = Runtime()
    runtime = InstanceTimeRuntime(inner, OFFSET)
    (first,) = runtime.observe()
    assert runtime.observe()[0] is first
    assert runtime.observe(["web-0"])[0] is first
    inner.facts = (in_instance_time(FULL, 1),)
    assert runtime.observe()[0].running_since == OFFSET + 6
    inner.facts = ()
    assert runtime.observe() == ()
    inner.facts = (FULL,)
    assert runtime.observe(["web-0"]) == (first,)


def test_actions_go_through_as_they_are():
    inner = Runtime()
    action = StopContainer("node-a", "web-0", FULL.generation, SECOND)
    InstanceTimeRuntime(inner, OFFSET).perform(action)
    assert inner.done == [action]


class Engine:
    def __init__(self) -> None:
        self.targets: list[Target] = []

    def set_targets(self, targets: list[Target]) -> None:
        self.targets = targets

    def read(self):
        return {(Generation("id-0", 11), "readiness"): ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, 40, 50, 60)}


def test_the_probe_engine_counts_initial_delays_by_its_own_clock():
    engine = Engine()
    prober = InstanceTimeProber(engine, OFFSET)
    probe = container(Spec("web"), 0)
    target = Target(probe.generation, "readiness", None, "10.0.0.1", 80, OFFSET + 5)
    prober.set_targets([target, target._replace(started=0)])
    assert [made.started for made in engine.targets] == [5, 0]
    (fact,) = prober.read().values()
    assert (fact.since, fact.last_at, fact.valid_for) == (OFFSET + 40, OFFSET + 50, 60)
