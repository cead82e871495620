"""When people are told: after the calls under way, at once without any, and never much later than was decided."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

import pytest

from manifests.values.desired import SECOND
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Command, Ledger, Outcome, OutcomeKind
from reconciler.core.model.observed import Observed
from reconciler.core.model.step import Step
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.report.reporting import Telling
from reconciler.shell.store.audit import Event, HoldKey
from tests.sim.manifest import shop

NOW = Now(1, 1_000 * SECOND, "boot")


class Ear:
    """Reporter and memory at once: notes in which order it hears what."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.events: list[Event] = []

    def started(self, step: Step) -> None:
        raise AssertionError(step)

    def finished(self, step: Step, outcome: Outcome) -> None:
        raise AssertionError(step, outcome)

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        raise AssertionError(text, level)

    def decided(self, decision: Decision, now: Now) -> None:
        self.heard.append(f"decided {len(decision.steps)}")

    def put_decision(self, text: str) -> bool:
        self.heard.append("stored")
        return True

    def told(self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()) -> None:
        self.events.extend(events)
        if done:
            self.heard.append(f"audit {len(done)} of {revision}")

    def held(self) -> Mapping[HoldKey, str]:
        return {}

    def put_evidence(self, told: Event, value: str) -> int:
        raise AssertionError(told, value)

    def amend_evidence(self, number: int, value: str) -> None:
        raise AssertionError(number, value)

    def load_ledger(self) -> dict[tuple[str, str], str]:
        return {}

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        raise AssertionError(rows, acknowledge)

    def sync(self) -> bool:
        raise AssertionError

    def commands(self) -> Sequence[tuple[int, Command]]:
        return ()

    def leftovers(self) -> Sequence[str]:
        return ()

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        raise AssertionError(step_id)

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        raise AssertionError(entry)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def telling(ear: Ear) -> Telling:
    desired = shop().desired()
    decision = decide(desired, Observed(ledger=Ledger(), source_read_at=NOW.steady), NOW)
    telling = Telling(ear, ear)
    telling.decided(decision, desired, NOW)
    telling.decided(decision, desired, NOW)
    return telling


async def put_off(telling: Telling, wake: Wake, seconds: float) -> None:
    """One wait of the loop while a call of so many seconds is under way; the call is ended afterwards."""
    call = asyncio.create_task(asyncio.sleep(seconds))
    await telling.let_go_first([call], wake)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_without_calls_under_way_a_decision_is_told_at_once_and_only_once(telling: Telling, ear: Ear) -> None:
    await telling.let_go_first([], Wake())
    await telling.let_go_first([], Wake())
    assert [one.partition(" ")[0] for one in ear.heard] == ["decided", "stored"]


async def test_a_call_under_way_goes_first(telling: Telling, ear: Ear) -> None:
    heard_before: list[int] = []

    async def call() -> None:
        await asyncio.sleep(0)
        heard_before.append(len(ear.heard))

    await telling.let_go_first([asyncio.create_task(call())], Wake())
    assert heard_before == [0]
    assert len(ear.heard) == 2


async def test_a_call_that_takes_long_is_not_waited_for(telling: Telling, ear: Ear) -> None:
    await put_off(telling, Wake(), 60)
    assert len(ear.heard) == 2


async def test_what_wakes_the_loop_goes_first_but_only_for_a_while(telling: Telling, ear: Ear) -> None:
    wake = Wake()
    wake.set("a probe verdict changed")
    await put_off(telling, wake, 60)
    assert ear.heard == []
    while not ear.heard:  # ends: nothing is put off for longer than 20 ms
        await put_off(telling, wake, 60)
    assert len(ear.heard) == 2


def test_the_audit_is_appended_once_per_revision_with_the_revision_in_force(ear: Ear) -> None:
    telling = Telling(ear, ear)
    outcome = Outcome("weight", OutcomeKind.DONE)
    for revision in ("r1", "r1", "r2"):
        telling.done((None, outcome, NOW), revision)  # type: ignore[arg-type]
    telling.flush()
    telling.flush()
    assert ear.heard == ["audit 2 of r1", "audit 1 of r2"]
