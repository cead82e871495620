"""When decisions are reported: after the calls under way, at once without any, and never much later."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired
from providers.actions import SetWeight
from providers.facts import Endpoint
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.report.reporting import LONGEST, Reporting
from reconciler.shell.store.audit import Event, HoldKey
from reconciler.shell.store.ports import Document, Rows
from tests.builders import NOW as SCENE_NOW
from tests.builders import Scene
from tests.sim.manifest import Shop, Spec, shop

NOW = Now(1, 1_000 * SECOND, "boot")

WEIGHT = Step(
    "weight", "service/web", SetWeight("edge", "web", Endpoint("10.0.0.1", 80), "web-0", 0, 100), Reason.NOT_READY, ""
)


class Recorder:
    """Reporter and memory in one: records the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.events: list[Event] = []

    def started(self, step: Step) -> None:
        raise AssertionError(step)

    def finished(self, step: Step, outcome: Outcome) -> None:
        raise AssertionError(step, outcome)

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        assert kind

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        raise AssertionError(text, level)

    def decided(self, decision: Decision, now: Now) -> None:
        self.calls.append(f"decided {len(decision.steps)}")

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        for done, revision, events, *_ in rows:
            self.events.extend(events)
            if done:
                self.calls.append(f"audit {len(done)} of {revision}")
        self.calls += ["stored"] * len(documents)
        return [True] * len(documents)

    async def reported_holds(self) -> Mapping[HoldKey, str]:
        return {}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def reporting(recorder: Recorder) -> Reporting:
    desired = shop().desired()
    decision = decide(desired, Observed(ledger=Ledger(), source_read_at=NOW.steady), NOW)
    reporting = Reporting(recorder, recorder)
    reporting.decided(decision, desired, NOW)
    reporting.decided(decision, desired, NOW)
    return reporting


async def delay(reporting: Reporting, wake: Wake, seconds: float) -> None:
    """One wait of the loop while a call of `seconds` is under way; cancels the call afterwards."""
    call = asyncio.create_task(asyncio.sleep(seconds))
    await reporting.after_calls([call], wake)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_without_calls_under_way_a_decision_is_reported_at_once_and_once(
    reporting: Reporting, recorder: Recorder
) -> None:
    await reporting.after_calls([], Wake())
    await reporting.after_calls([], Wake())
    assert [call.partition(" ")[0] for call in recorder.calls] == ["decided", "stored"]


async def test_the_same_decision_for_other_manifests_is_stored_too(reporting: Reporting, recorder: Recorder) -> None:
    desired = replace(shop().desired(), revision="another")
    decision = decide(desired, Observed(ledger=Ledger(), source_read_at=NOW.steady), NOW)
    await reporting.after_calls([], Wake())
    reporting.decided(decision, desired, NOW)
    await reporting.after_calls([], Wake())
    assert recorder.calls.count("stored") == 2


async def test_a_report_waits_for_a_call_under_way(reporting: Reporting, recorder: Recorder) -> None:
    calls_before: list[int] = []

    async def call() -> None:
        await asyncio.sleep(0)
        calls_before.append(len(recorder.calls))

    await reporting.after_calls([asyncio.create_task(call())], Wake())
    assert calls_before == [0]
    assert len(recorder.calls) == 2


async def test_a_report_does_not_wait_for_a_long_call(reporting: Reporting, recorder: Recorder) -> None:
    await delay(reporting, Wake(), 60)
    assert len(recorder.calls) == 2


async def test_a_report_waits_for_wakes_of_the_loop_but_only_for_a_while(
    reporting: Reporting, recorder: Recorder
) -> None:
    wake = Wake()
    wake.set("a probe verdict changed")
    await delay(reporting, wake, 60)
    assert recorder.calls == []
    while not recorder.calls:  # ends, because no report is delayed by more than 20 ms
        await delay(reporting, wake, 60)
    assert len(recorder.calls) == 2


def test_the_audit_is_appended_once_per_revision_in_force(recorder: Recorder) -> None:
    reporting = Reporting(recorder, recorder)
    outcome = Outcome("weight", OutcomeKind.DONE)
    for revision in ("r1", "r1", "r2"):
        reporting.done((WEIGHT, outcome, NOW), revision)
    asyncio.run(reporting.flush())
    asyncio.run(reporting.flush())
    assert recorder.calls == ["audit 2 of r1", "audit 1 of r2"]


def failing() -> tuple[Decision, Desired]:
    """A decision that follows from a failed readiness: a weight and a record set."""
    scene = Scene(Spec())
    scene.sick(0, "readiness")
    desired = Shop((Spec(),)).desired()
    return decide(desired, scene.observed(), SCENE_NOW), desired


def verdicts(recorder: Recorder) -> list[str]:
    return [event.outcome for event in recorder.events if event.kind == "verdict"]


def test_a_verdict_is_reported_when_its_calls_have_ended(recorder: Recorder) -> None:
    reporting, (decision, desired) = Reporting(recorder, recorder), failing()
    reporting.decided(decision, desired, SCENE_NOW)
    asyncio.run(reporting.flush())
    assert verdicts(recorder) == []
    for step in decision.steps:
        reporting.done((step, Outcome(step.id, OutcomeKind.DONE), SCENE_NOW), "r1")
    asyncio.run(reporting.flush())
    [said] = verdicts(recorder)
    assert said.startswith("acted on: weight 0 in edge/web, address withdrawn from")
    asyncio.run(reporting.flush())
    assert len(verdicts(recorder)) == 1


def test_the_outcome_of_a_later_try_does_not_change_what_is_reported(recorder: Recorder) -> None:
    reporting, (decision, desired) = Reporting(recorder, recorder), failing()
    again = tuple(replace(step) for step in decision.steps)
    reporting.decided(decision, desired, SCENE_NOW)
    for step in decision.steps:
        reporting.done((step, Outcome(step.id, OutcomeKind.FAILED, "refused"), SCENE_NOW), "r1")
    for step in again:
        reporting.done((step, Outcome(step.id, OutcomeKind.DONE), SCENE_NOW), "r1")
    asyncio.run(reporting.flush())
    [said] = verdicts(recorder)
    assert said.startswith("not acted on: weight 0 in edge/web: failed (refused)")


def test_a_call_that_hangs_holds_an_event_for_a_while_only(recorder: Recorder) -> None:
    reporting, (decision, desired) = Reporting(recorder, recorder), failing()
    reporting.decided(decision, desired, SCENE_NOW)
    asyncio.run(reporting.flush())
    later = Now(SCENE_NOW.wall + LONGEST, SCENE_NOW.steady + LONGEST, SCENE_NOW.lineage)
    reporting.decided(decision, desired, later)
    asyncio.run(reporting.flush())
    [said] = verdicts(recorder)
    assert "begun, not confirmed yet" in said


def test_steps_of_a_run_that_ends_are_reported_as_not_done(recorder: Recorder) -> None:
    reporting, (decision, desired) = Reporting(recorder, recorder), failing()
    reporting.decided(decision, desired, SCENE_NOW, acts=False)
    asyncio.run(reporting.flush())
    [said] = verdicts(recorder)
    assert said.startswith("not acted on: weight 0 in edge/web: not done (the run has ended)")


def test_a_skipped_step_is_no_event_of_its_own(recorder: Recorder) -> None:
    reporting = Reporting(recorder, recorder)
    reporting.done((WEIGHT, Outcome("weight", OutcomeKind.SKIPPED), NOW), "r1")
    asyncio.run(reporting.flush())
    assert recorder.calls == []
