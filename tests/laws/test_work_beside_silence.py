"""While a node is silent or slow, the replicas of the other nodes roll out, heal, scale and carry traffic."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerState
from tests.laws.helpers import LOOSE, MINUTE
from tests.laws.many_nodes import COUNTS, REACH, change, one_on_each, quick, running, serving, used
from tests.laws.node_watch import NodeWatch, converged, replica
from tests.sim.manifest import Shop, some_nodes
from tests.sim.world import World


def assert_only(world: World, but: str) -> None:
    """Every other node that is used runs the declared revision and nothing else, and serves."""
    wanted = world.shop.specs[0].revision
    others = {node: revisions for node, revisions in running(world).items() if node != but}
    last = world.tape.last
    assert others == {node: [wanted] for node in others}, (last.holds, last.waits)
    assert serving(world) >= others.keys()


@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RECREATE])
@pytest.mark.parametrize("count", COUNTS)
def test_a_rollout_reaches_all_other_nodes(count, strategy, worlds):
    # Without a name: of two addresses of which one is unknown, none is given up on purpose.
    world = one_on_each(worlds, count, strategy=strategy, publish=None)
    silent, old = used(world)[1], world.shop.specs[0].revision
    world.hosts.silence(silent)
    world.run(60 * SECOND)
    change(world, image="v2")
    world.run(10 * MINUTE)
    assert_only(world, silent)
    assert running(world)[silent] == [old]
    world.hosts.end_silence(silent)
    world.run(10 * MINUTE)
    converged(world)


@pytest.mark.parametrize("strategy", sorted(STAGED))
@pytest.mark.parametrize("count", COUNTS)
def test_a_staged_revision_stands_ready_on_all_other_nodes(count, strategy, worlds):
    world = one_on_each(worlds, count, strategy=strategy)
    silent, old = used(world)[1], world.shop.specs[0].revision
    world.hosts.silence(silent)
    world.run(60 * SECOND)
    change(world, image="v2")
    world.run(8 * MINUTE)
    new = world.shop.specs[0].revision
    others = {node: set(revisions) for node, revisions in running(world).items() if node != silent}
    assert all(new in revisions for revisions in others.values()), (world.tape.last.holds, world.tape.last.waits)
    assert serving(world) >= others.keys()
    assert running(world)[silent] == [old]
    world.hosts.end_silence(silent)
    world.run(10 * MINUTE)
    converged(world)


@pytest.mark.parametrize("count", COUNTS)
def test_a_rollout_that_began_before_the_silence_goes_on(count, worlds):
    world = one_on_each(worlds, count)
    change(world, image="v2")
    world.run(12 * SECOND)
    silent = used(world)[0]
    world.hosts.silence(silent)
    world.run(10 * MINUTE)
    assert_only(world, silent)
    world.hosts.end_silence(silent)
    world.run(10 * MINUTE)
    converged(world)


@pytest.mark.parametrize("probes", REACH)
@pytest.mark.parametrize("count", COUNTS)
def test_a_replica_of_another_node_is_restarted_for_its_health(count, probes, worlds):
    world = one_on_each(worlds, count)
    other, silent, *_ = used(world)
    world.hosts.silence(silent, probes)
    world.run(60 * SECOND)
    (item,) = world.outside.nodes[other].values()
    sick = item.generation
    world.apps.sick.add(sick)
    world.run(10 * MINUTE)
    assert item.state is ContainerState.RUNNING
    assert item.generation != sick, (world.tape.last.holds, world.tape.last.waits)
    assert serving(world) >= set(used(world)) - {silent}


@pytest.mark.parametrize("count", COUNTS)
def test_crashed_and_removed_replicas_of_another_node_come_back(count, worlds):
    world = one_on_each(worlds, count)
    other, silent, *_ = used(world)
    world.hosts.silence(silent)
    world.run(60 * SECOND)
    (name,) = world.outside.nodes[other]
    world.runtimes[other].exit(name)
    world.run(2 * MINUTE)
    assert world.outside.nodes[other][name].up
    world.runtimes[other].vanish(name)
    world.run(2 * MINUTE)
    assert world.outside.nodes[other][name].up
    assert serving(world) >= set(used(world)) - {silent}


@pytest.mark.parametrize("count", COUNTS)
def test_a_workload_scales_on_the_other_nodes(count, worlds):
    world = one_on_each(worlds, count)
    silent = used(world)[0]
    world.hosts.silence(silent)
    world.run(60 * SECOND)
    twice = 2 * world.shop.specs[0].replicas
    change(world, replicas=twice)
    world.run(5 * MINUTE)
    up = sum(len(revisions) for node, revisions in running(world).items() if node != silent)
    assert up >= twice - 2, world.tape.last.waits
    world.hosts.end_silence(silent)
    world.run(5 * MINUTE)
    converged(world)


@pytest.mark.parametrize("count", COUNTS)
def test_surplus_replicas_of_other_nodes_leave(count, worlds):
    world = one_on_each(worlds, count)
    few = world.shop.specs[0].replicas
    change(world, replicas=2 * few)
    world.run(2 * MINUTE)
    converged(world)
    silent = used(world)[0]
    world.hosts.silence(silent)
    world.run(60 * SECOND)
    change(world, replicas=few)
    world.run(10 * MINUTE)
    ordinals = [replica(item)[1] for node, item in world.placed() if node != silent]
    assert all(ordinal < few for ordinal in ordinals), world.tape.last.holds
    world.hosts.end_silence(silent)
    world.run(10 * MINUTE)
    converged(world)


def test_a_workload_without_the_silent_node_does_not_notice(worlds):
    nodes = some_nodes(4)
    specs = (quick(2), quick(2, name="api", nodes=nodes[2:], pools=("api",)))
    world = worlds(Shop(specs, guard=LOOSE), nodes=nodes)
    NodeWatch(world)
    world.run(90 * SECOND)
    world.hosts.silence(nodes[0])
    world.run(60 * SECOND)
    world.push(replace(world.shop, specs=(specs[0], replace(specs[1], image="v2"))))
    world.run(5 * MINUTE)
    wanted = world.shop.specs[1].revision
    assert {node: running(world)[node] for node in nodes[2:]} == {node: [wanted] for node in nodes[2:]}


@pytest.mark.parametrize("count", COUNTS)
def test_a_slow_node_holds_no_other_one(count, worlds):
    world = one_on_each(worlds, count)
    slow = used(world)[0]
    world.hosts.slow(slow, 40 * SECOND)
    world.run(60 * SECOND)
    change(world, image="v2")
    world.run(10 * MINUTE)
    assert_only(world, slow)
    world.hosts.end_all()
    world.run(10 * MINUTE)
    converged(world)
