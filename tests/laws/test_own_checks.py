"""Behind a balancer with checks of its own, which believes in a replica only some seconds after it answers: clients are served."""

from dataclasses import replace

import pytest

from manifests.desired import SECOND
from manifests.rollouts import Strategy
from reconciler.core.instant import instant
from reconciler.core.request import Request
from sim.manifest import Shop, Spec
from sim.own_checks import OwnChecks
from sim.world import World


def checked(worlds, spec: Spec, slow: int, trusting: bool = True) -> tuple[World, list[list[str]]]:
    """A world at rest whose balancer checks by itself, and from then on who serves clients at every write and event."""
    world = worlds(Shop((spec,), look_pools=SECOND))
    world.own_checks = OwnChecks(world.outside, world.apps, trusting)
    world.apps.start_delay = slow
    world.checks.append(lambda _: world.own_checks.meet())
    world.run(120 * SECOND)
    seen: list[list[str]] = []

    def look(_=None) -> None:
        seen.append(world.own_checks.serving("web", world.clock.now().steady))

    look()
    assert len(seen[0]) == spec.replicas
    happen = world.happen

    def happen_and_look() -> None:
        happen()
        look()

    world.happen = happen_and_look
    world.restart()  # the clock of a new life calls what happens now
    world.checks.append(look)
    return world, seen


@pytest.mark.parametrize("slow", [2 * SECOND, 20 * SECOND], ids=["2s", "20s"])
@pytest.mark.parametrize("trusting", [True, False], ids=["up at first", "down at first"])
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RECREATE, Strategy.ACTIVATE])
def test_a_rollout_takes_no_more_from_clients_than_its_budget(worlds, strategy, replicas, trusting, slow):
    spec = Spec(replicas=replicas, strategy=strategy, publish=None, startup=True)
    world, seen = checked(worlds, spec, slow, trusting)
    world.push(Shop((replace(spec, image="v2"),), look_pools=SECOND))
    world.run(600 * SECOND)
    assert {one.mark.revision for one in world.containers().values() if one.up} == {Spec(image="v2").revision}
    assert len(seen[-1]) == replicas
    assert min(len(one) for one in seen) >= replicas - 1


@pytest.mark.parametrize("slow", [2 * SECOND, 9 * SECOND, 20 * SECOND], ids=["2s", "9s", "20s"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_restart_that_a_person_asks_for_takes_no_more_from_clients_than_its_budget(worlds, replicas, slow):
    world, seen = checked(worlds, Spec(replicas=replicas, publish=None, startup=True), slow)
    world.memory.request("r1", Request("workload/web", instant(world.clock.now()), "ada", "new certificates"))
    world.run(600 * SECOND)
    assert world.memory.ledger().requests["r1"].succeeded
    assert len(seen[-1]) == replicas
    assert min(len(one) for one in seen) >= replicas - 1
