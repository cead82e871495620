"""What a class of the Guard names waits for an operator, for exactly what was approved; all other work goes on."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND, Desired, Guard, MassChange, OnSecretChange
from manifests.values.dns import Publish
from manifests.values.limits import Approve
from manifests.values.rollouts import Strategy
from providers.actions import (
    ChangeRecords,
    CreateContainer,
    RemoveContainer,
    RemoveEndpoint,
    StartContainer,
    StopContainer,
)
from providers.facts import ContainerState, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.forecast import forecast
from reconciler.core.limits.approvals import LASTS
from reconciler.core.model.instant import Now, instant
from reconciler.core.model.ledger import Escalation
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.reasons import Hold, Reason, Rule, Waiting
from tests.builders import NOW, Scene, ago, container, down, gone
from tests.sim.manifest import Shop, Spec, shop

WEB, ONE = Spec(), Spec(replicas=1, strategy=Strategy.RECREATE, max_unavailable=1)
OLD = Spec(name="old", replicas=1, pools=("old",))


def guarded(*classes: Approve) -> Guard:
    return Guard(mass_change=MassChange(100, 50), approve=frozenset(classes))


DELETE, DOWNTIME, PRIVILEGE = guarded(Approve.DELETE), guarded(Approve.DOWNTIME), guarded(Approve.PRIVILEGE)


def waiting(decision: Decision) -> list[Hold]:
    return [hold for hold in decision.holds if hold.rule is Rule.APPROVAL_REQUIRED]


def approve(scene: Scene, decision: Decision, hash_: str = "", now: Now = NOW) -> None:
    """An operator approves what the decision shows, or another hash."""
    command = Command("approve", hash_ or decision.guard_hash, "ada", at=instant(now))
    scene.ledger = from_rows(to_rows(apply_commands(decision.ledger, (command,))))


def kinds(steps: Collection[object]) -> set[type]:
    return {type(getattr(step, "step", step).action) for step in steps}  # type: ignore[attr-defined]


# --- delete -----------------------------------------------------------------------------------------------------------


def pruned(guard: Guard = DELETE) -> tuple[Scene, Shop]:
    scene = Scene(WEB, OLD)
    return scene, Shop((WEB,), prune=True, guard=guard)


def test_what_no_manifest_names_stays_until_it_is_approved() -> None:
    scene, manifest = pruned()
    desired, observed = gone(manifest, scene)
    plan = forecast(desired, observed, NOW)
    assert not kinds(plan.steps) & {StopContainer, RemoveContainer, RemoveEndpoint, ChangeRecords}
    held = decide(desired, observed, NOW)
    assert {hold.object for hold in waiting(held)} == {"workload/old/0", "dnspolicy/old", "pool/old"}
    for hold in waiting(held):
        assert "spec.approve of the Guard names delete" in hold.message
        assert hold.item in hold.message
        assert hold.next_step.endswith(f"reconcile approve --instance-id shop {held.guard_hash}")
        assert hold.until is None
    approve(scene, held)
    done = forecast(desired, scene.observed(), NOW)
    assert kinds(done.steps) >= {StopContainer, RemoveContainer, RemoveEndpoint, ChangeRecords}
    assert not waiting(decide(desired, scene.observed(), NOW))


def test_each_change_can_be_approved_alone() -> None:
    scene, manifest = pruned()
    desired, observed = gone(manifest, scene)
    held = decide(desired, observed, NOW)
    (name,) = [hold for hold in waiting(held) if hold.object == "dnspolicy/old"]
    approve(scene, held, name.item)
    then = decide(desired, scene.observed(), NOW)
    assert {hold.object for hold in waiting(then)} == {"workload/old/0", "pool/old"}
    assert kinds(then.steps) == {ChangeRecords}
    assert then.guard_hash != held.guard_hash


def test_fewer_replicas_are_a_deletion_and_replaced_ones_are_not() -> None:
    scene = Scene(WEB)
    fewer = decide(Shop((replace(WEB, replicas=1),), guard=DELETE).desired(), scene.observed(), NOW)
    assert {hold.object for hold in waiting(fewer)} == {"workload/web/1", "workload/web/2"}
    newer = forecast(Shop((replace(WEB, image="v2"),), guard=DELETE).desired(), Scene(WEB).observed(), NOW)
    assert not [hold for hold in newer.holds if hold.rule is Rule.APPROVAL_REQUIRED]
    assert len([step for step in newer.steps if isinstance(step.step.action, RemoveContainer)]) == 3


def test_destroy_is_an_order_and_waits_for_no_approval() -> None:
    plan = forecast(replace(shop(), guard=DELETE, destroy=True).desired(), Scene(WEB).observed(), NOW)
    assert len([step for step in plan.steps if isinstance(step.step.action, RemoveContainer)]) == 3


def test_an_approval_is_not_for_another_container_at_the_same_place() -> None:
    scene, manifest = pruned()
    desired, observed = gone(manifest, scene)
    approve(scene, decide(desired, observed, NOW))
    index = next(n for n, fact in enumerate(scene.facts) if fact.mark and fact.mark.workload == "old")
    other = replace(scene.facts[index], id="made-again")
    scene.probes[other.generation] = scene.probes[scene.facts[index].generation]
    scene.change(index, other)
    then = decide(desired, scene.observed(), NOW)
    assert [hold.object for hold in waiting(then)] == ["workload/old/0"]


def test_an_approval_does_not_count_under_another_guard() -> None:
    scene, manifest = pruned()
    desired, observed = gone(manifest, scene)
    approve(scene, decide(desired, observed, NOW))
    stricter = replace(desired, guard=guarded(Approve.DELETE, Approve.DOWNTIME))
    assert len(waiting(decide(stricter, scene.observed(), NOW))) == 3


def test_an_approval_ends_after_a_day_and_is_used_once() -> None:
    scene, manifest = pruned()
    desired, observed = gone(manifest, scene)
    held = decide(desired, observed, NOW)
    approve(scene, held)
    late = Now(NOW.wall + LASTS, NOW.steady + LASTS, NOW.lineage)
    fresh = replace(scene.observed(), runtimes={}, pools={}, zones={})
    assert decide(desired, fresh, late).ledger.approvals == {}
    granted = decide(desired, scene.observed(), NOW)
    assert not waiting(granted)
    # Everything is gone; then exactly the same objects are there again.
    facts, records, owners, old = scene.facts, scene.records, scene.owners, scene.pools["old"]
    scene.facts = [fact for fact in facts if fact.mark and fact.mark.workload == "web"]
    scene.records = {key: value for key, value in records.items() if key.name.startswith("web")}
    scene.owners = {key: value for key, value in owners.items() if key.name.startswith("web")}
    scene.pools["old"] = []
    scene.ledger = granted.ledger
    scene.ledger = decide(desired, scene.observed(), NOW).ledger
    assert not scene.ledger.approvals
    scene.facts, scene.records, scene.owners, scene.pools["old"] = facts, records, owners, old
    scene.ledger = replace(scene.ledger, absences=held.ledger.absences, grants={})
    assert len(waiting(decide(desired, scene.observed(), NOW))) == 3


def test_an_approval_is_kept_while_something_cannot_be_read() -> None:
    scene, manifest = pruned()
    desired, observed = gone(manifest, scene)
    approve(scene, decide(desired, observed, NOW))
    scene.unknown.add("names")
    scene.ledger = decide(desired, scene.observed(), NOW).ledger
    scene.unknown.clear()
    assert not waiting(decide(desired, scene.observed(), NOW))


# --- downtime ---------------------------------------------------------------------------------------------------------


def test_the_only_replica_waits_with_a_new_template_for_an_approval() -> None:
    scene = Scene(ONE)
    desired = Shop((replace(ONE, image="v2"),), guard=DOWNTIME).desired()
    plan = forecast(desired, scene.observed(), NOW)
    assert kinds(plan.steps) == {CreateContainer}
    (hold,) = [hold for hold in plan.holds if hold.rule is Rule.APPROVAL_REQUIRED]
    assert "no other replica of workload/web is available" in hold.message
    approve(scene, decide(desired, scene.observed(), NOW), plan.guard_hash)
    assert StopContainer in kinds(forecast(desired, scene.observed(), NOW).steps)
    other = Shop((replace(ONE, image="v3"),), guard=DOWNTIME).desired()
    assert StopContainer not in kinds(forecast(other, scene.observed(), NOW).steps)


def test_a_rolling_replica_is_replaced_without_an_approval() -> None:
    one = Spec(replicas=1)
    plan = forecast(Shop((replace(one, image="v2"),), guard=DOWNTIME).desired(), Scene(one).observed(), NOW)
    assert not [hold for hold in plan.holds if hold.rule is Rule.APPROVAL_REQUIRED]
    assert RemoveContainer in kinds(plan.steps)


def test_replicas_that_may_all_go_at_once_go_one_after_the_other() -> None:
    both = Spec(replicas=2, strategy=Strategy.RECREATE, max_unavailable=2, publish=None)
    desired = Shop((replace(both, image="v2"),), guard=DOWNTIME).desired()
    scene = Scene(both)
    for ordinal in range(2):
        new = container(replace(both, image="v2"), ordinal, state=ContainerState.CREATED, started_at=0)
        scene.facts.append(new)
    first = decide(desired, scene.observed(), NOW)
    assert len(first.ledger.grants) == 1
    assert [wait.object for wait in first.waits if "another replica" in wait.message]
    assert not waiting(first)
    plan = forecast(desired, Scene(both).observed(), NOW)
    assert not [hold for hold in plan.holds if hold.rule is Rule.APPROVAL_REQUIRED]
    order = [type(step.step.action) for step in plan.steps]
    assert order.count(RemoveContainer) == 2
    stops = [index for index, kind in enumerate(order) if kind is StopContainer]
    assert StartContainer in order[stops[0] : stops[1]]


def test_no_replicas_at_all_are_a_downtime() -> None:
    none = decide(Shop((replace(WEB, replicas=0),), guard=DOWNTIME).desired(), Scene(WEB).observed(), NOW)
    assert len(waiting(none)) == 3
    assert not none.ledger.grants


def test_a_new_secret_waits_for_an_approval_too() -> None:
    scene = Scene(ONE)
    scene.change(0, replace(scene.facts[0], stale_secrets=("TOKEN",)))
    desired = Shop((ONE,), guard=DOWNTIME).desired()
    (web,) = desired.workloads
    desired = replace(desired, workloads=(replace(web, on_secret_change=OnSecretChange.RESTART),))
    held = decide(desired, scene.observed(), NOW)
    assert [hold.object for hold in waiting(held)] == ["workload/web/0"]
    approve(scene, held)
    assert decide(desired, scene.observed(), NOW).ledger.grants


@pytest.mark.parametrize("probe", ["liveness", "readiness"])
def test_restarts_for_health_never_wait_for_an_approval(probe: str) -> None:
    everything = guarded(*Approve)
    plans = []
    for guard in (Guard(mass_change=MassChange(100, 50)), everything):
        scene = Scene(ONE)
        scene.sick(0, probe)
        plans.append(forecast(Shop((ONE,), guard=guard).desired(), scene.observed(), NOW))
    assert [step.step for step in plans[0].steps] == [step.step for step in plans[1].steps]
    assert not [hold for hold in plans[1].holds if hold.rule is Rule.APPROVAL_REQUIRED]


def test_a_replica_that_cannot_serve_is_no_downtime() -> None:
    desired = Shop((replace(ONE, image="v2"),), guard=DOWNTIME).desired()
    for state in ("sick", "down"):
        scene = Scene(ONE)
        if state == "sick":
            scene.sick(0)
        else:
            scene.change(0, down(scene.facts[0]))
        assert Rule.APPROVAL_REQUIRED not in {hold.rule for hold in forecast(desired, scene.observed(), NOW).holds}


def test_a_moment_without_readiness_lets_no_unapproved_change_through() -> None:
    scene = Scene(ONE)
    scene.sick(0, "readiness")
    desired = Shop((replace(ONE, image="v2"),), guard=DOWNTIME).desired()
    plan = forecast(desired, scene.observed(), NOW)
    assert Rule.APPROVAL_REQUIRED in {hold.rule for hold in plan.holds}
    assert StopContainer not in kinds(plan.steps)


def test_an_unknown_replica_counts_as_one_that_serves() -> None:
    scene = Scene(ONE)
    generation = scene.facts[0].generation
    unknown = scene.probes[generation].readiness._replace(value=ProbeValue.UNKNOWN, last=ProbeValue.UNKNOWN)  # type: ignore[union-attr]
    scene.probes[generation] = scene.probes[generation]._replace(readiness=unknown)
    desired = Shop((replace(ONE, image="v2", publish=None, pools=()),), guard=DOWNTIME).desired()
    assert StopContainer not in kinds(forecast(desired, scene.observed(), NOW).steps)


# --- privilege --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Privileged:
    """Manifests whose workloads have capabilities."""

    shop: Shop
    capabilities: tuple[str, ...] = ("NET_ADMIN",)

    @property
    def specs(self) -> tuple[Spec, ...]:
        return self.shop.specs

    @property
    def destroy(self) -> bool:
        return self.shop.destroy

    def desired(self) -> Desired:
        desired = self.shop.desired()
        workloads = []
        for item in desired.workloads:
            main = item.template.container
            main = replace(main, engine=replace(main.engine, cap_add=self.capabilities))
            workloads.append(replace(item, template=replace(item.template, container=main)))
        return replace(desired, workloads=tuple(workloads), revision=desired.revision[::-1])


def test_a_gain_of_a_privilege_waits_and_the_old_replicas_stay() -> None:
    scene = Scene(WEB)
    plain = Shop((WEB,), guard=PRIVILEGE).desired()
    scene.ledger = decide(plain, scene.observed(), NOW).ledger
    desired = Privileged(Shop((replace(WEB, image="v2"),), guard=PRIVILEGE)).desired()
    plan = forecast(desired, scene.observed(), NOW)
    assert not plan.steps
    held = decide(desired, scene.observed(), NOW)
    (hold,) = waiting(held)
    assert "main: capability NET_ADMIN" in hold.message
    assert "names privilege" in hold.message
    more = Privileged(Shop((replace(WEB, image="v3"),), guard=PRIVILEGE), ("NET_ADMIN", "SYS_ADMIN")).desired()
    approve(scene, held)
    assert not forecast(more, scene.observed(), NOW).steps
    done = forecast(desired, scene.observed(), NOW)
    assert len([step for step in done.steps if isinstance(step.step.action, CreateContainer)]) == 3


def test_a_new_workload_with_a_privilege_waits_and_one_without_does_not() -> None:
    scene = Scene()
    scene.pools["web"] = []
    assert CreateContainer not in kinds(
        forecast(Privileged(Shop((WEB,), guard=PRIVILEGE)).desired(), scene.observed(), NOW).steps
    )
    assert CreateContainer in kinds(forecast(Shop((WEB,), guard=PRIVILEGE).desired(), scene.observed(), NOW).steps)


def test_what_ran_with_a_privilege_is_created_again_after_it_was_lost(world) -> None:
    here = world(Privileged(Shop((replace(WEB, publish=Publish.ENDPOINTS),), guard=PRIVILEGE)))
    here.run(30 * SECOND)
    assert not here.running()
    (hold,) = {hold.next_step for hold in waiting(here.tape.last)}
    here.memory.say("approve", hold.rpartition(" ")[2], at=instant(here.clock.now()))
    here.run(60 * SECOND)
    assert len(here.running()) == 3
    here.run(60 * SECOND)
    assert not here.memory.ledger().approvals
    here.outside.nodes["node-a"].clear()
    here.run(120 * SECOND)
    assert len(here.running()) == 3
    assert not waiting(here.tape.last)


def test_a_privilege_that_was_given_up_must_be_approved_again() -> None:
    scene = Scene(WEB)
    having = Privileged(Shop((WEB,), guard=PRIVILEGE)).desired()
    scene.ledger = decide(having, scene.observed(), NOW).ledger
    scene.facts.clear()
    assert CreateContainer in kinds(decide(having, scene.observed(), NOW).steps)
    plain = Shop((replace(WEB, image="v2"),), guard=PRIVILEGE).desired()
    newer = Scene(replace(WEB, image="v2"))
    newer.ledger = replace(newer.ledger, privileges=scene.ledger.privileges)
    newer.ledger = decide(plain, newer.observed(), NOW).ledger
    again = decide(having, newer.observed(), NOW)
    assert [hold.object for hold in waiting(again)] == ["workload/web"]


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_plan_that_approves_lists_what_it_approves_and_goes_on() -> None:
    scene, manifest = pruned(guarded(Approve.DELETE))
    desired, observed = gone(manifest, scene)
    plan = forecast(desired, observed, NOW, approving=True)
    assert {change.object for change in plan.approves} == {"workload/old/0", "dnspolicy/old", "pool/old"}
    assert kinds(plan.steps) >= {StopContainer, RemoveContainer, RemoveEndpoint, ChangeRecords}
    plain = forecast(replace(desired, guard=guarded()), observed, NOW)
    assert [step.step for step in plain.steps] == [step.step for step in plan.steps]
    assert plain.outcome == plan.outcome


def test_a_mass_change_is_not_approved_by_a_plan() -> None:
    scene, manifest = pruned(Guard(mass_change=MassChange(1, 0), approve=frozenset({Approve.DELETE})))
    desired, observed = gone(manifest, scene)
    plan = forecast(desired, observed, NOW, approving=True)
    assert not kinds(plan.steps) & {StopContainer, RemoveContainer, RemoveEndpoint, ChangeRecords}
    assert Rule.MASS_CHANGE in {hold.rule for hold in plan.holds}


def test_a_run_with_a_plan_holds_what_the_plan_does_not_remove() -> None:
    scene = Scene(WEB)
    desired = replace(Shop((replace(WEB, replicas=1),)).desired(), planned=frozenset())
    decision = decide(desired, scene.observed(), NOW)
    assert {hold.object for hold in decision.holds if hold.rule is Rule.NOT_IN_PLAN} == {
        "workload/web/1",
        "workload/web/2",
    }
    assert not decision.ledger.grants
    plan = forecast(replace(desired, planned=None), scene.observed(), NOW)
    allowed = replace(desired, planned=frozenset(change.item for change in plan.outcome))
    assert len(forecast(allowed, scene.observed(), NOW).steps) == len(plan.steps)


@pytest.mark.parametrize("change", [{"image": "v2"}, {"replicas": 1}, {}])
@pytest.mark.parametrize("noise", ["sick", "unready", "down", "again"])
def test_health_does_not_make_a_plan_another_one(change: dict[str, object], noise: str) -> None:
    desired = Shop((replace(WEB, **change),)).desired()  # type: ignore[arg-type]
    plain = forecast(desired, Scene(WEB).observed(), NOW).outcome
    scene = Scene(WEB)
    if noise == "down":
        scene.change(0, down(scene.facts[0]))
    else:
        scene.sick(0, "readiness" if noise == "unready" else "liveness")
    if noise == "again":
        row = Escalation(3, WEB.revision, ago(400))
        scene.ledger = replace(scene.ledger, escalations={"workload/web/0": row})
    plan = forecast(desired, scene.observed(), NOW)
    if noise == "unready" and change == {"replicas": 1}:
        # The only replica that stays is not available: the budget delays the removals.
        assert set(plan.outcome) < set(plain)
        assert Rule.BUDGET in {hold.rule for hold in plan.holds}
    else:
        assert plan.outcome == plain
    if noise == "again" and not change:
        assert RemoveContainer in kinds(plan.steps)


def test_a_run_with_a_plan_restarts_for_health_as_always() -> None:
    scene = Scene(WEB)
    scene.sick(1)
    desired = replace(shop().desired(), planned=frozenset())
    plan = forecast(desired, scene.observed(), NOW)
    assert [step.step for step in plan.steps if step.step.cause is Reason.LIVENESS_FAILED]
    assert not [wait for wait in plan.waits if wait.waiting is Waiting.CALL]
    assert not plan.outcome
