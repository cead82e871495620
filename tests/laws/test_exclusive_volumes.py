"""A volume that only one container may mount never has two: not while a workload moves, and not while a node is silent."""

import pytest

from manifests.values.desired import SECOND
from tests.laws.helpers import LOOSE, MINUTE
from tests.laws.many_nodes import COUNTS, change, quick
from tests.laws.node_watch import NodeWatch, converged
from tests.sim.manifest import Shop, some_nodes
from tests.sim.world import World


def keeper(worlds, count: int) -> World:
    """A world with one replica that has a volume for itself, on the first of its nodes."""
    nodes = some_nodes(count)
    spec = quick(count, nodes=nodes[:1], replicas=1, max_unavailable=1, volume="data")
    world = worlds(Shop((spec,), guard=LOOSE), nodes=nodes)
    NodeWatch(world)
    world.run(90 * SECOND)
    converged(world)
    return world


@pytest.mark.parametrize("count", COUNTS)
def test_a_workload_that_moves_never_runs_twice(count, worlds):
    world = keeper(worlds, count)
    most: list[int] = []
    world.checks.append(lambda _: most.append(sum(item.up for _, item in world.placed())))
    change(world, nodes=world.nodes[1:2])
    world.run(5 * MINUTE)
    assert max(most) == 1
    converged(world)


@pytest.mark.parametrize("count", COUNTS)
def test_a_workload_that_moves_with_a_new_template_never_runs_twice(count, worlds):
    world = keeper(worlds, count)
    most: list[int] = []
    world.checks.append(lambda _: most.append(sum(item.up for _, item in world.placed())))
    change(world, nodes=world.nodes[1:2], image="v2")
    world.run(5 * MINUTE)
    assert max(most) == 1
    converged(world)


@pytest.mark.parametrize("live_restore", [True, False], ids=["lives on", "ended"])
def test_a_workload_of_a_silent_node_does_not_move(live_restore, worlds):
    world = keeper(worlds, 4)
    first, *others = world.nodes
    world.hosts.end_engine(first, live_restore=live_restore)
    world.run(60 * SECOND)
    change(world, nodes=tuple(others))
    world.run(30 * MINUTE)
    assert not [item.name for node, item in world.placed() if node != first and item.up]
    world.hosts.start_engine(first)
    world.run(10 * MINUTE)
    converged(world)


def test_a_host_that_falls_silent_while_its_workload_moves_keeps_it(worlds):
    world = keeper(worlds, 2)
    first, second = world.nodes
    change(world, nodes=(second,))
    world.run(SECOND)
    world.hosts.silence(first)
    world.run(20 * MINUTE)
    up = [node for node, item in world.placed() if item.up]
    assert len(up) <= 1
    world.hosts.end_silence(first)
    world.run(10 * MINUTE)
    converged(world)
