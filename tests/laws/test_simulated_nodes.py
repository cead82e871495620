"""The simulated world can do to single nodes what the laws need: each fault is real for the program, and leaves the other nodes alone."""

import pytest

from manifests.values.desired import SECOND
from providers.actions import Action, CreateContainer, StartContainer
from providers.facts import ContainerState, Known, ProbeValue, Unknown
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import shop, some_nodes
from tests.sim.world import World

A, B = some_nodes(2)


def runtimes(world: World) -> dict[str, object]:
    assert world.life is not None
    return world.life.loop.looks.runtimes


def one_on_each(worlds, **fields: object) -> World:
    """A converged world with one replica on each of two nodes."""
    return ready(worlds(shop(replicas=2, nodes=(A, B), **fields), nodes=(A, B)))


def test_each_node_has_its_own_addresses(worlds):
    nodes = some_nodes(50)
    world = ready(worlds(shop(replicas=50, nodes=nodes, liveness=False), nodes=nodes))
    assert len(nodes) == len(set(nodes)) == 50
    halves = {node: {item.address.split(".")[1] for item in of.values()} for node, of in world.outside.nodes.items()}
    assert all(len(found) == 1 for found in halves.values())
    assert len(set.union(*halves.values())) == 50


@pytest.mark.parametrize("probes", [ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN])
def test_a_silent_node_is_unknown_and_its_containers_run_on(probes, worlds):
    world = one_on_each(worlds, liveness=False)
    world.run(SECOND)
    world.hosts.silence(B, probes)
    world.run(13 * SECOND)  # the next look comes later than the next probe
    verdict = world.life.loop.probing.verdicts[world.generation(WEB.format(1))].readiness
    assert verdict is not None
    assert verdict.last is probes
    world.run(60 * SECOND)
    assert isinstance(runtimes(world)[B], Unknown)
    assert isinstance(runtimes(world)[A], Known)
    assert world.running() == [WEB.format(0), WEB.format(1)]
    world.hosts.end_silence(B)
    world.run(60 * SECOND)
    assert isinstance(runtimes(world)[B], Known)


@pytest.mark.parametrize("old", [False, True])
def test_a_slow_node_answers_later_and_others_at_once(old, worlds):
    world = one_on_each(worlds)
    world.hosts.slow(B, 9 * SECOND, old)
    world.run(16 * SECOND)  # a look has begun
    for node, ordinal in ((A, 0), (B, 1)):
        world.runtimes[node].exit(WEB.format(ordinal))
    began = world.clock.now().steady
    starts: dict[str, int] = {}

    def note(action: Action) -> None:
        if isinstance(action, StartContainer):
            starts[action.node] = world.clock.now().steady - began

    world.checks.append(note)
    world.run(90 * SECOND)
    assert set(world.running()) == {WEB.format(0), WEB.format(1)}
    assert starts[B] > starts[A]
    assert starts[B] >= 9 * SECOND


def test_a_process_ends_while_a_slow_node_answers(worlds):
    world = one_on_each(worlds)
    world.hosts.slow(B, 30 * SECOND)
    world.run(20 * SECOND)
    world.runtimes[B].exit(WEB.format(1))
    world.run(20 * SECOND)
    world.restart()
    world.hosts.slow(B, 0)
    world.run(60 * SECOND)
    assert set(world.running()) == {WEB.format(0), WEB.format(1)}


@pytest.mark.parametrize("revive", [False, True])
def test_one_node_reboots_and_the_other_does_not(revive, worlds):
    world = worlds(shop(replicas=2, nodes=(A, B), liveness=False, restart="unless-stopped"), nodes=(A, B))
    for runtime in world.runtimes.values():
        runtime.in_place = True
    ready(world)
    before = world.generation(WEB.format(0))
    world.hosts.reboot(B, revive)
    assert world.outside.nodes[B][WEB.format(1)].up is revive
    world.run(60 * SECOND)
    assert set(world.running()) == {WEB.format(0), WEB.format(1)}
    assert world.generation(WEB.format(0)) == before
    assert not world.memory.ledger().attempts


def test_an_engine_with_restart_policies_starts_its_containers(worlds):
    world = worlds(shop(replicas=2, nodes=(A, B), restart="unless-stopped"), nodes=(A, B))
    for runtime in world.runtimes.values():
        runtime.in_place = True
    ready(world)
    world.hosts.end_engine(B, live_restore=False)
    assert world.outside.nodes[B][WEB.format(1)].state is ContainerState.EXITED
    world.run(60 * SECOND)
    count = len(world.traffic.writes)
    world.hosts.start_engine(B)
    assert world.outside.nodes[B][WEB.format(1)].up
    world.run(60 * SECOND)
    assert len(world.running()) == 2
    assert not any(isinstance(write.action, CreateContainer) for write in world.traffic.writes[count:])


def test_a_host_starts_from_its_copy_with_containers_that_were_removed(worlds):
    world = one_on_each(worlds)
    world.hosts.keep(B)
    world.push(shop(replicas=2, nodes=(A, B), image="v2"))
    world.run(300 * SECOND)
    new = set(world.running())
    assert WEB.format(1) not in new
    world.hosts.restore(B)
    assert set(world.outside.nodes[B]) == {WEB.format(1)}
    world.run(300 * SECOND)
    assert set(world.running()) == new


def test_a_lost_reply_of_a_silent_node_is_done(worlds):
    world = one_on_each(worlds)
    world.runtimes[B].exit(WEB.format(1))
    world.hosts.silence(B, lost=1)
    world.run(20 * SECOND)
    assert world.hosts.is_silent(B)
    world.hosts.end_silence(B)
    world.run(60 * SECOND)
    assert set(world.running()) == {WEB.format(0), WEB.format(1)}
