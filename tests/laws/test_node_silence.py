"""Nothing happens to what is on a silent node, and no pool and no name becomes empty; when it returns, the world converges."""

import pytest

from manifests.values.desired import SECOND
from providers.actions import RemoveContainer, StopContainer
from providers.facts import ContainerState, ProbeValue
from tests.laws.helpers import MINUTE
from tests.laws.many_nodes import COUNTS, REACH, change, one_on_each, used
from tests.laws.node_watch import converged


@pytest.mark.parametrize("probes", REACH)
@pytest.mark.parametrize("count", COUNTS)
def test_a_silent_node_alone_changes_nothing(count, probes, worlds):
    world = one_on_each(worlds, count, max_unavailable=1)
    before = {item.id: item.generation for _, item in world.placed()}
    silent = used(world)[0]
    world.hosts.silence(silent, probes)
    world.run(20 * MINUTE)
    world.hosts.end_silence(silent)
    world.run(5 * MINUTE)
    if probes is not ProbeValue.FAIL:  # two failures come before the look that shows the silence
        assert not [w for w in world.traffic.writes if isinstance(w.action, StopContainer | RemoveContainer)]
        assert {item.id: item.generation for _, item in world.placed()} == before
    converged(world)


@pytest.mark.parametrize("probes", REACH)
@pytest.mark.parametrize("count", COUNTS)
def test_all_nodes_silent_empty_no_pool_and_no_name(count, probes, worlds):
    world = one_on_each(worlds, count)
    for node in world.nodes:
        world.hosts.silence(node, probes)
    world.run(20 * MINUTE)
    assert any(world.weights().values())
    assert world.published()
    if probes is ProbeValue.PASS:
        assert all(world.weights().values())
        assert len(world.published()) == world.shop.specs[0].replicas
    world.hosts.end_all()
    world.run(10 * MINUTE)
    converged(world)


@pytest.mark.parametrize("count", COUNTS)
def test_a_template_that_changes_during_a_silence_waits_for_the_node(count, worlds):
    world = one_on_each(worlds, count)
    silent = used(world)[0]
    (kept,) = world.outside.nodes[silent].values()
    generation = kept.generation
    world.hosts.silence(silent)
    world.run(60 * SECOND)
    for image in ("v2", "v3"):
        change(world, image=image)
        world.run(5 * MINUTE)
    assert kept.state is ContainerState.RUNNING
    assert kept.generation == generation
    world.hosts.end_silence(silent)
    world.run(10 * MINUTE)
    converged(world)


@pytest.mark.parametrize("count", COUNTS)
def test_a_host_that_starts_from_an_old_copy_gets_the_wanted_replicas(count, worlds):
    world = one_on_each(worlds, count)
    old = used(world)[1]
    world.hosts.keep(old)
    change(world, image="v2")
    world.run(10 * MINUTE)
    converged(world)
    world.hosts.silence(old, ProbeValue.FAIL)
    world.run(5 * MINUTE)
    world.hosts.restore(old)
    world.run(SECOND)
    world.hosts.end_silence(old)
    world.run(10 * MINUTE)
    converged(world)


@pytest.mark.parametrize("count", COUNTS)
def test_a_node_that_stays_silent_costs_no_ticks_and_no_writes(count, worlds):
    world = one_on_each(worlds, count, liveness=False)
    before = world.memory.ticks
    world.run(10 * MINUTE)
    healthy, before = world.memory.ticks - before, world.memory.ticks
    world.hosts.silence(used(world)[0])
    world.run(10 * MINUTE)
    assert world.memory.ticks - before <= healthy + 5
    writes = world.memory.saves, world.memory.decisions
    world.run(10 * MINUTE)
    assert (world.memory.saves, world.memory.decisions) == writes
