"""Worlds of several nodes with one replica on each of some of them, for the laws of silent, slow and returning nodes."""

from collections.abc import Callable
from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Rollout
from providers.facts import ContainerState, ProbeValue
from tests.laws.helpers import LOOSE, QUICK
from tests.laws.node_watch import NodeWatch, converged
from tests.sim.manifest import POOLS, Shop, Spec, some_nodes
from tests.sim.world import World

COUNTS = [2, 4, 50]
"""How many nodes a world has."""

REACH = [ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN]
"""What the containers of a silent node answer to probes."""

TIMES = Rollout(
    precheck=10 * SECOND,
    pending_grace=600 * SECOND,
    bake=20 * SECOND,
    window=60 * SECOND,
    steps=(CanaryStep(5_000, 20 * SECOND),),
)
"""A staged rollout that takes minutes."""

Worlds = Callable[..., World]
"""The fixture `worlds`."""


MOST = 12
"""Replicas of a workload, at most: decisions about more of them would take most of the time of the suite."""


def quick(count: int, **fields: object) -> Spec:
    """A workload that may use this many nodes and has a replica for each, `MOST` at most. Its exits take seconds.

    A silent replica and one more may be out at a time.
    """
    replicas = min(count, MOST)
    settings = {
        "nodes": some_nodes(count),
        "replicas": replicas,
        "max_unavailable": max(2, replicas // 3),
        "drain": 3 * SECOND,
        "ttl": 3,
        "backoff": QUICK,
        "rollout": TIMES,
    }
    return Spec(**(settings | fields))  # type: ignore[arg-type]


def one_on_each(worlds: Worlds, count: int, **fields: object) -> World:
    """A converged, watched world of `quick`."""
    world = worlds(Shop((quick(count, **fields),), guard=LOOSE), nodes=some_nodes(count))
    NodeWatch(world)
    world.run(90 * SECOND)
    converged(world)
    return world


def change(world: World, **fields: object) -> None:
    """The only workload gets these fields."""
    (spec,) = world.shop.specs
    world.push(replace(world.shop, specs=(replace(spec, **fields),)))


def used(world: World) -> list[str]:
    """The nodes that have containers."""
    return [node for node in world.nodes if world.outside.nodes[node]]


def running(world: World) -> dict[str, list[str]]:
    """The revisions that run, by node, of the nodes that have containers."""
    found: dict[str, list[str]] = {node: [] for node in used(world)}
    for node, item in world.placed():
        if item.state is ContainerState.RUNNING and item.mark is not None:
            found[node].append(item.mark.revision)
    return found


def serving(world: World) -> set[str]:
    """The nodes whose containers run and have a weight."""
    weighed = {end.address for end, member in world.outside.pools[POOLS]["web"].items() if member.weight}
    return {node for node, item in world.placed() if item.address in weighed and item.state is ContainerState.RUNNING}
