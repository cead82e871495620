"""Members of ours that no service reaches where they are: what keeps them, and when they go."""

from dataclasses import replace

import pytest

from manifests.values.desired import Backend, Desired, Service
from providers.actions import RemoveEndpoint, SetWeight
from providers.facts import Endpoint, MemberFact
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.ledger import Absence
from reconciler.core.model.reasons import Rule, Waiting
from tests.builders import NOW, Scene, ago
from tests.sim.manifest import Shop, Spec

WEB, API = Spec(publish=None, replicas=2), Spec("api", publish=None, pools=(), replicas=2)
PRUNING = Shop((WEB, API), prune=True)


def selecting(workload: str, pool: str = "web") -> Desired:
    """The shop whose only service selects one workload, with pruning."""
    desired = PRUNING.desired()
    service: Service = desired.services[-1]
    (balancer,) = service.balancers
    service = replace(
        service, backends=(Backend(f"workload/{workload}", 8080),), balancers=(replace(balancer, pool=pool),)
    )
    return replace(
        desired, services=(service,), services_of={f"workload/{workload}": ((service.key, 8080),)}, prune=True
    )


def proven(world: Scene, desired: Desired) -> None:
    """Let the ledger know for two minutes that the manifests lack these members."""
    absences = {key: Absence(ago(120), desired.revision) for key in ("service/web", "pool/web")}
    world.ledger = replace(world.ledger, absences=absences)


def taken(decision: Decision) -> set[Endpoint]:
    return {
        step.action.endpoint
        for step in decision.steps
        if isinstance(step.action, RemoveEndpoint) or (isinstance(step.action, SetWeight) and not step.action.weight)
    }


@pytest.mark.parametrize("serves", [False, True])
def test_pruning_keeps_the_members_of_before_until_others_serve(serves):
    world, desired = Scene(WEB, API), selecting("api")
    proven(world, desired)
    old = {member.endpoint for member in world.pools["web"]}
    world.pools["web"] += [
        MemberFact(Endpoint(fact.address, 8080), 100 if serves else 0, True, fact.name) for fact in world.facts[2:]
    ]
    decision = decide(desired, world.observed(), NOW)
    assert taken(decision) == (old if serves else set())
    last = [hold for hold in decision.holds if hold.rule is Rule.LAST_MEMBER]
    assert bool(last) is not serves


@pytest.mark.parametrize("weight", [0, 100])
def test_a_pool_that_no_service_names_is_left_only_for_another_pool(weight):
    world, desired = Scene(WEB, API), selecting("web", pool="web2")
    proven(world, desired)
    old = {member.endpoint for member in world.pools["web"]}
    world.pools["web2"] = [member._replace(weight=weight) for member in world.pools["web"]]
    decision = decide(desired, world.observed(), NOW)
    assert taken(decision) == (old if weight else set())
    assert (Waiting.RAISED in {wait.waiting for wait in decision.waits}) is (weight == 0)
