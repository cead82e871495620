"""Suspensions stop healing, with `--probes` also the probes, and expire at their end."""

import pytest

from manifests.values.desired import SECOND
from providers.facts import Generation
from reconciler.core.model.ledger_fold import Command
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import shop
from tests.sim.world import World


@pytest.fixture
def world():
    made = World(shop())
    ready(made)
    yield made
    made.close()


def suspend_probes(world: World, key: str, duration: int = 0) -> None:
    until = world.clock.now().wall + duration if duration else 0
    store = world.memory
    store.commands_made += 1
    store.inbox.append((store.commands_made, Command("suspend", key, "ada", "a test", until, probes=True)))


def probed(world: World) -> set[str]:
    assert world.life is not None
    by_id = {item.id: name for name, item in world.containers().items()}
    return {by_id[generation.container_id] for generation, _ in world.life.prober.running}


@pytest.mark.parametrize("key", ["*", "node/node-a", "workload/web"])
def test_suspended_probes_stop_and_cause_no_action(key, world):
    suspend_probes(world, key)
    world.run(20 * SECOND)
    assert probed(world) == set()
    world.apps.sick.update(Generation(container.id, container.started_at) for container in world.containers().values())
    before = len(world.traffic.writes)
    world.run(300 * SECOND)
    assert len(world.traffic.writes) == before
    world.memory.say("resume", key)
    world.run(300 * SECOND)
    assert probed(world) == {WEB.format(n) for n in range(3)}


def test_probes_of_one_replica_can_be_suspended(world):
    suspend_probes(world, "workload/web/1")
    world.run(20 * SECOND)
    assert probed(world) == {WEB.format(0), WEB.format(2)}


def test_a_suspension_with_an_end_expires(world):
    suspend_probes(world, "*", 60 * SECOND)
    world.run(50 * SECOND)
    assert probed(world) == set()
    world.run(30 * SECOND)
    assert probed(world) == {WEB.format(n) for n in range(3)}


def test_a_suspended_node_keeps_weights_and_names(world):
    world.memory.say("suspend", "node/node-a")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    assert not world.containers()[WEB.format(0)].up
    (pools,) = world.outside.pools.values()
    weights = {member.weight for pool in pools.values() for member in pool.values()}
    assert weights == {0, 100}
    world.memory.say("resume", "node/node-a")
    world.run(60 * SECOND)
    assert world.containers()[WEB.format(0)].up
