"""What the policy forbids after it came into force is kept as it runs, and no container of it is created."""

from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND, Desired, OnSecretChange
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.facts import ContainerState
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.limits import pod_policy
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.model.want import Kind, Want
from tests.builders import NOW, Scene, ago, container, down
from tests.laws.helpers import QUICK
from tests.sim.manifest import Shop, Spec, shop

WHY = "container 'main': podSecurity: baseline does not allow: privileged"
WEB = Spec()


@dataclass(frozen=True)
class Forbidden:
    """Manifests that were in force before the policy."""

    shop: Shop

    @property
    def specs(self) -> tuple[Spec, ...]:
        return self.shop.specs

    @property
    def destroy(self) -> bool:
        return self.shop.destroy

    def desired(self) -> Desired:
        desired = self.shop.desired()
        marked = tuple(replace(item, forbidden=WHY) for item in desired.workloads)
        return replace(desired, workloads=marked, revision=desired.revision[::-1])


def test_nothing_is_stopped_and_a_lost_replica_is_not_created():
    scene = Scene(WEB)
    desired = Forbidden(shop()).desired()
    assert decide(desired, scene.observed(), NOW).steps == ()
    del scene.facts[1]
    plan = forecast(desired, scene.observed(), NOW)
    assert not [
        step for step in plan.steps if isinstance(step.step.action, CreateContainer | StopContainer | RemoveContainer)
    ]
    (hold,) = [hold for hold in plan.holds if hold.rule is Rule.POLICY_VIOLATION]
    assert hold.object == "workload/web/1"
    assert WHY in hold.message
    assert "running containers are kept" in hold.message
    assert "spec.policy of the Guard" in hold.next_step


def test_a_crashed_container_is_started_again():
    scene = Scene(WEB)
    scene.change(1, down(scene.facts[1]))
    plan = forecast(Forbidden(shop()).desired(), scene.observed(), NOW)
    assert [step.step.object for step in plan.steps if isinstance(step.step.action, StartContainer)] == [
        "workload/web/1"
    ]
    assert not [hold for hold in plan.holds if hold.rule is Rule.POLICY_VIOLATION]


def test_a_sick_container_is_restarted_as_always():
    scene = Scene(WEB)
    scene.sick(1)
    steps = [
        [(step.step.object, type(step.step.action)) for step in forecast(desired, scene.observed(), NOW).steps]
        for desired in (shop().desired(), Forbidden(shop()).desired())
    ]
    assert steps[0] == steps[1]
    assert ("workload/web/1", StopContainer) in steps[0]


def test_a_recreation_is_held_before_the_old_container_stops():
    scene = Scene(WEB)
    scene.change(1, replace(scene.facts[1], stale_secrets=("TOKEN",)))
    for allowed in (True, False):
        desired = (shop() if allowed else Forbidden(shop())).desired()
        (web,) = desired.workloads
        desired = replace(desired, workloads=(replace(web, on_secret_change=OnSecretChange.RESTART),))
        plan = forecast(desired, scene.observed(), NOW)
        stops = [step.step.object for step in plan.steps if isinstance(step.step.action, StopContainer)]
        assert stops == (["workload/web/1"] if allowed else [])
        rules = {hold.rule for hold in plan.holds}
        assert (Rule.POLICY_VIOLATION in rules) == (not allowed)


def test_a_replica_that_stays_sick_is_restarted_and_never_removed(world):
    manifest = shop(replicas=3, backoff=QUICK, limit=100)
    here = world(manifest)
    before = {name: fact.id for name, fact in here.containers().items()}
    here.push(Forbidden(manifest))
    here.apps.cursed.add(sorted(before)[1])
    here.run(15 * 60 * SECOND)
    assert {name: fact.id for name, fact in here.containers().items()} == before
    causes = [step.cause for step in here.tape.steps if isinstance(step.action, StopContainer)]
    assert causes == [Reason.LIVENESS_FAILED] * 7
    assert {hold.rule for hold in here.tape.last.holds} == {Rule.FAILED}


@pytest.mark.parametrize("image", ["v1", "v2"])
def test_a_world_keeps_what_runs_whatever_is_lost(world, image):
    here = world(shop())
    before = {name: fact.id for name, fact in here.containers().items()}
    here.push(Forbidden(shop(image=image)))  # also in the middle of a change
    here.run(60 * SECOND)
    assert {name: fact.id for name, fact in here.containers().items()} == before
    lost = sorted(before)[1]
    here.runtime.vanish(lost)
    here.run(600 * SECOND)
    assert {name: fact.id for name, fact in here.containers().items()} == {
        name: container for name, container in before.items() if name != lost
    }
    assert all(fact.state is ContainerState.RUNNING for fact in here.containers().values())
    assert Rule.POLICY_VIOLATION in {hold.rule for hold in here.tape.last.holds}
    here.push(shop(image=image))
    here.run(600 * SECOND)
    assert len(here.running()) == 3
    assert not here.tape.last.holds


@pytest.mark.parametrize(
    ("kind", "given_up", "held"), [(Kind.CREATE, False, True), (Kind.CREATE, True, False), (Kind.RECREATE, True, True)]
)
def test_a_replica_that_was_given_up_before_gets_its_container(kind, given_up, held):
    (web,) = Forbidden(shop()).desired().workloads
    fact = container(WEB, 1)
    want = Want(f"{kind.value} x", "workload/web/1", kind, Reason.MISSING, "", fact.name, fact.node, 1, web)
    grant = Grant(
        "workload/web/1" if given_up else "workload/web/0", fact.generation, Reason.RECREATE, ago(5), recreate=True
    )
    desired = shop().desired()
    assert (pod_policy.hold(want, web, desired, [grant]) is not None) == held
    assert pod_policy.hold(want._replace(workload=replace(web, forbidden="")), web, desired, []) is None
