"""A recreation is one disruption: for changed secrets, where the old container goes first, and after restarts that did not help."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired, Guard, MassChange, OnSecretChange, Port, Strategy
from manifests.values.pod import Engine, Live, Mount, VolumeKind
from manifests.values.secret_sources import SecretSource
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.facts import ExitCause, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.exits.grants import may_empty
from reconciler.core.exits.sequence import Exit, recreate, recreated, restart
from reconciler.core.forecast import forecast
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Escalation, Grant
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.plan_text import to_text
from reconciler.core.replicas.field_changes import SECRET, Effect
from tests.builders import NOW, SEEN, Scene, ago, container, down
from tests.sim.manifest import Shop, Spec, shop, workload

WEB = Spec()
FACT = container(WEB, 0)
P, F = ProbeValue.PASS, ProbeValue.FAIL
STALE = ("main/PASSWORD",)


def changed(desired: Desired, **fields: object) -> Desired:
    return replace(desired, workloads=tuple(replace(workload, **fields) for workload in desired.workloads))


def grant(cause: Reason = Reason.SECRET_CHANGED, **fields: object) -> Grant:
    return Grant("workload/web/0", FACT.generation, cause, ago(60), recreate=True)._replace(**fields)


def belief(live: ProbeValue = P, **fields: object) -> Belief:
    return Belief(replace(FACT, **fields), live, live, SEEN - 50 * SECOND, FOREVER, Reason.READY)


def secrets_changed(policy: OnSecretChange) -> tuple[Desired, Scene]:
    scene = Scene(WEB)
    scene.facts = [replace(fact, stale_secrets=STALE) for fact in scene.facts]
    return changed(shop().desired(), on_secret_change=policy), scene


def test_a_changed_secret_is_reported_and_nothing_more_by_default():
    desired, scene = secrets_changed(OnSecretChange.REPORT)
    decision = decide(desired, scene.observed(), NOW)
    assert not decision.steps
    assert {hold.rule for hold in decision.holds} == {Rule.SECRET_CHANGED}
    assert all("main/PASSWORD" in hold.message and "onSecretChange" in hold.next_step for hold in decision.holds)


def test_a_rollout_says_which_secrets_change_with_it():
    desired, scene = secrets_changed(OnSecretChange.REPORT)
    (web,) = desired.workloads
    engine = Engine(secret_env=(("PASSWORD", SecretSource(file="/run/password")),))
    main = replace(web.template.container, argv=("serve", "v2"), engine=engine)
    template = replace(web.template, container=main, revision="another")
    scene.facts = [replace(fact, stale_secrets=(*STALE, "main/GONE")) for fact in scene.facts]
    (row,) = forecast(changed(desired, template=template), scene.observed(), NOW, desired).changed
    assert "containers[main].env[GONE]" not in [field.field for field in row.fields]
    shown = [field for field in row.fields if field.field == "containers[main].env[PASSWORD]"]
    assert [(field.after, field.effect) for field in shown] == [(SECRET, Effect.NEW_CONTAINER)], (
        "listed once, as a new variable"
    )
    before = replace(web.template, container=replace(web.template.container, engine=engine))
    (row,) = forecast(
        changed(desired, template=template), scene.observed(), NOW, changed(desired, template=before)
    ).changed
    shown = [field for field in row.fields if field.field == "containers[main].env[PASSWORD]"]
    assert [(field.before, field.after, field.effect) for field in shown] == [
        (SECRET, f"another {SECRET}", Effect.NO_CONTAINER)
    ]


def escalated() -> tuple[Desired, Scene]:
    scene = Scene(WEB)
    scene.sick(1)
    scene.ledger = replace(scene.ledger, escalations={"workload/web/1": Escalation(3, WEB.revision, ago(900))})
    return shop().desired(), scene


def host_port() -> tuple[Desired, Scene]:
    spec = Spec(replicas=1, drain=5 * SECOND)
    desired = Shop((replace(spec, image="v2"),), guard=Guard(mass_change=MassChange(100, 50))).desired()
    (web,) = desired.workloads
    main = replace(web.template.container, ports=(Port("http", 8080, 80),))
    template = replace(web.template, container=main)
    return changed(desired, template=template, strategy=Strategy.RECREATE), Scene(spec)


def exclusive_volume() -> tuple[Desired, Scene]:
    desired, scene = host_port()
    (web,) = desired.workloads
    mount = Mount(VolumeKind.NAMED, "web-data", "/data", exclusive=True)
    main = replace(web.template.container, ports=(Port("http", 8080),), engine=Engine(mounts=(mount,)))
    return changed(desired, template=replace(web.template, container=main)), scene


SITUATIONS = {
    "secret-changed": lambda: secrets_changed(OnSecretChange.RESTART),
    "recreate-after-restarts": escalated,
    "host-port-template-changed": host_port,
    "exclusive-volume-template-changed": exclusive_volume,
    "strategy-recreate": lambda: (changed(shop(image="v2").desired(), strategy=Strategy.RECREATE), Scene(WEB)),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_plan_of(name, golden):
    desired, scene = SITUATIONS[name]()
    golden(f"plan/{name}.txt", to_text(forecast(desired, scene.observed(), NOW)))


@pytest.mark.parametrize(
    "name", ["secret-changed", "strategy-recreate", "host-port-template-changed", "exclusive-volume-template-changed"]
)
def test_all_replicas_are_recreated_one_after_the_other(name):
    desired, scene = SITUATIONS[name]()
    plan = forecast(desired, scene.observed(), NOW)
    assert not plan.truncated
    assert not plan.holds
    kinds = [type(step.step.action) for step in plan.steps]
    replicas = desired.workloads[0].replicas
    assert [kinds.count(kind) for kind in (StopContainer, RemoveContainer, CreateContainer)] == [replicas] * 3
    between = [kind for kind in kinds if kind in {StopContainer, RemoveContainer, CreateContainer, StartContainer}]
    if name == "secret-changed":  # the new one has the old one's name
        assert between == [StopContainer, RemoveContainer, CreateContainer, StartContainer] * replicas
    else:  # created before any replica goes, and started in the old one's place
        assert between == [CreateContainer] * replicas + [StopContainer, RemoveContainer, StartContainer] * replicas


@pytest.mark.parametrize(
    "name", ["strategy-recreate", "host-port-template-changed", "exclusive-volume-template-changed"]
)
def test_no_replica_goes_before_its_replacement_was_created(name):
    desired, scene = SITUATIONS[name]()
    decision = decide(desired, scene.observed(), NOW)
    assert {type(step.action) for step in decision.steps} == {CreateContainer}
    assert not decision.ledger.grants
    messages = {wait.message for wait in decision.waits}
    assert any(message.endswith("stays until its replacement has been created") for message in messages)


def test_a_budget_of_0_holds_planned_recreations_and_not_health_ones():
    desired, scene = secrets_changed(OnSecretChange.RESTART)
    decision = decide(changed(desired, max_unavailable=0), scene.observed(), NOW)
    assert {hold.rule for hold in decision.holds} == {Rule.BUDGET}
    desired, scene = escalated()
    decision = decide(changed(desired, max_unavailable=0), scene.observed(), NOW)
    assert [grant.cause for grant in decision.ledger.grants.values()] == [Reason.RECREATE]


def test_the_grant_of_a_removed_container_lasts_until_it_is_replaced():
    desired, scene = secrets_changed(OnSecretChange.RESTART)
    scene.ledger = replace(scene.ledger, grants={FACT.id: grant(weight_out=ago(30))})
    scene.facts[0] = replace(FACT, id="another", stale_secrets=(), started_at=NOW.wall - 5 * SECOND)
    decision = decide(desired, scene.observed(), NOW)
    assert list(decision.ledger.grants) == [FACT.id]
    waits = [wait for wait in decision.waits if wait.object == "workload/web/0" and wait.waiting is Waiting.READY]
    assert [wait.until for wait in waits] == [SEEN + 570 * SECOND]
    scene.probes[scene.facts[0].generation] = scene.probes[FACT.generation]
    after = decide(desired, scene.observed(), NOW).ledger.grants
    assert FACT.id not in after


def test_the_second_half_ends_when_available_failed_again_or_too_late():
    gone = grant(weight_out=ago(30))
    web = workload(WEB)
    assert recreated(gone, None, web, False, NOW).wait is not None
    assert recreated(gone, belief(), web, True, NOW).ended == "available again"
    assert recreated(gone, belief(F), web, False, NOW).ended == "the new container failed too"
    assert recreated(gone, belief()._replace(fact=down(FACT)), web, False, NOW).ended == "the new container ended"
    assert recreated(grant(weight_out=ago(601)), None, web, False, NOW).ended == "deadline passed"


def test_only_a_planned_recreation_waits_for_names_and_ttl():
    web = workload(WEB)
    named = Exit(named=True, ttl=30 * SECOND)
    stale = belief(stale_secrets=STALE)
    assert recreate(grant(), stale, named, web, NOW).wait.waiting is Waiting.NAMES
    assert recreate(grant(), stale, Exit(unreadable_zone="z."), web, NOW).hold.rule is Rule.UNKNOWN_ZONE
    assert recreate(grant(Reason.RECREATE), belief(F), named, web, NOW).stop
    hidden = Exit(unreadable_pool="edge/web", unreadable_pool_since=SEEN - 20 * SECOND)
    assert recreate(grant(Reason.RECREATE), belief(F), hidden, web, NOW).stop
    assert recreate(grant(names_out=ago(60)), stale, hidden, web, NOW).hold.rule is Rule.UNKNOWN_POOL
    stopped = belief()._replace(fact=down(FACT, ExitCause.STOPPED_BY_US))
    assert recreate(grant(Reason.RECREATE), stopped, hidden, web, NOW).remove
    assert recreate(grant(Reason.RECREATE), stopped, Exit(carrying=True), web, NOW).wait.waiting is Waiting.WEIGHT


def test_an_unneeded_recreation_is_called_off_before_the_stop():
    web = workload(WEB)
    assert recreate(grant(), belief(), Exit(), web, NOW).ended == "its secrets are current again"
    assert recreate(grant(Reason.RECREATE), belief(P), Exit(), web, NOW).ended == "recovered before the stop"
    newer = belief(F, started_at=FACT.started_at + 1)
    assert recreate(grant(Reason.RECREATE), newer, Exit(), web, NOW).ended == "a new generation runs"


def test_a_requested_restart_leaves_like_a_planned_exit_and_comes_back():
    web = workload(WEB)
    asked = grant(Reason.REQUESTED, recreate=False)
    assert restart(asked, belief(), Exit(named=True, ttl=5), web, True, NOW).wait.waiting is Waiting.NAMES
    out = asked._replace(names_out=ago(60), weight_out=ago(60), pooled=True, drain=90 * SECOND)
    assert restart(out, belief(), Exit(), web, True, NOW).wait.waiting is Waiting.DRAIN
    assert restart(out._replace(drain=None), belief(), Exit(), web, True, NOW).stop


def test_a_planned_recreation_takes_the_last_weight_only_within_budget():
    single, web = replace(workload(WEB), replicas=1), workload(WEB)
    assert may_empty(grant(), single)
    assert not may_empty(grant(), web)
    assert may_empty(grant(Reason.RECREATE), web)
    assert not may_empty(grant(Reason.SURPLUS, recreate=False), single)
    kept = Exit(named=True, kept=True, ttl=30 * SECOND)
    stale = belief(stale_secrets=STALE)
    assert recreate(grant(), stale, kept, single, NOW).stop
    assert recreate(grant(), stale, kept, web, NOW).hold.rule is Rule.LAST_RECORD


def test_a_runtime_that_keeps_its_restart_policy_delays_a_stop_briefly():
    desired, scene = escalated()
    live = (Live("main", 0, 0, "unless-stopped"),)
    fact = replace(scene.facts[1], live=live)
    scene.change(1, fact)
    scene.pools["web"] = [pool for pool in scene.pools["web"] if pool.name != fact.name]
    for since, stopped in ((15, False), (39, False), (40, True)):
        open_ = Grant("workload/web/1", fact.generation, Reason.RECREATE, ago(60), weight_out=ago(since), recreate=True)
        scene.ledger = replace(scene.ledger, grants={fact.id: open_})
        decision = decide(desired, scene.observed(), NOW)
        assert any(isinstance(step.action, StopContainer) for step in decision.steps) is stopped
        assert stopped or decision.wake_at <= SEEN + (40 - since) * SECOND


def test_a_requested_restart_that_waits_for_a_ttl_does_not_block_healing():
    scene = Scene(WEB)
    scene.sick(1)
    asked = Grant("workload/web/0", FACT.generation, Reason.REQUESTED, ago(5), names_out=ago(5), ttl=3600 * SECOND)
    scene.ledger = replace(scene.ledger, grants={FACT.id: asked})
    grants = decide(shop().desired(), scene.observed(), NOW).ledger.grants.values()
    assert sorted((grant.object, grant.cause) for grant in grants) == [
        ("workload/web/0", Reason.REQUESTED),
        ("workload/web/1", Reason.LIVENESS_FAILED),
    ]
