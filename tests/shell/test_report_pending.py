"""What a run sits through before it ends."""

import pytest

from manifests.desired import SECOND
from reconciler.core.instant import Now
from reconciler.core.ledger import Ledger
from reconciler.core.plan import Decision
from reconciler.core.status import Status
from reconciler.core.verdict import Wait, Waiting
from reconciler.exits import Exit
from reconciler.shell.report import pending, summarize

NOW = Now(1_000 * SECOND, 100 * SECOND, "boot")
SOON = NOW.steady + 30 * SECOND


def waiting(kind: Waiting) -> Decision:
    waits = (Wait("workload/web", kind, "for a while", SOON),)
    return Decision(steps=(), holds=(), waits=waits, status=Status(), ledger=Ledger(), wake_at=SOON)


@pytest.mark.parametrize("kind", [Waiting.ACTIVATION, Waiting.DRAIN, Waiting.TTL, Waiting.PAUSE])
def test_a_wait_that_ends_in_time_is_sat_through(kind):
    assert pending(waiting(kind), SOON, blind_is_final=True)


def test_nobody_waits_until_what_is_kept_to_go_back_to_may_go():
    decision = waiting(Waiting.ROLLBACK_WINDOW)
    assert not pending(decision, SOON + 600 * SECOND, blind_is_final=True)
    summary = summarize(decision, (), NOW)
    assert summary.exit is Exit.OK
    assert summary.run_again == (("workload/web: rollback window", SOON),)
