"""Waiting times after failures, and attempts within a window."""

import pytest

from manifests.values.desired import SECOND, Backoff
from reconciler.core.limits import backoff
from reconciler.core.model.ledger import Failures
from tests.builders import NOW, SEEN, ago, container
from tests.sim.manifest import Spec

WEB = Spec(startup=True)
FACT = container(WEB, 0)


@pytest.mark.parametrize(
    ("failures", "full"), [(0, 0), (1, 0), (2, 10), (3, 20), (4, 40), (6, 160), (7, 300), (99, 300)]
)
def test_waiting_times_double_up_to_the_cap_and_the_jitter_only_shortens(failures, full):
    for name in ("workload/web/0", "workload/web/1", "workload/api/0"):
        wait = backoff.delay(name, failures, Backoff())
        assert full * SECOND * (1 - backoff.JITTER) <= wait <= full * SECOND
        assert wait == backoff.delay(name, failures, Backoff())


def test_replicas_do_not_wait_in_step():
    assert len({backoff.delay(f"workload/web/{n}", 5, Backoff()) for n in range(20)}) == 20


def test_a_first_failure_and_one_after_the_reset_do_not_wait():
    old = Failures(9, ago(601), FACT.generation)
    assert backoff.restart_at("x", None, Backoff(), NOW) == SEEN
    assert backoff.restart_at("x", old, Backoff(), NOW) == SEEN
    assert backoff.restart_at("x", Failures(9, ago(599), FACT.generation), Backoff(), NOW) <= SEEN
    assert backoff.restart_at("x", Failures(9, ago(10), FACT.generation), Backoff(), NOW) > SEEN


@pytest.mark.parametrize(
    ("ages", "limit", "expected"),
    [((), 1, 0), ((10,), 1, 290), ((299, 10), 2, 1), ((300, 10), 2, 0), ((200, 100, 10), 2, 200), ((200, 100), 3, 0)],
)
def test_one_more_attempt_fits_when_the_oldest_has_left_the_window(ages, limit, expected):
    attempts = tuple(ago(age) for age in ages)
    assert backoff.attempts_left_at(attempts, limit, 300 * SECOND, NOW) == SEEN + expected * SECOND
