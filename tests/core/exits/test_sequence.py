"""The exit of a container, step by step: names, TTL, weight, drain, stop."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ExitCause, ProbeValue
from reconciler.core.exits.grants import Drain, may_cut
from reconciler.core.exits.sequence import Exit, leave, restart
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason, Rule, Waiting
from tests.builders import NOW, SEEN, ago, container, down
from tests.sim.manifest import Spec, workload

P, F, U = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
WEB = Spec(startup=True)
FACT = container(WEB, 0)
TEN = Drain(2 * SECOND, 10 * SECOND)


def grant(cause: Reason = Reason.SURPLUS, **fields) -> Grant:
    return Grant("workload/web/0", FACT.generation, cause, ago(20))._replace(**fields)


@pytest.mark.parametrize(
    ("given", "exit_", "waiting"),
    [
        (grant(), Exit(named=True, ttl=30 * SECOND), Waiting.NAMES),
        (grant(names_out=ago(10), ttl=30 * SECOND), Exit(carrying=True), Waiting.TTL),
        (grant(names_out=ago(30), ttl=30 * SECOND), Exit(carrying=True), Waiting.WEIGHT),
        (grant(names_out=ago(60), weight_out=ago(5), pooled=True), Exit(), Waiting.DRAIN),
    ],
)
def test_a_planned_exit_waits_for_names_then_ttl_then_weight_then_drain(given, exit_, waiting):
    progress = leave(given, FACT, exit_, TEN, NOW)
    assert progress.wait is not None
    assert progress.wait.waiting is waiting
    assert not progress.stop
    assert not progress.remove


@pytest.mark.parametrize(
    ("exit_", "rule"),
    [
        (Exit(named=True, kept=True), Rule.LAST_RECORD),
        (Exit(unreadable_zone="example.test.", unreadable_zone_since=SEEN - 500), Rule.UNKNOWN_ZONE),
        (Exit(unreadable_pool="edge/web", unreadable_pool_since=SEEN - 3600 * SECOND), Rule.UNKNOWN_POOL),
    ],
)
def test_a_planned_exit_is_held_by_a_last_name_and_unreadable_providers(exit_, rule):
    progress = leave(grant(names_out=ago(60), weight_out=ago(60)), FACT, exit_, TEN, NOW)
    assert progress.hold is not None
    assert progress.hold.rule is rule
    assert not progress.stop
    assert not progress.remove


def test_a_planned_exit_stops_after_its_drain_and_then_removes():
    given = grant(names_out=ago(60), weight_out=ago(10), pooled=True)
    assert leave(given, FACT, Exit(), TEN, NOW).stop
    assert leave(given, down(FACT, ExitCause.STOPPED_BY_US), Exit(), TEN, NOW).remove
    assert leave(given, down(FACT), Exit(carrying=True), TEN, NOW).wait.waiting is Waiting.WEIGHT


def test_a_planned_exit_drains_again_after_a_new_generation_started():
    newer = replace(FACT, started_at=FACT.started_at + 5)
    progress = leave(grant(names_out=ago(60), weight_out=ago(60), pooled=True), newer, Exit(), TEN, NOW)
    assert progress.grant.generation == newer.generation
    assert progress.wait.waiting is Waiting.DRAIN


def test_a_weight_is_cut_at_once_for_a_restart_else_after_the_ttl():
    assert may_cut(grant(Reason.LIVENESS_FAILED), NOW)
    assert not may_cut(grant(), NOW)
    assert not may_cut(grant(names_out=ago(29), ttl=30 * SECOND), NOW)
    assert may_cut(grant(names_out=ago(30), ttl=30 * SECOND), NOW)


def test_a_restart_goes_from_weight_to_drain_to_stop_to_start_to_available():
    sick = grant(Reason.LIVENESS_FAILED)
    web = workload(WEB)
    failing = Belief(FACT, F, F, 0, FOREVER, Reason.LIVENESS_FAILED)
    assert restart(sick, failing, Exit(carrying=True), web, False, NOW).wait.waiting is Waiting.WEIGHT
    assert (
        restart(sick._replace(weight_out=ago(3), pooled=True), failing, Exit(), web, False, NOW).wait.waiting
        is Waiting.DRAIN
    )
    assert restart(sick._replace(weight_out=ago(10), pooled=True), failing, Exit(), web, False, NOW).stop
    stopped = failing._replace(fact=down(FACT, ExitCause.STOPPED_BY_US))
    assert restart(sick, stopped, Exit(), web, False, NOW).start
    again = failing._replace(fact=replace(FACT, started_at=FACT.started_at + 9), live=U)
    assert restart(sick, again, Exit(), web, False, NOW).wait.waiting is Waiting.READY
    assert restart(sick, again._replace(live=P), Exit(), web, True, NOW).grant is None
    assert restart(sick._replace(at=ago(600)), failing, Exit(), web, False, NOW).ended == "deadline passed"


def test_a_restart_is_called_off_by_a_recovery_before_the_stop():
    well = Belief(FACT, P, P, SEEN, FOREVER, Reason.READY)
    assert restart(grant(Reason.LIVENESS_FAILED), well, Exit(), workload(WEB), True, NOW).grant is None
