"""The gates before a restart for failed health, gate by gate, and two healers of one container."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Desired, Guard, MassChange
from manifests.values.limits import Escalation, Held, MassFailure, Mode, Rate, RestartLimits, Window
from manifests.values.pod import Live
from providers.actions import StopContainer, UpdateContainer
from providers.facts import ContainerState, ExitCause, Generation, Known, Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.healing.mass_failure import pause
from reconciler.core.healing.restart_gates import observes
from reconciler.core.limits import backoff
from reconciler.core.model.instant import FOREVER, Instant, Now
from reconciler.core.model.ledger import Escalation as Row
from reconciler.core.model.ledger import Failures, Grant, Ledger, Outbreak
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.reasons import Reason, Rule
from tests.builders import FAIL, NOW, PASS, SEEN, Scene, ago, down, probe
from tests.sim.manifest import NODE, Shop, Spec, shop, workload

WEB = Spec()
ALWAYS, NEVER = (Live("main", 0, 0, "unless-stopped"),), (Live("main", 0, 0, "no"),)
DARK = probe(ProbeValue.FAIL)._replace(last=ProbeValue.UNKNOWN)


def guarded(**limits: object) -> Desired:
    return Shop((WEB,), guard=Guard(mass_change=MassChange(100, 50), **limits)).desired()


def one_sick(**changes: object) -> Scene:
    scene = Scene(WEB)
    scene.sick(1)
    old = scene.facts[1]
    scene.change(1, replace(old, **changes))
    return scene


def held(decision: Decision) -> list[tuple[Rule, str]]:
    return [(hold.rule, hold.message) for hold in decision.holds if hold.object.startswith("workload/")]


def rule_of(desired: Desired, scene: Scene) -> Rule | None:
    decision = decide(desired, scene.observed(), NOW)
    holds = held(decision)
    assert bool(holds) != bool(decision.ledger.grants), "either held or granted"
    return holds[0][0] if holds else None


# --- one gate after the other -----------------------------------------------------------------------------------


def test_nothing_holds_the_first_restart_of_a_replica():
    assert rule_of(guarded(), one_sick()) is None


def test_a_container_with_another_healer_is_left_to_that_healer():
    decision = decide(guarded(), one_sick(healer="autoheal (label autoheal=true)").observed(), NOW)
    ((rule, message),) = held(decision)
    assert rule is Rule.FOREIGN_HEALER
    assert "autoheal" in message
    assert not decision.ledger.grants


def test_prober_faults_of_many_containers_hold_restarts_on_their_node():
    scene = one_sick()
    for number in (0, 2):
        generation = scene.facts[number].generation
        scene.probes[generation] = Probes(None, DARK._replace(value=ProbeValue.PASS), PASS)
    assert rule_of(guarded(), scene) is Rule.PROBER_FAULT


@pytest.mark.parametrize("started", [True, False])
def test_liveness_is_no_prober_fault_before_the_startup_probe_has_passed(started):
    scene = one_sick()
    value = ProbeValue.PASS if started else ProbeValue.FAIL
    for number in (0, 2):
        startup = PASS._replace(value=value, last=value)
        scene.probes[scene.facts[number].generation] = Probes(startup, DARK._replace(value=ProbeValue.PASS), PASS)
    assert (rule_of(guarded(), scene) is Rule.PROBER_FAULT) is started


def test_a_single_prober_fault_holds_no_other_container():
    scene = one_sick()
    scene.probes[scene.facts[0].generation] = Probes(None, DARK._replace(value=ProbeValue.PASS), PASS)
    assert rule_of(guarded(), scene) is None


def test_a_mode_that_only_observes_holds_at_the_last_gate():
    assert rule_of(guarded(restarts=RestartLimits(mode=Mode.OBSERVE)), one_sick()) is Rule.OBSERVE_ONLY
    assert rule_of(guarded(restarts=RestartLimits(share=0)), one_sick()) is Rule.OBSERVE_ONLY
    desired = guarded()
    (web,) = desired.workloads
    web = replace(web, restarts=replace(web.restarts, mode=Mode.OBSERVE))
    assert rule_of(replace(desired, workloads=(web,)), one_sick()) is Rule.OBSERVE_ONLY


def test_the_share_of_workloads_that_act_only_grows_with_its_percentage():
    acting: list[set[str]] = []
    for share in (0, 10, 50, 90, 100):
        guard = Guard(restarts=RestartLimits(share=share))
        names = set()
        for number in range(200):
            spec = Spec(name=f"w{number}", pools=(), publish=None)
            if not observes(Shop((spec,), guard=guard).desired(), workload(spec)):
                names.add(spec.name)
        acting.append(names)
    assert [len(keys) for keys in acting][0::4] == [0, 200]
    assert all(fewer <= more for fewer, more in itertools.pairwise(acting))
    assert 60 <= len(acting[2]) <= 140


def test_restarts_in_progress_on_the_node_hold_further_restarts():
    names = ("a", "b", "web")
    specs = tuple(Spec(name=name, pools=(), publish=None) for name in names)
    scene = Scene(*specs)
    number = next(n for n, fact in enumerate(scene.facts) if fact.mark.workload == "web")
    scene.sick(number)
    grants = {}
    for place, name in enumerate(("a", "b")):
        fact = next(fact for fact in scene.facts if fact.mark.workload == name)
        scene.probes[fact.generation] = Probes(None, FAIL._replace(since=SEEN - 9000 * SECOND), PASS)
        grants[fact.id] = Grant(f"workload/{name}/0", fact.generation, Reason.LIVENESS_FAILED, ago(20 + place))
    scene.ledger = replace(scene.ledger, grants=grants)
    desired = Shop(specs, guard=Guard(mass_failure=MassFailure(share=100))).desired()
    decision = decide(desired, scene.observed(), NOW)
    ((rule, message),) = held(decision)
    assert rule is Rule.NODE_RESTART_LIMIT
    assert message.startswith(f"2 replicas are being restarted on {NODE}")


def test_a_spent_bucket_names_the_instant_at_which_the_next_token_comes():
    scene = one_sick()
    scene.ledger = replace(scene.ledger, restarted={f"{NODE}|workload/web": (ago(50), ago(30))})
    decision = decide(guarded(), scene.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.RATE]
    assert hold.until == SEEN + 10 * SECOND


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        (RestartLimits(node=Rate(6, 1)), f"{NODE}|workload/other"),
        (RestartLimits(total=Rate(20, 1)), "elsewhere|workload/other"),
    ],
)
def test_buckets_of_the_node_and_of_everything_count_other_workloads_too(limits, key):
    scene = one_sick()
    scene.ledger = replace(scene.ledger, restarted={key: (ago(1),)})
    assert rule_of(guarded(restarts=limits), scene) is Rule.RATE


def test_only_a_window_that_names_heal_holds_restarts():
    always = Window("night", frozenset({Held.HEAL}), "* * * * *", 3600 * SECOND, "UTC")
    assert rule_of(guarded(windows=(always,)), one_sick()) is Rule.WINDOW
    assert rule_of(guarded(windows=(replace(always, holds=frozenset({Held.ROLLOUT})),)), one_sick()) is None


def test_a_rollout_window_holds_new_revisions_but_not_starts():
    window = Window("day", frozenset({Held.ROLLOUT}), "* * * * *", 3600 * SECOND, "UTC")
    scene = Scene(WEB)
    scene.change(2, down(scene.facts[2]))
    scene.pools["web"] = [pool for pool in scene.pools["web"] if pool.name != scene.facts[2].name]
    guard = Guard(mass_change=MassChange(100, 50), windows=(window,))
    desired = replace(shop(image="v2"), guard=guard).desired()
    decision = decide(desired, scene.observed(), NOW)
    assert {hold.rule for hold in decision.holds if hold.object.startswith("workload/")} == {Rule.WINDOW}
    assert [step.id for step in decision.steps if not step.id.startswith("records")] == [f"start {scene.facts[2].name}"]


# --- escalation -------------------------------------------------------------------------------------------------


def tries(number: int, **changes: object) -> Ledger:
    return Ledger(source="git:shop", escalations={"workload/web/1": Row(number, WEB.revision, ago(900))}, **changes)


@pytest.mark.parametrize(
    ("number", "cause"),
    [(0, Reason.LIVENESS_FAILED), (2, Reason.LIVENESS_FAILED), (3, Reason.RECREATE), (4, Reason.LIVENESS_FAILED)],
)
def test_the_next_try_depends_on_the_number_of_failed_tries(number, cause):
    scene = one_sick()
    scene.ledger = replace(tries(number), revisions=scene.ledger.revisions)
    (grant,) = decide(guarded(), scene.observed(), NOW).ledger.grants.values()
    assert (grant.cause, grant.recreate) == (cause, cause is Reason.RECREATE)


def test_after_the_last_try_a_replica_is_failed_with_a_next_step():
    scene = one_sick()
    scene.ledger = replace(tries(7), revisions=scene.ledger.revisions)
    decision = decide(guarded(), scene.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.FAILED]
    assert "reconcile resume workload/web/1" in hold.next_step


@pytest.mark.parametrize("target", ["workload/web/1", "workload/web", "*"])
def test_resuming_forgets_the_tries(target):
    assert not apply_commands(tries(7), (Command("resume", target),)).escalations
    assert apply_commands(tries(7), (Command("resume", "workload/we"),)).escalations


def test_an_adopted_container_is_never_recreated():
    fact = replace(Scene(WEB).facts[0], adopted=True)
    kinds = [backoff.next_try(number, workload(WEB), fact) for number in range(8)]
    assert backoff.Try.RECREATE not in kinds
    assert kinds[5:7] == [backoff.Try.RESTART, backoff.Try.GIVE_UP]
    web = replace(workload(WEB), restarts=replace(workload(WEB).restarts, escalation=Escalation(1, 1)))
    ours = [backoff.next_try(number, web, Scene(WEB).facts[0]).value for number in range(4)]
    assert ours == ["restart", "recreate", "restart", "give up"]


# --- mass failure -----------------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest():
    limits = MassFailure()
    assert [pause(number, limits) // SECOND for number in (1, 2, 3, 4, 5, 60)] == [300, 600, 1200, 2400, 3600, 3600]


def test_while_the_canary_restarts_the_others_wait_and_keep_the_traffic():
    scene = Scene(WEB)
    for number in range(3):
        scene.sick(number)
    decision = decide(guarded(), scene.observed(), NOW)
    assert [grant.object for grant in decision.ledger.grants.values()] == ["workload/web/0"]
    assert decision.ledger.outbreaks["workload/web"].canary == "workload/web/0"
    cut = [step.action.name for step in decision.steps if step.id.startswith("weight")]
    assert cut == [scene.facts[0].name]


def test_in_a_mass_failure_a_member_that_is_not_ready_leaves_the_pool():
    scene = Scene(replace(WEB, replicas=4))
    for number in range(3):
        scene.sick(number)
    scene.sick(1, "readiness")
    scene.ledger = replace(scene.ledger, outbreaks={"workload/web": Outbreak(ago(9), "", 1, ago(5))})
    desired = Shop((replace(WEB, replicas=4),), guard=Guard(mass_change=MassChange(100, 50))).desired()
    decision = decide(desired, scene.observed(), NOW)
    assert [step.action.name for step in decision.steps if step.id.startswith("weight")] == [scene.facts[1].name]


def test_failures_one_after_the_other_are_no_mass_failure():
    scene = Scene(WEB)
    for number, since in ((0, 50), (1, 500), (2, 5000)):
        scene.probes[scene.facts[number].generation] = Probes(None, probe(ProbeValue.FAIL, since), PASS)
    assert not decide(guarded(), scene.observed(), NOW).ledger.outbreaks


# --- two healers ------------------------------------------------------------------------------------------------


def engine(restart: tuple[Live, ...] = ALWAYS) -> tuple[Desired, Scene]:
    scene = Scene(WEB)
    scene.facts = [replace(fact, live=restart) for fact in scene.facts]
    desired = guarded()
    (web,) = desired.workloads
    return replace(desired, workloads=(replace(web, template=replace(web.template, live=ALWAYS)),)), scene


def known(scene: Scene) -> None:
    counts = {fact.id: fact.restarts for fact in scene.facts}
    scene.ledger = replace(scene.ledger, runtime_restarts=counts)


def test_restarts_by_the_runtime_count_as_attempts():
    desired, scene = engine()
    known(scene)
    scene.change(1, replace(scene.facts[1], restarts=3))
    ledger = decide(desired, scene.observed(), NOW).ledger
    assert len(ledger.attempts["workload/web/1"]) == 3
    assert not ledger.taken_over


def test_past_the_limit_the_runtime_policy_is_off_until_all_is_forgotten():
    desired, scene = engine()
    known(scene)
    scene.change(1, replace(scene.facts[1], restarts=9))
    decision = decide(desired, scene.observed(), NOW)
    fact = scene.facts[1]
    assert [step.action for step in decision.steps] == [UpdateContainer(NODE, fact.name, fact.generation, NEVER)]
    assert decision.steps[0].cause is Reason.TAKEN_OVER
    scene.change(1, replace(scene.facts[1], live=NEVER))
    scene.ledger = decision.ledger
    assert not decide(desired, scene.observed(), NOW).steps
    scene.ledger = replace(decision.ledger, attempts={})
    assert [step.action.live for step in decide(desired, scene.observed(), NOW).steps] == [ALWAYS]


def test_a_lower_count_and_a_lost_ledger_start_over():
    desired, scene = engine()
    scene.facts = [replace(fact, restarts=9) for fact in scene.facts]
    scene.ledger = replace(scene.ledger, history_lost=ago(1))
    ledger = decide(desired, scene.observed(), NOW).ledger
    assert not ledger.attempts
    scene.ledger = replace(ledger, history_lost=None)
    scene.facts = [replace(fact, restarts=0) for fact in scene.facts]
    assert not decide(desired, scene.observed(), NOW).ledger.attempts


def test_the_runtime_policy_is_switched_off_before_a_stop_where_possible():
    desired, scene = engine()
    scene.sick(1)
    fact = scene.facts[1]
    grant = Grant("workload/web/1", fact.generation, Reason.LIVENESS_FAILED, ago(20), weight_out=ago(15))
    scene.ledger = replace(scene.ledger, grants={fact.id: grant})
    scene.pools["web"] = [pool for pool in scene.pools["web"] if pool.name != fact.name]
    decision = decide(desired, scene.observed(), NOW)
    assert [step.action.live for step in decision.steps if isinstance(step.action, UpdateContainer)] == [NEVER]
    assert not [step for step in decision.steps if isinstance(step.action, StopContainer)]
    scene.change(1, replace(fact, live=NEVER))
    decision = decide(desired, scene.observed(), NOW)
    assert [step.action.expect for step in decision.steps if isinstance(step.action, StopContainer)] == [
        fact.generation
    ]


def test_the_grace_of_a_stop_for_failed_health_is_that_of_the_probe():
    scene = one_sick()
    fact = scene.facts[1]
    grant = Grant("workload/web/1", fact.generation, Reason.LIVENESS_FAILED, ago(20), weight_out=ago(15))
    scene.ledger = replace(scene.ledger, grants={fact.id: grant})
    scene.pools["web"] = [pool for pool in scene.pools["web"] if pool.name != fact.name]
    desired = guarded()
    (web,) = desired.workloads
    main = web.template.container
    for grace, expected in ((0, web.template.grace), (7 * SECOND, 7 * SECOND)):
        probed = replace(main, liveness=replace(main.liveness, grace=grace))
        made = replace(desired, workloads=(replace(web, template=replace(web.template, container=probed)),))
        (stop,) = [step for step in decide(made, scene.observed(), NOW).steps if isinstance(step.action, StopContainer)]
        assert stop.action.grace == expected


@pytest.mark.parametrize(
    ("cause", "code", "reason"),
    [
        (ExitCause.EXITED, 0, Reason.EXITED),
        (ExitCause.EXITED, 3, Reason.CRASHED),
        (ExitCause.SIGNALLED, 139, Reason.CRASHED),
        (ExitCause.OOM_KILLED, 137, Reason.OOM_KILLED),
        (ExitCause.STOPPED_BY_US, 0, Reason.STOPPED),
        (ExitCause.HOST_RESTARTED, None, Reason.HOST_RESTARTED),
    ],
)
def test_causes_of_an_exit_are_distinguished(cause, code, reason):
    scene = Scene(WEB)
    scene.change(1, down(scene.facts[1], cause, code))
    scene.pools["web"] = [pool for pool in scene.pools["web"] if pool.name != scene.facts[1].name]
    starts = [step for step in decide(guarded(), scene.observed(), NOW).steps if step.id.startswith("start")]
    assert [step.cause for step in starts] == [reason]


# --- buckets and rows -------------------------------------------------------------------------------------------


@given(
    rate=st.builds(Rate, st.integers(1, 60), st.integers(1, 6)),
    waits=st.lists(st.integers(0, 200), min_size=1, max_size=40),
    steps=st.lists(st.integers(-7200, 7200), min_size=1, max_size=40),
)
def test_a_bucket_keeps_its_rate_in_every_span_for_any_wall_clock(rate, waits, steps):
    now, taken, at = NOW, [], []
    for number, wait in enumerate(waits):
        step = steps[number % len(steps)]
        now = Now(now.wall + (wait + step) * SECOND, now.steady + wait * SECOND, now.lineage)
        if backoff.next_at(taken, rate, now) <= now.steady:
            taken.append(Instant(now.wall, now.steady, now.lineage))
            at.append(now.steady)
    interval = 60 * SECOND // rate.per_minute
    for place, first in enumerate(at):
        for count, last in enumerate(at[place:], start=1):
            assert count <= rate.burst + (last - first) // interval


def test_another_clock_that_is_behind_refills_no_bucket():
    before, booted = Instant(NOW.wall + 3600 * SECOND, 77, "earlier boot"), NOW._replace(steady=20 * SECOND)
    assert backoff.next_at([before, before], Rate(1, 2), booted) == 80 * SECOND


def test_healing_memory_survives_its_rows_and_older_rows_are_read():
    ledger = Ledger(
        grants={"x": Grant("workload/web/0", Generation("x", 1), Reason.RECREATE, ago(1), recreate=True, grace=5)},
        failures={"workload/web/0": Failures(2, ago(3), Generation("x", 1))},
        restarted={"n|workload/web": (ago(1), ago(2))},
        escalations={"workload/web/0": Row(3, "r", ago(9))},
        outbreaks={"workload/web": Outbreak(ago(1), "workload/web/0", 2, ago(4), None)},
        runtime_restarts={"x": 4},
        taken_over=frozenset({"workload/web/0"}),
    )
    rows = to_rows(ledger)
    assert from_rows(rows) == ledger
    rows["grants", "x"] = '["workload/web/0", ["x", 1], "LivenessFailed", [1, 2, "b"], null, 0, null, false]'
    assert not from_rows(rows).grants["x"].recreate


def test_a_paused_container_is_left_alone_whatever_its_last_verdict():
    scene = one_sick(state=ContainerState.PAUSED)
    decision = decide(guarded(), scene.observed(), NOW)
    assert not decision.ledger.grants
    assert isinstance(scene.observed().runtimes[NODE], Known)
    assert decision.wake_at < FOREVER
