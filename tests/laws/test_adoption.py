"""Laws of adopted and labelled containers across kills, a lost ledger and crashes: foreign containers are never created or removed."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Adopt, Desired, Port
from manifests.values.pod import Live
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.facts import ContainerState
from tests.laws.examples import stride
from tests.sim.manifest import INSTANCE, Shop, Spec
from tests.sim.world import World

STRIDE = stride(search=1, ci=8)
"""The distance between the points at which a process is killed."""

NAMES = ("web-1", "web-2", "web-3")
COMPOSE = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
CONTEXT = '[{"name": "web", "livenessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 5, "failureThreshold": 2}}]'


class Adopting(Shop):
    """The usual shop, whose workload adopts containers of Docker Compose."""

    adopt: Adopt = Adopt(labels=(("com.docker.compose.service", "web"),))

    def desired(self) -> Desired:
        made = Shop.desired(self)
        return replace(made, workloads=tuple(replace(workload, adopt=self.adopt) for workload in made.workloads))


class Labelled(Shop):
    """A shop without workloads, whose Instance uses labels."""

    def desired(self) -> Desired:
        made = Shop.desired(self)
        return replace(made, instance=replace(made.instance, enhanced_liveness=True))


def planted(world: World, **labels: str) -> World:
    """Three containers of Docker Compose that have been running for a while."""
    policy = (Live("", 0, 0, "no"),)
    for number, name in enumerate(NAMES, start=1):
        own = {"com.docker.compose.container-number": str(number), **COMPOSE, **labels}
        world.runtime.plant(name, own, ports=(Port("http", 8080),), live=policy)
    return world


def labelled(world: World) -> World:
    return planted(world, **{"reconciler.enhanced-liveness": "true", "reconciler.container-probe-context": CONTEXT})


@pytest.fixture
def strange() -> Iterator[Callable[[Shop], World]]:
    """Creates worlds without the usual watchdog, which forbids changes of containers without a mark, and closes them."""
    made: list[World] = []

    def make(shop: Shop) -> World:
        made.append(World(shop))
        return made[-1]

    yield make
    for world in made:
        world.close()


def done(world: World, kind: type) -> list[str]:
    return [write.action.name for write in world.traffic.writes if write.effective and isinstance(write.action, kind)]


def ids(world: World) -> dict[str, str]:
    return {name: item.id for name, item in world.containers().items()}


def test_an_adopted_world_converges_and_an_idle_hour_changes_nothing(strange):
    world = planted(strange(Adopting()))
    before = {name: item.generation for name, item in world.containers().items()}
    world.run(120 * SECOND)
    assert world.weights() == dict.fromkeys(NAMES, 100)
    assert len(world.published()) == 3
    writes, saves = len(world.traffic.writes), world.memory.saves
    world.run(3600 * SECOND)
    assert (len(world.traffic.writes), world.memory.saves) == (writes, saves)
    assert {name: item.generation for name, item in world.containers().items()} == before
    assert [text for _, text in world.tape.notes if "was adopted as a replica" in text]


@pytest.mark.parametrize("memory", ["kept", "lost"])
def test_a_kill_at_any_point_heals_an_adopted_replica_in_place(strange, memory):
    point = 0
    while True:
        world = planted(strange(Adopting((Spec(drain=2 * SECOND),))))
        world.run(120 * SECOND)
        before = ids(world)
        world.apps.sick.add(world.generation("web-2"))
        start = world.points
        world.kill_in, world.cut = point, point % 2 == 1
        world.run(60 * SECOND)
        killed = world.kill_in < 0 and world.points - start > point
        if killed and memory == "lost":
            world.kill()
            world.memory.rows.clear()
        world.kill_in = -1
        world.run((200 if memory == "kept" else 800) * SECOND)
        assert ids(world) == before
        assert world.running() == list(NAMES)
        assert world.weights() == dict.fromkeys(NAMES, 100)
        assert not done(world, CreateContainer)
        assert not done(world, RemoveContainer)
        stops = done(world, StopContainer)
        assert stops == ["web-2"] if memory == "kept" else set(stops) == {"web-2"}
        world.close()
        if not killed:
            return
        point += STRIDE


def test_restarts_by_the_runtime_before_adoption_count_as_no_attempt(strange):
    world = planted(strange(Adopting((Spec(drain=2 * SECOND),))))
    for name in NAMES:
        world.runtime.alter(name, restarts=7)
    world.run(120 * SECOND)
    world.kill()
    world.memory.rows.clear()
    world.run(400 * SECOND)
    assert not world.memory.ledger().attempts
    world.apps.sick.add(world.generation("web-2"))
    world.run(60 * SECOND)
    assert done(world, StopContainer) == done(world, StartContainer) == ["web-2"]
    assert len(world.memory.ledger().attempts["workload/web/1"]) == 1


def test_a_crashed_container_is_restarted_and_a_removed_one_recreated(strange):
    world = planted(strange(Adopting()))
    world.run(120 * SECOND)
    world.runtime.exit("web-1")
    world.runtime.vanish("web-3")
    world.run(120 * SECOND)
    assert world.containers()["web-1"].state is ContainerState.RUNNING
    (made,) = done(world, CreateContainer)
    assert made.startswith(f"{INSTANCE}-web-")
    assert sorted(world.running()) == sorted(["web-1", "web-2", made])
    assert set(world.weights()) == {"web-1", "web-2", made}


def test_replacing_adopted_containers_never_empties_the_pool(strange):
    world = planted(strange(Adopting()))
    world.run(120 * SECOND)
    replacing = Adopting()
    type(replacing).adopt = replace(Adopting.adopt, replace=True)
    try:
        world.push(replacing)
        world.run(1200 * SECOND)
    finally:
        Adopting.adopt = Adopt(labels=(("com.docker.compose.service", "web"),))
    assert set(done(world, RemoveContainer)) == set(NAMES)
    assert len(world.running()) == 3
    assert all(name.startswith(INSTANCE) for name in world.running())
    assert sum(world.weights().values()) == 300


def test_destroy_keeps_adopted_containers(strange):
    world = planted(strange(Adopting()))
    world.run(120 * SECOND)
    world.shop = Shop(destroy=True)
    world.once()
    assert world.running() == list(NAMES)
    assert not world.weights()
    assert not world.published()
    assert [text for _, text in world.tape.notes if "because reconcile did not create it" in text]


# --- labels -----------------------------------------------------------------------------------------------------------


def test_a_kill_at_any_point_restarts_a_labelled_container_once(strange):
    point = 0
    while True:
        world = labelled(strange(Labelled(())))
        world.run(120 * SECOND)
        before = ids(world)
        world.apps.sick.add(world.generation("web-2"))
        start = world.points
        world.kill_in, world.cut = point, point % 2 == 1
        world.run(60 * SECOND)
        killed = world.kill_in < 0 and world.points - start > point
        world.kill_in = -1
        world.run(200 * SECOND)
        assert ids(world) == before
        assert world.running() == list(NAMES)
        assert done(world, StopContainer) == done(world, StartContainer) == ["web-2"]
        world.close()
        if not killed:
            return
        point += max(1, STRIDE // 2)


def test_labelled_containers_failing_together_are_restarted_one_by_one(strange):
    world = labelled(strange(Labelled(())))
    world.run(120 * SECOND)
    world.apps.cursed.update(NAMES)
    for _ in range(60):
        world.run(60 * SECOND)
        assert len(world.running()) >= 2
    world.run(3600 * SECOND)
    assert world.running() == list(NAMES)
    stops = done(world, StopContainer)
    assert stops
    assert len(stops) == len(done(world, StartContainer))


def test_a_start_that_fails_for_an_hour_is_retried_until_it_succeeds(strange):
    world = labelled(strange(Labelled(())))
    world.run(120 * SECOND)
    world.runtime.refuse_starts("no space left on device")
    world.apps.sick.add(world.generation("web-2"))
    world.run(3600 * SECOND)
    assert world.running() == ["web-1", "web-3"]
    world.runtime.refuse_starts("")
    world.run(600 * SECOND)
    assert world.running() == list(NAMES)


def test_a_container_stopped_by_its_owner_stays_down(strange):
    world = labelled(strange(Labelled(())))
    world.run(120 * SECOND)
    world.runtime.exit("web-2", 0)
    world.run(3600 * SECOND)
    assert world.running() == ["web-1", "web-3"]
    assert not world.traffic.writes
