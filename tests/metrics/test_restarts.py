"""Restarts that looks find: by the runtime, by another program; and those that steps do."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.actions import RemoveContainer, StartContainer
from providers.facts import EndFact, ExitCause, Generation
from reconciler.core.decide import decide
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.metrics.restarts import Restart, observed, of_step, workload_of
from reconciler.shell.monitor import Tick
from tests.builders import NOW, Scene
from tests.sim.manifest import Shop, Spec

SPEC = Spec("web", 2)


def ticks(*changes: dict) -> list[Restart]:
    """The restarts of a tick after which the second container has these fields."""
    scene, desired = Scene(SPEC), Shop((SPEC,)).desired()
    ledger = decide(desired, scene.observed(), NOW).ledger
    found: list[Restart] = []
    for fields in changes:
        scene.change(1, replace(scene.facts[1], **fields))
        decision = decide(desired, replace(scene.observed(), ledger=ledger), NOW)
        found += observed(Tick(decision, desired, NOW, 0, 0, ledger.owned, 0, 0, 0, complete=True))
        ledger = decision.ledger
    return found


def ended(seconds: int, cause: ExitCause = ExitCause.SIGNALLED, code: int = 137) -> dict:
    at = NOW.wall - seconds * SECOND
    return {"started_at": at + SECOND, "last_end": EndFact(at, code, cause)}


def test_restarts_by_the_runtime_are_counted_once_each():
    first = {**ended(50), "restarts": 1}
    assert ticks(first, first) == [Restart("web", "Crashed", "runtime")]
    assert ticks(first, {**ended(40), "restarts": 4}) == [
        Restart("web", "Crashed", "runtime"),
        Restart("web", "Crashed", "runtime", 3),
    ]


def test_the_cause_is_how_it_ended():
    assert ticks({**ended(50, ExitCause.OOM_KILLED), "restarts": 1}) == [Restart("web", "OOMKilled", "runtime")]
    assert ticks({**ended(50, ExitCause.EXITED, 0), "restarts": 1}) == [Restart("web", "Exited", "runtime")]


def test_a_restart_beside_the_program_is_external():
    assert ticks(ended(50)) == [Restart("web", "Crashed", "external")]


def test_our_own_stop_is_no_restart_of_another():
    assert ticks(ended(50, ExitCause.STOPPED_BY_US, 0)) == []


START = StartContainer("n", "x", Generation("id", 5))
NEW = StartContainer("n", "x", Generation("id", 0))
REMOVE = RemoveContainer("n", "x", Generation("id", 5))


@pytest.mark.parametrize(
    ("action", "cause", "kind", "restart"),
    [
        (START, Reason.LIVENESS_FAILED, OutcomeKind.DONE, Restart("web", "LivenessFailed", "reconciler")),
        (START, Reason.REQUESTED, OutcomeKind.DONE, Restart("web", "Requested", "operator")),
        (START, Reason.CRASHED, OutcomeKind.FAILED, None),
        (NEW, Reason.NOT_STARTED, OutcomeKind.DONE, None),
        (REMOVE, Reason.RECREATE, OutcomeKind.DONE, Restart("web", "RestartsDidNotHelp", "reconciler")),
        (REMOVE, Reason.TEMPLATE_CHANGED, OutcomeKind.DONE, None),
    ],
)
def test_steps_that_restart_a_replica(action, cause, kind, restart):
    step = Step("x", "workload/web/1", action, cause, "")
    assert of_step(step, Outcome("x", kind)) == restart


def test_objects_that_are_no_workload_have_no_name():
    assert [workload_of(key) for key in ("workload/web/0", "workload/web", "service/web", "container/n/x/0")] == [
        "web",
        "web",
        "",
        "",
    ]
