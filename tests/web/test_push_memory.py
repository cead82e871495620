"""Stored pushes: what survives a restart of the program, and what is forgotten."""

from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.facts import Unknown
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.push_fact import PushEvent
from reconciler.shell.providers import Providers
from reconciler.shell.pushing.pushes import FORGET_AFTER, REMEMBER_EVERY, Sender
from reconciler.shell.store.state_db import Store
from tests.sim.clock import VirtualClock
from tests.web.push_world import NODE, PushWorld

READY, NOT_READY, STARTUP, DRAINING = PushEvent.READY, PushEvent.NOT_READY, PushEvent.STARTUP, PushEvent.DRAINING


@pytest.fixture
async def world(tmp_path: Path) -> PushWorld:
    world = PushWorld(tmp_path)
    world.create(0)
    await world.look()
    return world


class Source:
    """Pushes without HTTP, as the listener calls them."""

    def __init__(self, world: PushWorld, ordinal: int = 0) -> None:
        self.world, self.ordinal, self.seq, self.boot = world, ordinal, 0, "b1"

    def push(self, event: PushEvent, seq: int | None = None) -> int:
        self.seq += 1
        container = self.world.generation(self.ordinal).container_id
        return self.world.pushing.push(Sender(container=container), event, self.boot, seq or self.seq, None).status


def restarted(world: PushWorld) -> None:
    """kill -9 and a new process, with only the stored rows."""
    world.ledger = from_rows(to_rows(world.ledger))
    world.begin()


@pytest.mark.parametrize("event", [DRAINING, NOT_READY, STARTUP])
async def test_draining_not_ready_and_startup_stay_in_force_over_a_restart(world, event):
    Source(world).push(event)
    world.tick()
    world.clock.advance(20 * SECOND)
    restarted(world)
    await world.look()
    fact = world.pushing.facts()[world.generation()]
    assert (fact.event, fact.restored, fact.at) == (event, True, world.clock.now().steady)


async def test_a_stored_ready_is_not_in_force_until_it_is_pushed_again(world):
    source = Source(world)
    source.push(READY)
    world.tick()
    restarted(world)
    await world.look()
    assert world.pushing.facts() == {}
    assert source.push(READY, seq=1) == 409, "a replay is refused after a restart too"
    assert source.push(READY) == 200
    assert world.pushing.facts()[world.generation()].event is READY


async def test_a_stored_state_of_a_restarted_container_is_ignored(world):
    source = Source(world)
    source.push(DRAINING)
    world.tick()
    world.clock.advance(60 * SECOND)
    world.restart()
    restarted(world)
    await world.look()
    assert world.pushing.facts() == {}
    assert source.push(DRAINING) == 410
    source.boot = "b2"
    assert source.push(READY) == 200


async def test_after_a_reboot_the_wall_clock_gives_the_age_of_a_state(world):
    source = Source(world)
    source.push(STARTUP)
    world.tick()
    world.clock.reboot("boot-2", downtime=60 * SECOND)
    restarted(world)
    await world.look()
    fact = world.pushing.facts()[world.generation()]
    assert world.clock.now().steady - fact.since == 60 * SECOND


async def test_a_new_state_is_stored_at_once_and_heartbeats_only_every_10_s(world):
    source = Source(world)
    source.push(READY)
    world.tick()
    assert world.saves == 1
    for _ in range(8):
        world.clock.advance(SECOND)
        source.push(READY)
        world.tick()
    assert world.saves == 1
    world.clock.advance(REMEMBER_EVERY - 8 * SECOND)
    world.tick()
    assert world.saves == 2
    source.push(NOT_READY)
    world.tick()
    assert world.saves == 3


async def test_an_hour_without_pushes_writes_nothing(world):
    Source(world).push(READY)
    world.tick()
    for _ in range(120):
        world.clock.advance(30 * SECOND)
        await world.look()
        world.tick()
    assert world.saves == 1


async def test_only_a_container_gone_from_a_readable_node_is_forgotten(world):
    Source(world).push(DRAINING)
    world.tick()
    world.world.break_reads("node-a")
    await world.look()
    for _ in range(3):
        world.clock.advance(FORGET_AFTER)
        world.tick()
    assert world.ledger.pushes
    assert world.pushing.facts(), "its known state stays in force"
    world.world.mend_reads("node-a")
    world.runtime.exit(world.name())
    world.runtime.vanish(world.name())
    await world.look()
    world.tick()
    assert world.ledger.pushes
    world.clock.advance(FORGET_AFTER)
    world.tick()
    assert not world.ledger.pushes


async def test_an_event_of_a_newer_version_is_ignored(world):
    Source(world).push(READY)
    world.tick()
    (key, row), *_ = world.ledger.pushes.items()
    world.ledger = Ledger(pushes={key: row._replace(event="resting")})
    restarted(world)
    await world.look()
    assert world.pushing.facts() == {}


async def test_rows_survive_the_real_store(world, tmp_path):
    Source(world).push(DRAINING)
    world.tick()
    with Store.open(tmp_path / "state", VirtualClock()) as store:
        store.save_ledger(to_rows(world.ledger))
    with Store.open(tmp_path / "state", VirtualClock()) as store:
        assert from_rows(store.load_ledger()).pushes == world.ledger.pushes


async def test_the_buffer_for_unknown_senders_is_bounded(world):
    statuses = [
        world.pushing.push(Sender(container=f"{number:064x}"), READY, "b", 1, None).status for number in range(300)
    ]
    assert (statuses.count(202), statuses.count(429)) == (256, 44)
    world.clock.advance(FORGET_AFTER)
    world.tick()
    assert world.pushing.push(Sender(container="f" * 64), READY, "b", 1, None).status == 202


@pytest.mark.parametrize("listed", [False, True])
async def test_a_silent_node_keeps_the_pushes_of_its_own_containers_only(world, listed):
    """`listed`: the ledger says that the container may be on the node that does not answer."""
    source = Source(world)
    await world.look()
    assert source.push(READY) == 200
    world.tick()
    container = world.generation().container_id
    world.looks.providers = Providers({NODE: world.runtime, "other": world.runtime})
    world.looks.runtimes["other"] = Unknown("no answer", "other", 0)
    world.looks.owned = {container} if listed else {"another"}
    world.runtime.vanish(world.name())
    await world.look()
    for _ in range(2):
        world.tick()
        world.clock.advance(61 * SECOND)
    world.tick()
    assert (container in world.ledger.pushes) is listed


async def test_a_sender_that_the_kernel_names_needs_no_time(world):
    source = Source(world)
    for number in range(40):
        source.boot = f"b{number}"
        assert source.push(READY) == 200
    container = world.generation().container_id
    timed = world.pushing.push(Sender(container=container), READY, "timed", 1, None, time=world.clock.now().wall)
    assert timed.status == 200
    source.boot = "by-hand"
    assert source.push(DRAINING) == 200
