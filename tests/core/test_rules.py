"""The rules of belief, availability and back-off one by one, as tables."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Backoff
from providers.facts import ContainerState, ExitCause, Generation, Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.exits.grants import Drain, may_cut
from reconciler.core.exits.sequence import Exit, leave, restart
from reconciler.core.health.belief import Belief, believe
from reconciler.core.limits import backoff
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed, next_after
from reconciler.core.model.ledger import Failures, Grant, Ledger
from reconciler.core.model.ledger_fold import Command, Outcome, OutcomeKind, apply_commands, fold
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.replicas.availability import Availability, count
from reconciler.core.replicas.roster import Group
from reconciler.core.rollouts.replacement import may_create, over_budget, replaced
from tests.builders import FAIL, NOW, PASS, SEEN, Scene, ago, container, down, probe
from tests.sim.manifest import Spec, shop, workload

P, F, U = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
WEB = Spec(startup=True)
FACT = container(WEB, 0)
MAIN = workload(WEB).template.container
UNKNOWN = probe(U)
CANNOT = probe(ProbeValue.CANNOT_RUN)
STALE = probe(P, age=17)
TEN = Drain(2 * SECOND, 10 * SECOND)


# --- trust ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("startup", "liveness", "readiness", "expected"),
    [
        (PASS, PASS, PASS, (P, P, Reason.READY)),
        (PASS, PASS, FAIL, (P, F, Reason.NOT_READY)),
        (PASS, PASS, UNKNOWN, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, PASS, CANNOT, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, PASS, None, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, PASS, STALE, (P, U, Reason.READINESS_UNKNOWN)),
        (PASS, FAIL, PASS, (F, F, Reason.LIVENESS_FAILED)),
        (PASS, UNKNOWN, PASS, (U, P, Reason.READY)),
        (PASS, CANNOT, PASS, (U, P, Reason.READY)),
        (PASS, STALE, PASS, (U, P, Reason.READY)),
        (None, FAIL, FAIL, (U, U, Reason.STARTING)),
        (UNKNOWN, FAIL, FAIL, (U, U, Reason.STARTING)),
        (CANNOT, FAIL, PASS, (U, U, Reason.STARTING)),
        (FAIL, PASS, PASS, (F, F, Reason.STARTUP_FAILED)),
    ],
)
def test_what_three_probes_make_of_a_running_container(startup, liveness, readiness, expected):
    probes = {FACT.generation: Probes(startup, liveness, readiness)}
    belief = believe(FACT, MAIN, probes, SEEN)
    assert (belief.live, belief.ready, belief.reason) == expected


@pytest.mark.parametrize("state", [one for one in ContainerState if one is not ContainerState.RUNNING])
def test_what_does_not_run_is_not_ready_whatever_probes_said_and_fails_no_liveness(state):
    belief = believe(replace(FACT, state=state), MAIN, {FACT.generation: Probes(PASS, FAIL, PASS)}, SEEN)
    assert (belief.ready, belief.live) == (F, U)


def test_without_probes_a_container_is_ready_while_it_runs_and_never_fails():
    bare = workload(Spec(liveness=False, readiness=False)).template.container
    belief = believe(FACT, bare, {}, SEEN)
    assert (belief.live, belief.ready, belief.until) == (P, P, FOREVER)


def test_verdicts_of_another_generation_do_not_count():
    other = Generation(FACT.id, FACT.started_at - 1)
    assert believe(FACT, MAIN, {other: Probes(PASS, FAIL, FAIL)}, SEEN).reason is Reason.STARTING


def test_a_belief_ends_when_its_oldest_verdict_is_too_old():
    probes = {FACT.generation: Probes(probe(P, age=0), probe(P, age=5), probe(P, age=1))}
    assert believe(FACT, MAIN, probes, SEEN).until == SEEN + 11 * SECOND


# --- availability -----------------------------------------------------------------------------------------------


def group(*beliefs: Belief, **changes) -> Group:
    made = Group(workload(replace(WEB, replicas=len(beliefs), **changes)))
    made.current = dict(enumerate(beliefs))
    return made


def belief(ready: ProbeValue, since: int = 50, number: int = 0) -> Belief:
    return Belief(container(WEB, number), P, ready, SEEN - since * SECOND, FOREVER, Reason.READY)


def test_only_ready_for_long_enough_and_not_leaving_counts_as_available():
    beliefs = [belief(P, 50, 0), belief(P, 5, 1), belief(F, 50, 2), belief(U, 50, 3), belief(P, 50, 4)]
    leaving = beliefs[4].fact
    grants = {leaving.id: Grant("workload/web/4", leaving.generation, Reason.SURPLUS, ago(1))}
    counts = count(group(*beliefs, min_ready=10 * SECOND), grants, NOW)
    assert counts == Availability(current=1, total=1, leaving=1, unknown=1, until=SEEN + 5 * SECOND)


# --- instants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (ago(7), 7 * SECOND),
        (Instant(NOW.wall + 99 * SECOND, NOW.steady - 7 * SECOND, NOW.boot), 7 * SECOND),
        (Instant(NOW.wall - 99 * SECOND, NOW.steady - 7 * SECOND, NOW.boot), 7 * SECOND),
    ],
)
def test_elapsed_time_ignores_steps_of_the_wall_clock(since, expected):
    assert elapsed(since, NOW) == expected
    assert due(since, 100 * SECOND, NOW) == NOW.steady + 100 * SECOND - expected


@pytest.mark.parametrize(("wall", "expected"), [(-60, 60), (-7, 20), (60, 20), (3600, 20)])
def test_over_a_reboot_time_passes_by_the_wall_clock_and_at_least_as_long_as_the_host_is_up(wall, expected):
    booted = Now(NOW.wall, 20 * SECOND, "this boot")
    since = Instant(NOW.wall + wall * SECOND, 10**18, "earlier boot")
    assert elapsed(since, booted) == expected * SECOND
    assert due(since, 100 * SECOND, booted) == (120 - expected) * SECOND


def test_the_grid_gives_the_same_next_instant_until_it_comes():
    base = SEEN - 2500
    later = Now(NOW.wall, SEEN + 499, NOW.boot)
    assert next_after(base, 1000, NOW) == next_after(base, 1000, later) == SEEN + 500
    assert next_after(base, 1000, Now(NOW.wall, SEEN + 500, NOW.boot)) == SEEN + 1500


# --- restarts ---------------------------------------------------------------------------------------------------


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


def test_a_first_failure_is_acted_on_at_once_and_a_failure_after_the_reset_too():
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


# --- rollout ----------------------------------------------------------------------------------------------------


def rolling(current: int, outgoing: int, replicas: int = 3, max_unavailable: int = 1) -> Group:
    made = Group(workload(replace(WEB, replicas=replicas, max_unavailable=max_unavailable)))
    made.current = {n: belief(P, 50, n) for n in range(current)}
    made.outgoing = [belief(P, 50, n) for n in range(outgoing)]
    return made


def counted(current: int, total: int) -> Availability:
    return Availability(current, total, 0, 0, FOREVER)


@pytest.mark.parametrize(
    ("current", "outgoing", "available", "created", "goes"),
    [(0, 0, 0, 0, True), (0, 3, 0, 0, True), (0, 3, 0, 1, False), (1, 3, 1, 0, False), (1, 2, 0, 0, False), (1, 2, 1, 0, True), (0, 4, 0, 0, False)],
)  # fmt: skip
def test_a_new_replica_waits_for_room_and_for_the_new_ones_before_it(current, outgoing, available, created, goes):
    message = may_create(rolling(current, outgoing), counted(available, available + outgoing), created)
    assert (message == "") is goes, message


@pytest.mark.parametrize(
    ("current", "outgoing", "new", "total", "available", "unknown", "retiring", "leaving", "goes"),
    [
        (1, 3, 1, 4, True, False, 0, 0, True),
        (1, 3, 0, 3, True, False, 0, 0, False),
        (1, 3, 1, 4, True, False, 1, 1, False),
        (3, 1, 3, 4, True, False, 0, 0, True),
        (1, 3, 1, 2, True, False, 0, 0, False),
        (1, 3, 1, 2, False, False, 0, 0, True),
        (1, 3, 1, 1, False, True, 0, 0, False),
    ],
)
def test_an_old_replica_goes_only_when_the_budget_is_kept(
    current, outgoing, new, total, available, unknown, retiring, leaving, goes
):
    old = rolling(current, outgoing)
    counts = counted(new, total)
    message = replaced(old, counts, retiring) or over_budget(old, counts, available, unknown, leaving)
    assert (message == "") is goes, message


# --- the way out ------------------------------------------------------------------------------------------------


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
def test_a_planned_exit_is_held_by_a_last_name_and_by_what_cannot_be_read(exit_, rule):
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


def test_a_planned_exit_follows_its_container_into_a_new_generation_and_drains_again():
    newer = replace(FACT, started_at=FACT.started_at + 5)
    progress = leave(grant(names_out=ago(60), weight_out=ago(60), pooled=True), newer, Exit(), TEN, NOW)
    assert progress.grant.generation == newer.generation
    assert progress.wait.waiting is Waiting.DRAIN


def test_a_weight_is_cut_at_once_for_a_restart_and_after_the_ttl_for_a_planned_exit():
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


def test_a_restart_is_called_off_when_the_container_recovers_before_the_stop():
    well = Belief(FACT, P, P, SEEN, FOREVER, Reason.READY)
    assert restart(grant(Reason.LIVENESS_FAILED), well, Exit(), workload(WEB), True, NOW).grant is None


# --- the ledger -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "streak"),
    [(OutcomeKind.FAILED, 3), (OutcomeKind.REJECTED, 3), (OutcomeKind.UNKNOWN, 3), (OutcomeKind.CONFLICT, 3), (OutcomeKind.SKIPPED, 2), (OutcomeKind.DONE, None)],
)  # fmt: skip
def test_an_outcome_lengthens_keeps_or_ends_the_row_of_failures_of_its_step(kind, streak):
    ledger = fold(fold(Ledger(), (Outcome("x", OutcomeKind.FAILED),), NOW), (Outcome("x", OutcomeKind.FAILED),), NOW)
    after = fold(ledger, (Outcome("x", kind),), NOW).step_failures.get("x")
    assert (after.streak if after else None) == streak


def test_commands_suspend_resume_and_approve_and_unknown_ones_change_nothing():
    ledger = apply_commands(
        Ledger(), (Command("suspend", "workload/web", "ann"), Command("approve", "abc"), Command("dance", "*"))
    )
    assert list(ledger.suspensions) == ["workload/web"]
    assert ledger.approvals == {"abc"}
    assert apply_commands(ledger, (Command("resume", "workload/web"),)).suspensions == {}


# --- weights and names in one decision --------------------------------------------------------------------------


def steps_of(scene: Scene, **spec) -> list[str]:
    return [step.id for step in decide(shop(**spec).desired(), scene.observed(), NOW).steps]


def test_the_last_ready_member_keeps_its_weight_and_the_hold_says_so():
    scene = Scene(Spec())
    for number in range(3):
        scene.sick(number, "readiness")
    decision = decide(shop().desired(), scene.observed(), NOW)
    assert decision.steps == ()
    assert {hold.rule for hold in decision.holds} == {Rule.LAST_MEMBER, Rule.LAST_RECORD}


def test_one_that_is_not_ready_loses_its_weight_and_its_name_while_others_serve():
    scene = Scene(Spec())
    scene.sick(0, "readiness")
    address = scene.facts[0].address
    assert steps_of(scene) == [f"weight edge/web/{address}:8080", "records names/example.test./web.example.test./A"]


@pytest.mark.parametrize("verdict", [UNKNOWN, CANNOT, STALE, None])
def test_an_unknown_readiness_changes_no_weight_and_no_name(verdict):
    scene = Scene(Spec())
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(None, PASS, verdict)
    assert steps_of(scene) == []


def test_two_containers_behind_one_address_leave_a_name_only_together():
    scene = Scene(Spec(replicas=2))
    shared = replace(scene.facts[1], ports=(scene.facts[0].ports[0]._replace(port=8081),))
    scene.change(1, shared)
    member = scene.pools["web"][1]
    scene.pools["web"][1] = member._replace(endpoint=scene.pools["web"][0].endpoint._replace(port=8081))
    key = next(iter(scene.records))
    scene.records[key] = scene.records[key]._replace(values=(scene.facts[0].address,))
    assert steps_of(scene, replicas=2) == []
    scene.sick(1, "readiness")
    assert [step.partition(" ")[0] for step in steps_of(scene, replicas=2)] == ["weight"]


# --- gates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda one: replace(one, history_lost=ago(5)), Rule.LEDGER_LOST),
        (
            lambda one: replace(one, attempts={"workload/web/1": tuple(ago(n) for n in (50, 40, 30, 20, 10))}),
            Rule.RESTART_LIMIT,
        ),
        (lambda one: replace(one, failures={"workload/web/1": Failures(3, ago(1), Generation("x", 1))}), Rule.BACK_OFF),
        (lambda one: apply_commands(one, (Command("suspend", "*"),)), Rule.SUSPENDED),
        (lambda one: apply_commands(one, (Command("suspend", "workload/web/1"),)), Rule.SUSPENDED),
    ],
)
def test_a_restart_is_held_by(change, rule):
    scene = Scene(Spec())
    scene.sick(1)
    scene.ledger = change(scene.ledger)
    decision = decide(shop().desired(), scene.observed(), NOW)
    assert rule in {hold.rule for hold in decision.holds}
    assert not decision.ledger.grants
    # Its weight follows its health all the same.
    assert [step.id.partition(" ")[0] for step in decision.steps] == ["weight", "records"]


def test_one_restart_at_a_time_and_the_longest_wanted_first():
    scene = Scene(Spec())
    for number in (0, 2):
        scene.sick(number)
    name = scene.facts[2].name
    scene.ledger = replace(scene.ledger, wanted={f"restart {name}": ago(60)})
    decision = decide(shop().desired(), scene.observed(), NOW)
    assert [grant.object for grant in decision.ledger.grants.values()] == ["workload/web/2"]
    assert {(hold.object, hold.rule) for hold in decision.holds} == {
        ("workload/web/0", Rule.MASS_FAILURE),
        ("service/web", Rule.MASS_FAILURE),
    }
