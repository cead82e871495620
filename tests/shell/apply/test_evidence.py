"""Evidence never delays healing by more than its patience, whatever the runtime does."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from manifests.values.desired import SECOND
from providers.actions import RemoveContainer, StartContainer, StopContainer
from providers.errors import Unreachable
from providers.facts import ContainerFact, ContainerState, ExitCause, Generation, Known, ProbeFact, Probes, ProbeValue
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.shell.apply.evidence import EvidenceCollector
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers
from reconciler.shell.store.audit import Event
from reconciler.shell.store.directory import StoreError
from tests.sim.clock import VirtualClock

T = TypeVar("T")
LIFE = Generation("id-0", 5)
FACT = ContainerFact("node-a", "web-0", "id-0", ContainerState.RUNNING, 5)
STOP = Step(
    "stop web-0", "workload/web/0", StopContainer("node-a", "web-0", LIFE, SECOND), Reason.LIVENESS_FAILED, "drained"
)


class Cabinet:
    def __init__(self, full: bool = False) -> None:
        self.full = full
        self.kept: dict[int, dict] = {}
        self.reported: list[Event] = []

    async def put_evidence(self, reported: Event, value: str) -> int:
        if self.full:
            raise StoreError("state.db", "no space left", "make room")
        self.reported.append(reported)
        self.kept[len(self.kept) + 1] = json.loads(value)
        return len(self.kept)

    async def amend_evidence(self, number: int, value: str) -> None:
        self.kept[number] = json.loads(value)


def add_end(taker: EvidenceCollector) -> None:
    """Add the end of the stopped container, and wait until it is stored."""

    async def added() -> None:
        amending = taker.add_end(STOP)
        if amending is not None:
            await amending

    asyncio.run(added())


class Answers:
    """Knows the verdicts, and is the runtime whose log is asked for."""

    def __init__(self, log: Callable[[], tuple[str, ...]]) -> None:
        failed = ProbeFact(ProbeValue.FAIL, ProbeValue.FAIL, 3, 3, 0, 0, SECOND, "HTTP 503")
        self.verdicts = {LIFE: Probes(liveness=failed)}
        self.log = log

    def logs(self, container: str, lines: int) -> tuple[str, ...]:
        return self.log()


class Runner:
    """Calls in place, or never answers."""

    def __init__(self, hangs: bool = False) -> None:
        self.hangs = hangs

    async def run(self, call: Callable[[], T]) -> T:
        if self.hangs:
            await asyncio.Event().wait()
        return call()

    def close(self) -> None:
        """Nothing to let go of."""


def collector(
    cabinet: Cabinet, log: Callable[[], tuple[str, ...]], hangs: bool = False
) -> tuple[EvidenceCollector, Looks]:
    clock, answers = VirtualClock(), Answers(log)
    looks = Looks(Providers({"node-a": answers}), Runner(hangs), clock, Wake())  # type: ignore[dict-item]
    looks.runtimes["node-a"] = Known((FACT,), "node-a", 0)
    return EvidenceCollector(looks, cabinet, clock, answers, patience=0.01), looks


def unreadable() -> tuple[str, ...]:
    raise Unreachable("web-0", "the engine does not answer")


@pytest.mark.parametrize(
    ("log", "hangs", "said"), [(tuple, True, "no log within"), (unreadable, False, "does not answer")]
)
def test_a_log_that_does_not_come_is_left_out_and_that_is_said(log, hangs, said):
    cabinet = Cabinet()
    taker, _ = collector(cabinet, log, hangs)
    asyncio.run(asyncio.wait_for(taker.take(STOP), 60))
    [kept] = cabinet.kept.values()
    assert said in kept["log_missing"]
    assert kept["probes"]["liveness"]["detail"] == "HTTP 503"
    assert said in cabinet.reported[0].message


def test_a_full_disk_does_not_stop_the_step_here():
    taker, _ = collector(Cabinet(full=True), lambda: ("a line",))
    asyncio.run(taker.take(STOP))
    add_end(taker)


def test_only_steps_that_take_something_away_are_witnessed():
    cabinet = Cabinet()
    taker, _ = collector(cabinet, lambda: ("a line",))
    start = StartContainer("node-a", "web-0", LIFE)
    for step in (
        Step(STOP.id, STOP.object, STOP.action, Reason.SURPLUS, "drained"),
        Step(STOP.id, STOP.object, STOP.action, Reason.REQUESTED, "drained"),
        Step("start web-0", STOP.object, start, Reason.LIVENESS_FAILED, "stopped for its restart"),
    ):
        asyncio.run(taker.take(step))
    assert cabinet.kept == {}


def test_how_it_ended_is_added_only_for_the_life_that_was_stopped():
    for started_at, ended in ((5, {"exit_code": 137, "cause": "oom-killed"}), (6, None)):
        cabinet = Cabinet()
        taker, looks = collector(cabinet, lambda: ("a line",))
        asyncio.run(taker.take(STOP))
        after = replace(
            FACT, state=ContainerState.EXITED, started_at=started_at, exit_code=137, exit_cause=ExitCause.OOM_KILLED
        )
        looks.runtimes["node-a"] = Known((after,), "node-a", 1)
        add_end(taker)
        assert cabinet.kept[1]["end"] == ended


@pytest.mark.parametrize("cause", [Reason.TEMPLATE_CHANGED, Reason.SUPERSEDED])
def test_a_replica_that_makes_way_leaves_evidence_only_if_it_was_not_well(cause):
    stop = Step(STOP.id, STOP.object, STOP.action, cause, "drained")
    cabinet = Cabinet()
    taker, looks = collector(cabinet, lambda: ("cannot open the database",))
    answers = looks.providers.runtimes["node-a"]
    asyncio.run(taker.take(stop))
    assert cabinet.kept[1]["log"] == ["cannot open the database"]
    assert cabinet.kept[1]["probes"]["liveness"]["verdict"] == "fail"
    answers.verdicts.clear()
    asyncio.run(taker.take(stop))
    assert len(cabinet.kept) == 1


def test_a_crashed_container_leaves_evidence_when_it_is_replaced():
    remove = Step(
        "remove web-0", STOP.object, RemoveContainer("node-a", "web-0", LIFE), Reason.TEMPLATE_CHANGED, "down"
    )
    for cause, kept in ((ExitCause.EXITED, 1), (ExitCause.STOPPED_BY_US, 0), (None, 0)):
        cabinet = Cabinet()
        taker, looks = collector(cabinet, lambda: ("no such table",))
        down = replace(FACT, state=ContainerState.EXITED, exit_code=1, exit_cause=cause)
        looks.runtimes["node-a"] = Known((down,), "node-a", 0)
        asyncio.run(taker.take(remove))
        assert len(cabinet.kept) == kept
        if kept:
            assert cabinet.kept[1]["end"] == {"exit_code": 1, "cause": "exited"}
            assert cabinet.kept[1]["log"] == ["no such table"]
