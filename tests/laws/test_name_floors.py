"""Over whole runs: planned disruptions leave `replicas - maxUnavailable` addresses in the name, and at least one.

The zone refuses writes and loses their replies meanwhile, so that replicas are ready long before they are published again.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Rollout, Strategy
from providers.testing.faults import Fault
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from tests.laws.helpers import ready
from tests.sim.manifest import NAMES, Spec, shop
from tests.sim.world import World

TROUBLE = [Fault.UNREACHABLE, Fault.NONE, Fault.REJECTED, Fault.LOST_REPLY, Fault.NONE, Fault.UNREACHABLE] * 3


def request(world: World, spec: Spec, *, ordered: bool = False) -> None:
    world.memory.request(
        "r1", Request(spec.key, instant(world.clock.now()), "ada", "new keys", ordered=ordered, deadline=1500 * SECOND)
    )


def change(**fields: object) -> Callable[[World, Spec], None]:
    return lambda world, spec: world.push(replace(world.shop, specs=(replace(spec, **fields),)))


NOW_OVER = Rollout(delay=5 * SECOND)
PLANNED: dict[str, tuple[dict[str, object], Callable[[World, Spec], None]]] = {
    "restart": ({}, request),
    "ordered restart": ({}, lambda world, spec: request(world, spec, ordered=True)),
    "rolling": ({}, change(image="v2")),
    "recreate": ({"strategy": Strategy.RECREATE}, change(image="v2")),
    "activate": ({"strategy": Strategy.ACTIVATE, "rollout": NOW_OVER}, change(image="v2")),
    "canary": ({"strategy": Strategy.CANARY, "rollout": NOW_OVER}, change(image="v2")),
    "scale down": ({}, change(replicas=1)),
}


def serving(world: World) -> int:
    """The number of running containers that the name publishes."""
    published = world.published()
    return sum(1 for container in world.containers().values() if container.up and container.address in published)


@pytest.mark.parametrize("pools", [("web",), ()])
@pytest.mark.parametrize(("replicas", "budget"), [(2, 1), (3, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("planned", sorted(PLANNED))
def test_a_name_keeps_enough_addresses_through_planned_disruptions(planned, replicas, budget, pools):
    fields, begin = PLANNED[planned]
    spec = Spec(replicas=replicas, max_unavailable=budget, pools=pools, ttl=5, drain=2 * SECOND, **fields)
    world = World(shop(**{name: getattr(spec, name) for name in spec.__dataclass_fields__}))
    try:
        ready(world)
        counts = [serving(world)]
        world.checks.append(lambda _: counts.append(serving(world)))
        assert counts == [replicas]
        world.fail_next(NAMES, *TROUBLE)
        begin(world, spec)
        world.run(1800 * SECOND)
        wanted = 1 if planned == "scale down" else replicas
        assert min(counts) >= max(1, wanted - budget)
        assert len(world.published()) == wanted
        if planned.endswith("restart"):
            assert world.memory.ledger().requests["r1"].succeeded
        if planned in {"rolling", "recreate", "activate", "canary"}:
            assert len(world.running()) == wanted
    finally:
        world.close()
