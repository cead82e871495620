"""Behind a balancer with checks of its own, which accepts a replica only some seconds after it answers, clients are still served."""

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
    """A converged world whose balancer has checks, and the replicas that serve clients at every write and event from then on."""
    world = worlds(Shop((spec,), look_pools=SECOND))
    world.own_checks = OwnChecks(world.outside, world.apps, trusting, lag)
    world.apps.start_delay = slow
    world.checks.append(lambda _: world.own_checks.meet())
    world.run(60 * SECOND)
    serving: list[list[str]] = []

    def record(_=None) -> None:
        serving.append(world.own_checks.serving("web", world.clock.now().steady))

    record()
    assert len(serving[0]) == spec.replicas
    happen = world.happen

    def happen_and_record() -> None:
        happen()
        record()

    world.happen = happen_and_record
    world.restart()  # the clock of a new process calls the new `happen`
    world.checks.append(record)
    return world, serving


def until(world: World, done: Callable[[], bool]) -> None:
    for _ in range(60):
        world.run(10 * SECOND)
        if done():
            return
    raise AssertionError("not reached within 600 s")


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RECREATE, Strategy.ACTIVATE])
@pytest.mark.parametrize(("trusting", "lag"), [(False, 0), (True, 0), (True, 7 * SECOND)])
def test_a_rollout_keeps_its_budget_of_serving_replicas(worlds, strategy, replicas, trusting, lag):
    """A balancer sends a new member no traffic until it has passed a few checks, or only until its first check fails."""
    spec = Spec(replicas=replicas, strategy=strategy, publish=None, startup=True, drain=2 * SECOND)
    world, serving = checked(worlds, spec, 5 * SECOND, trusting, lag)
    after = replace(spec, image="v2")
    world.push(Shop((after,), look_pools=SECOND))
    until(
        world,
        lambda: (
            {container.mark.revision for container in world.containers().values() if container.up} == {after.revision}
        ),
    )
    until(world, lambda: len(serving[-1]) == replicas)
    assert min(len(names) for names in serving) >= replicas - 1


@pytest.mark.parametrize("lag", [0, 7 * SECOND])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_restart_request_keeps_its_budget_of_serving_replicas(worlds, replicas, lag):
    """These replicas start so slowly that the balancer reports them as down."""
    spec = Spec(replicas=replicas, publish=None, startup=True, drain=2 * SECOND)
    world, serving = checked(worlds, spec, 12 * SECOND, lag=lag)
    world.memory.request("r1", Request("workload/web", instant(world.clock.now()), "ada", "new certificates"))
    until(world, lambda: world.memory.ledger().requests["r1"].succeeded)
    until(world, lambda: len(serving[-1]) == replicas)
    assert min(len(names) for names in serving) >= replicas - 1
