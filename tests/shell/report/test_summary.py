"""When a single run ends, and its exit code."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.status.objects import Status
from reconciler.exits import Exit
from reconciler.shell.report.summary import pending, summarize

NOW = Now(1_000 * SECOND, 100 * SECOND, "boot")
SOON = NOW.steady + 30 * SECOND


def waiting(kind: Waiting) -> Decision:
    waits = (Wait("workload/web", kind, "for a while", SOON),)
    return Decision(steps=(), holds=(), waits=waits, status=Status(), ledger=Ledger(), wake_at=SOON)


@pytest.mark.parametrize("kind", [Waiting.ACTIVATION, Waiting.DRAIN, Waiting.TTL, Waiting.PAUSE])
def test_a_run_waits_for_a_wait_that_ends_before_the_deadline(kind):
    assert pending(waiting(kind), SOON, unknown_is_final=True)


def test_a_run_does_not_wait_for_the_end_of_a_rollback_window():
    decision = waiting(Waiting.ROLLBACK_WINDOW)
    assert not pending(decision, SOON + 600 * SECOND, unknown_is_final=True)
    summary = summarize(decision, (), NOW)
    assert summary.exit is Exit.OK
    assert summary.run_again == (("workload/web: rollback window", SOON),)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (Rule.POLICY_KEPT, Exit.OK),
        (Rule.FIXED_WEIGHTS, Exit.OK),
        (Rule.TEMPLATE_DIFFERS, Exit.MANUAL),
        (Rule.BACK_OFF, Exit.UNFINISHED),
    ],
)
def test_the_exit_code_depends_on_which_rule_holds(rule, code):
    held = (Hold("workload/web", "change it", rule, "for a reason", next_step="do something"),)
    assert summarize(replace(waiting(Waiting.DRAIN), waits=(), holds=held), (), NOW).exit is code


@pytest.mark.parametrize(("refused", "goes_on"), [("recordlist/all", False), ("recordlist/other", True)])
def test_a_run_does_not_wait_for_what_follows_a_refused_set(refused, goes_on):
    wait = Wait("recordlist/all", Waiting.NAMES, "a. is not published yet, so b. cannot point at it")
    held = Hold(refused, "records", Rule.STEP_FAILED, "refused", until=SOON, next_step="remove the cause")
    decision = replace(waiting(Waiting.DRAIN), waits=(wait,), holds=(held,))
    assert pending(decision, SOON + 600 * SECOND, unknown_is_final=True) is goes_on
