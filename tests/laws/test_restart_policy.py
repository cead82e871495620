"""The runtime's restart policy is switched off for a stop, and comes back whatever became of that stop."""

import random

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Strategy
from providers.actions import StopContainer, UpdateContainer
from tests.laws.helpers import LOOSE, MINUTE, QUICK, WEB, ready, stops
from tests.sim.manifest import Shop, Spec
from tests.sim.world import World

DECLARED = "unless-stopped"


def declared(worlds, **fields) -> World:
    """A converged world whose runtime restarts containers by itself, as an engine does."""
    guard = fields.pop("guard", LOOSE)
    spec = Spec(**{"replicas": 2, "backoff": QUICK, "restart": DECLARED, **fields})
    world = worlds(Shop((spec,), guard=guard))
    for runtime in world.runtimes.values():
        runtime.in_place = True
    return ready(world)


def policies(world: World) -> dict[str, str]:
    """The restart policy of each container that runs."""
    return {name: world.containers()[name].live[0].restart for name in world.running()}


def switched_off(world: World) -> list[str]:
    """The containers whose policy was set to `no`, from now on."""
    names: list[str] = []
    world.checks.append(
        lambda action: (
            names.append(action.name)
            if isinstance(action, UpdateContainer) and action.live and action.live[0].restart == "no"
            else None
        )
    )
    return names


def test_the_policy_comes_back_after_a_restart_in_vain(worlds):
    world = declared(worlds)
    name = WEB.format(0)
    off = switched_off(world)
    world.apps.cursed.add(name)
    while not stops(world):
        world.run(SECOND)
    world.run(10 * SECOND)
    assert name in off
    assert policies(world)[name] == DECLARED
    world.run(30 * MINUTE)  # every restart is in vain, and in the end none is tried any more
    assert policies(world) == {WEB.format(0): DECLARED, WEB.format(1): DECLARED}


def test_the_policy_comes_back_when_a_restart_is_called_off(worlds):
    world = declared(worlds, drain=60 * SECOND)
    name = WEB.format(0)
    off = switched_off(world)
    world.apps.cursed.add(name)
    while name not in off:
        world.run(SECOND)
    world.apps.cursed.clear()
    world.run(30 * SECOND)
    assert stops(world) == []
    assert policies(world) == {WEB.format(0): DECLARED, WEB.format(1): DECLARED}


def test_the_policy_comes_back_when_a_replacement_is_taken_back(worlds):
    world = declared(worlds, drain=60 * SECOND)
    off, old = switched_off(world), world.shop
    world.push(Shop((Spec(replicas=2, image="v2", backoff=QUICK, restart=DECLARED, drain=60 * SECOND),), guard=LOOSE))
    while not off:
        world.run(SECOND)
    world.push(old)
    world.run(10 * MINUTE)
    assert policies(world) == {WEB.format(0): DECLARED, WEB.format(1): DECLARED}


def test_a_suspended_replica_gets_its_policy_back_once_resumed(worlds):
    world = declared(worlds)
    container = world.containers()[WEB.format(0)]
    container.live = (container.live[0]._replace(restart="no"),)
    world.memory.say("suspend", "workload/web")
    world.run(40 * SECOND)
    assert policies(world)[WEB.format(0)] == "no"
    world.memory.say("resume", "workload/web")
    world.run(10 * SECOND)
    assert policies(world)[WEB.format(0)] == DECLARED


def test_the_policy_stays_off_while_a_container_is_stopped(worlds):
    world = declared(worlds, drain=30 * SECOND)
    begun: set[str] = set()

    def check(action: object) -> None:
        if isinstance(action, UpdateContainer) and action.live:
            if action.live[0].restart == "no":
                begun.add(action.name)
            else:
                assert action.name not in begun, "it is given back before the stop"
        elif isinstance(action, StopContainer):
            assert world.containers()[action.name].live[0].restart == "no"
            begun.discard(action.name)

    world.checks.append(check)
    world.apps.cursed.add(WEB.format(1))
    world.run(5 * MINUTE)
    assert stops(world)


@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.ACTIVATE, Strategy.CANARY])
def test_waiting_and_outgoing_containers_get_their_policy_back(worlds, strategy):
    world = declared(worlds, strategy=strategy)
    for name in world.running():
        container = world.containers()[name]
        container.live = (container.live[0]._replace(restart="no"),)
    fields = {"replicas": 2, "image": "v2", "backoff": QUICK, "restart": DECLARED, "strategy": strategy}
    world.push(Shop((Spec(**fields),), guard=LOOSE))
    for name in (f"shop-web-{Spec(**fields).revision[:8]}-{ordinal}" for ordinal in range(2)):
        world.apps.mute.add(name)  # the new ones are never ready, so the old ones stay
    world.run(3 * MINUTE)
    assert set(policies(world).values()) == {DECLARED}


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_anywhere_leaves_no_policy_switched_off(worlds, seed):
    world = declared(worlds, drain=10 * SECOND)
    dice = random.Random(seed)
    world.apps.sick.add(world.generation(WEB.format(0)))
    for _ in range(12):
        world.kill_in = dice.randrange(1, 40)
        world.run(dice.randrange(1, 15) * SECOND)
    world.kill_in = -1
    world.run(10 * MINUTE)
    assert policies(world) == {WEB.format(0): DECLARED, WEB.format(1): DECLARED}
