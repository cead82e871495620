"""What outcomes of steps and commands of operators change in the ledger."""

import pytest

from reconciler.core.model.approval import Approval
from reconciler.core.model.instant import instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import Command, Outcome, OutcomeKind, apply_commands, fold
from tests.builders import NOW


@pytest.mark.parametrize(
    ("kind", "streak"),
    [(OutcomeKind.FAILED, 3), (OutcomeKind.REJECTED, 3), (OutcomeKind.UNKNOWN, 3), (OutcomeKind.CONFLICT, 3), (OutcomeKind.SKIPPED, 2), (OutcomeKind.DONE, None)],
)  # fmt: skip
def test_an_outcome_lengthens_keeps_or_ends_the_failures_of_its_step(kind, streak):
    ledger = fold(fold(Ledger(), (Outcome("x", OutcomeKind.FAILED),), NOW), (Outcome("x", OutcomeKind.FAILED),), NOW)
    after = fold(ledger, (Outcome("x", kind),), NOW).step_failures.get("x")
    assert (after.streak if after else None) == streak


def test_commands_suspend_resume_and_approve_and_others_change_nothing():
    ledger = apply_commands(
        Ledger(),
        (Command("suspend", "workload/web", "ann"), Command("approve", "abc", at=instant(NOW)), Command("dance", "*")),
    )
    assert list(ledger.suspensions) == ["workload/web"]
    assert ledger.approvals == {"abc": Approval(instant(NOW))}
    assert apply_commands(ledger, (Command("resume", "workload/web"),)).suspensions == {}
