"""Laws of healing with long times, foreign interference, or several causes at once."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Strategy
from providers.facts import ContainerState, ProbeValue
from providers.testing.faults import Fault
from reconciler.core.model.instant import instant
from reconciler.core.model.reasons import Rule
from reconciler.core.model.restart_request import Fate, Request
from tests.laws.helpers import LOOSE, MINUTE, QUICK, WEB, ready, stops, watch_down
from tests.sim.manifest import NODE, Shop, Spec, shop


def test_a_drain_longer_than_a_usual_restart_is_not_cut_off(worlds):
    world = ready(worlds(shop(replicas=2, drain=15 * MINUTE)))
    world.apps.sick.add(world.generation(WEB.format(1)))
    world.run(20 * MINUTE)
    assert stops(world) == [WEB.format(1)]
    assert set(world.weights().values()) == {100}
    assert len(world.memory.ledger().attempts["workload/web/1"] if world.memory.ledger().attempts else ()) <= 1
    assert not world.memory.ledger().escalations


def test_a_replica_counts_against_the_budget_until_min_ready(worlds):
    world = worlds(shop(replicas=6, min_ready=6 * MINUTE))
    world.run(12 * MINUTE)
    world.apps.sick.add(world.generation(WEB.format(0)))
    world.run(2 * MINUTE)
    assert stops(world) == [WEB.format(0)]
    world.apps.sick.add(world.generation(WEB.format(1)))
    world.run(3 * MINUTE)
    assert stops(world) == [WEB.format(0)]
    assert Rule.RESTART_IN_PROGRESS in {hold.rule for hold in world.tape.last.holds}
    world.run(12 * MINUTE)
    assert stops(world) == [WEB.format(0), WEB.format(1)]
    assert not world.memory.ledger().grants


def test_a_canary_is_judged_only_after_min_ready(worlds):
    world = worlds(Shop((Spec(replicas=4, min_ready=6 * MINUTE, backoff=QUICK),), guard=LOOSE))
    world.run(12 * MINUTE)
    for ordinal in range(4):
        world.apps.sick.add(world.generation(WEB.format(ordinal)))
    world.run(5 * MINUTE)
    assert len(stops(world)) == 1
    world.run(24 * MINUTE)
    assert sorted(stops(world)) == [WEB.format(ordinal) for ordinal in range(4)]
    assert not world.tape.last.holds


def test_a_replica_paused_during_its_restart_is_left_alone(worlds):
    world = ready(worlds(shop(replicas=2, drain=60 * SECOND)))
    name = WEB.format(1)
    world.apps.sick.add(world.generation(name))
    while not world.memory.ledger().grants:
        world.run(SECOND)
    world.run(10 * SECOND)
    world.runtime.pause(name)
    world.run(10 * MINUTE)
    assert not stops(world)
    assert world.containers()[name].state is ContainerState.PAUSED
    world.runtime.unpause(name)
    world.run(5 * MINUTE)
    assert stops(world) == [name]
    assert set(world.weights().values()) == {100}


@pytest.mark.parametrize("budget", [1, 2])
@pytest.mark.parametrize(
    "outside", [{}, {"publish": None}, {"publish": None, "pools": ()}], ids=["all", "pool", "none"]
)
def test_a_request_keeps_the_budget_while_all_fail_readiness(worlds, budget, outside):
    world = ready(worlds(shop(replicas=5, max_unavailable=budget, ttl=1, drain=2 * SECOND, **outside)))
    world.apps.lies["*", "readiness"] = ProbeValue.FAIL
    world.run(2 * MINUTE)
    down = watch_down(world)
    world.memory.request("r1", Request("workload/web", instant(world.clock.now()), "ada", "try it"))
    world.run(3 * MINUTE)
    assert max(down) <= budget
    world.apps.lies.clear()
    world.run(15 * MINUTE)
    assert len(world.running()) == 5
    assert set(world.weights().values()) <= {100}
    assert {member.fate for member in world.memory.ledger().requests["r1"].members} <= {Fate.DONE, Fate.EXPIRED}


def test_a_request_keeps_the_budget_while_all_fail_liveness(worlds):
    spec = Spec(replicas=5, max_unavailable=2, ttl=1, drain=2 * SECOND, publish=None, pools=())
    world = ready(worlds(Shop((spec,), guard=replace(LOOSE))))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(2 * MINUTE)
    down = watch_down(world)
    world.memory.request("r1", Request("workload/web", instant(world.clock.now()), "ada", "try it"))
    world.run(10 * MINUTE)
    assert max(down) <= 2


def test_recreate_stops_a_replica_only_after_its_replacement_exists(worlds):
    class Recreating(Shop):
        """The usual shop, where both revisions need the same port of the host."""

        def desired(self):
            made = Shop.desired(self)
            return replace(
                made, workloads=tuple(replace(workload, strategy=Strategy.RECREATE) for workload in made.workloads)
            )

    world = ready(worlds(Recreating((Spec(replicas=2),))))
    before = world.running()
    world.fail_next(NODE, *[Fault.REJECTED] * 12)
    world.push(Recreating((Spec(replicas=2, image="v2"),)))
    world.run(2 * MINUTE)
    assert world.running() == before
    assert set(world.weights().values()) == {100}
    assert {hold.rule for hold in world.tape.last.holds} == {Rule.STEP_FAILED}
    world.run(20 * MINUTE)
    revision = Spec(image="v2").revision[:8]
    assert world.running() == [f"shop-web-{revision}-{n}" for n in range(2)]
    assert not world.tape.last.holds
    # Back again while the replacements are created but not started: they are removed, and all serving replicas stay.
    world.push(Recreating((Spec(replicas=2, image="v3"),)))
    while len(world.containers()) < 4:
        world.run(SECOND)
    world.push(Recreating((Spec(replicas=2, image="v2"),)))
    world.run(20 * MINUTE)
    assert sorted(world.containers()) == world.running() == [f"shop-web-{revision}-{n}" for n in range(2)]
