"""Pools whose balancer refuses writes, takes them at a pace, or takes only some weights: what goes on meanwhile, and what is said."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired
from manifests.values.traffic import Ramp
from providers.actions import SetWeight, StartContainer
from providers.facts import ContainerState, Endpoint, Known, PoolFact, Weights
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.ledger import StepFailure, Suspension
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.model.weight_memory import Ready
from reconciler.core.traffic.shares import grown
from tests.builders import NOW, SEEN, Scene, ago, container, down
from tests.sim.manifest import POOLS, Shop, Spec

WEB = Spec(replicas=2, publish=None)
OTHER = Spec("api", replicas=1, publish=None, pools=("api",))
DESIRED = Shop((WEB,)).desired()


def weight_step(address: str, pool: str = "web") -> str:
    return f"weight {POOLS}/{pool}/{address}:8080"


def refused(scene: Scene, *addresses: str, seconds_ago: int = 1) -> None:
    """The balancer refused to take the weights of these members."""
    failure = StepFailure(4, ago(seconds_ago), True, "nginx refuses the configuration")
    failures = {weight_step(address): failure for address in addresses}
    scene.ledger = replace(scene.ledger, step_failures={**scene.ledger.step_failures, **failures})


def started(decision: Decision) -> set[str]:
    return {step.action.name for step in decision.steps if isinstance(step.action, StartContainer)}


def waiting(decision: Decision) -> set[str]:
    return {wait.object for wait in decision.waits if wait.waiting is Waiting.DEAD_ENDPOINT}


def crashed(*numbers: int, address: str | None = None) -> Scene:
    """Replicas that crashed; their members keep weight. `address`: what the engine says of a stopped container."""
    scene = Scene(WEB)
    for number in numbers:
        fact = scene.facts[number]
        scene.change(number, replace(down(fact), address=fact.address if address is None else address))
    return scene


@pytest.mark.parametrize("address", [None, ""], ids=["an own address", "an address that the engine gives"])
def test_crashed_replicas_start_while_their_weights_cannot_be_written(address: str | None) -> None:
    scene = crashed(0, 1, address=address)
    names, members = {fact.name for fact in scene.facts}, [member.endpoint.address for member in scene.pools["web"]]
    assert not started(decide(DESIRED, scene.observed(), NOW))
    refused(scene, *members)
    assert started(decide(DESIRED, scene.observed(), NOW)) == names


def test_a_crashed_replica_starts_again_while_its_service_is_suspended() -> None:
    scene = crashed(0)
    scene.ledger = replace(scene.ledger, suspensions={"service/web": Suspension("ada", "maintenance", 0)})
    assert started(decide(DESIRED, scene.observed(), NOW)) == {scene.facts[0].name}


def test_a_new_container_waits_for_a_dead_members_address_whatever_fails() -> None:
    scene = crashed(0, address="")
    new = scene.facts[1] = replace(
        scene.facts[1], state=ContainerState.CREATED, address="", ports=(), started_at=0, running_since=0
    )
    scene.pools["web"].pop()
    refused(scene, scene.pools["web"][0].endpoint.address)
    decision = decide(DESIRED, scene.observed(), NOW)
    assert started(decision) == {scene.facts[0].name}
    assert new.name not in started(decision)
    assert waiting(decision)


def test_a_crashed_replica_takes_no_address_that_another_workload_left() -> None:
    scene = Scene(WEB, OTHER)
    for number, fact in enumerate(scene.facts):
        scene.change(number, replace(down(fact), address=""))
    refused(scene, *(member.endpoint.address for member in scene.pools["web"]))
    failure = StepFailure(4, ago(1), True, "refused")
    api = weight_step(scene.pools["api"][0].endpoint.address, "api")
    scene.ledger = replace(scene.ledger, step_failures={**scene.ledger.step_failures, api: failure})
    assert not started(decide(Shop((WEB, OTHER)).desired(), scene.observed(), NOW))


def with_pool(scene: Scene, **fields: object) -> Observed:
    pool = PoolFact("web", tuple(scene.pools["web"]), **fields)  # type: ignore[arg-type]
    return replace(scene.observed(), pools={(POOLS, "web"): Known(pool, POOLS, SEEN)})


def test_a_refused_weight_is_tried_at_once_when_the_cause_may_be_gone() -> None:
    scene = crashed(0)
    address = scene.pools["web"][0].endpoint.address
    refused(scene, address, seconds_ago=2)
    for changed, tries in ((0, False), (NOW.wall - 3 * SECOND, False), (NOW.wall - SECOND, True)):
        decision = decide(DESIRED, with_pool(scene, changed=changed), NOW)
        assert any(step.id == weight_step(address) for step in decision.steps) is tries
        assert any(hold.rule is Rule.STEP_FAILED for hold in decision.holds) is not tries


@pytest.mark.parametrize("pace", [SECOND, 3 * SECOND])
def test_ramps_of_a_paced_pool_step_together_and_at_no_other_instant(pace: int) -> None:
    ramp, starts = Ramp(30 * SECOND, 10), (0, 123_456_789, 777_000_000)
    steps: dict[int, set[int]] = {}
    for start in starts:
        since = Instant(NOW.wall + start, NOW.steady + start, NOW.lineage)
        at, weight, seen = NOW.steady + start, 0, []
        while at < 2**62:
            now = Now(NOW.wall + at - NOW.steady, at, NOW.lineage)
            weight, after = grown(100, ramp, since, now, 0, pace)
            seen.append(weight)
            assert after > at
            just_before = Now(now.wall, min(after, at + 60 * SECOND) - 1, NOW.lineage)
            assert grown(100, ramp, since, just_before, 0, pace)[0] == weight
            if after < 2**62:
                steps.setdefault(after, set()).add(start)
            at = after
        assert (seen[0], seen[-1], sorted(seen)) == (10, 100, seen)
    assert all(at % pace == 0 for at in steps)


def on_off(desired: Desired, scene: Scene) -> Decision:
    pool = with_pool(scene, weights=Weights.ON_OFF, algorithm="backend be with balance static-rr")
    return decide(desired, pool, NOW)


def service(**fields: object) -> Desired:
    (web,) = DESIRED.services
    return replace(DESIRED, services=(replace(web, **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"weight": 50}, "weight 50 becomes 100"),
        ({"weight": 1}, "weight 1 becomes 100"),
        ({"ramp": Ramp(30 * SECOND, 10)}, "its ramp has no effect"),
    ],
)
def test_a_pool_with_fixed_weights_names_what_it_does_not_take(fields: dict[str, object], text: str) -> None:
    decision = on_off(service(**fields), Scene(WEB))
    (hold,) = (hold for hold in decision.holds if hold.rule is Rule.FIXED_WEIGHTS)
    assert (hold.object, hold.until) == ("service/web", None)
    assert text in hold.message
    assert "backend be with balance static-rr" in hold.message
    assert "roundrobin" in hold.next_step
    assert not decision.steps


@pytest.mark.parametrize("weight", [0, 100])
def test_a_pool_with_fixed_weights_takes_0_and_100_without_a_word(weight: int) -> None:
    scene = Scene(WEB)
    decision = on_off(service(weight=weight), scene)
    assert not [hold for hold in decision.holds if hold.rule is Rule.FIXED_WEIGHTS]
    weights = {step.action.weight for step in decision.steps if isinstance(step.action, SetWeight)}
    assert weights == ({0} if weight == 0 else set())


def test_a_member_in_a_pool_that_is_being_loaded_loses_and_counts_nothing() -> None:
    """The pool is Unknown until then: its rows stay, and no weight is asked for."""
    scene = Scene(WEB)
    ready = {fact.id: Ready(fact.started_at, ago(90), False) for fact in scene.facts}
    scene.ledger = replace(scene.ledger, ready=ready)
    before = decide(DESIRED, scene.observed(), NOW).ledger
    scene.ledger = before
    scene.unknown.add(POOLS)
    scene.sick(0, "readiness")
    decision = decide(DESIRED, scene.observed(), NOW)
    assert decision.ledger.weighed == before.weighed
    assert not [step for step in decision.steps if isinstance(step.action, SetWeight)]
    assert Endpoint(container(WEB, 0).address, 8080) in {row.endpoint for row in before.weighed[f"{POOLS}/web"]}
    assert all(not row.reversals for row in decision.ledger.weighed[f"{POOLS}/web"])
    assert Reason.REASSERTED not in {step.cause for step in decision.steps}
