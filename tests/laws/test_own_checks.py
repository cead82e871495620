"""Behind a balancer with checks of its own, which believes in a replica only some seconds after it answers: clients are served."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Strategy
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from tests.sim.manifest import Shop, Spec
from tests.sim.own_checks import OwnChecks
from tests.sim.world import World


def checked(worlds, spec: Spec, slow: int, trusting: bool = True, lag: int = 0) -> tuple[World, list[list[str]]]:
    """A world at rest whose balancer checks by itself, and from then on who serves clients at every write and event."""
    world = worlds(Shop((spec,), look_pools=SECOND))
    world.own_checks = OwnChecks(world.outside, world.apps, trusting, lag)
    world.apps.start_delay = slow
    world.checks.append(lambda _: world.own_checks.meet())
    world.run(60 * SECOND)
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


def until(world: World, done: Callable[[], bool]) -> None:
    for _ in range(60):
        world.run(10 * SECOND)
        if done():
            return
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RECREATE, Strategy.ACTIVATE])
@pytest.mark.parametrize(("trusting", "lag"), [(False, 0), (True, 0), (True, 7 * SECOND)])
def test_a_rollout_keeps_its_budget_of_serving_replicas(worlds, strategy, replicas, trusting, lag):
    """A balancer gives a new member nothing until it has passed a few checks, or until the first one has failed."""
    spec = Spec(replicas=replicas, strategy=strategy, publish=None, startup=True, drain=2 * SECOND)
    world, seen = checked(worlds, spec, 5 * SECOND, trusting, lag)
    after = replace(spec, image="v2")
    world.push(Shop((after,), look_pools=SECOND))
    until(
        world,
        lambda: (
            {container.mark.revision for container in world.containers().values() if container.up} == {after.revision}
        ),
    )
    until(world, lambda: len(seen[-1]) == replicas)
    assert min(len(one) for one in seen) >= replicas - 1


@pytest.mark.parametrize("lag", [0, 7 * SECOND])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_restart_request_keeps_its_budget_of_serving_replicas(worlds, replicas, lag):
    """These replicas need so long to start that the balancer calls them down."""
    spec = Spec(replicas=replicas, publish=None, startup=True, drain=2 * SECOND)
    world, seen = checked(worlds, spec, 12 * SECOND, lag=lag)
    world.memory.request("r1", Request("workload/web", instant(world.clock.now()), "ada", "new certificates"))
    until(world, lambda: world.memory.ledger().requests["r1"].succeeded)
    until(world, lambda: len(seen[-1]) == replicas)
    assert min(len(one) for one in seen) >= replicas - 1
