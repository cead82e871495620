"""An hour in which nothing happens writes nothing, to the real store and to the log, also while something is wrong the whole time."""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.model.override import Force
from reconciler.shell.store.memory import BlockingMemory, StoreMemory
from reconciler.shell.store.state_db import Store
from tests.inline_runner import InlineRunner
from tests.laws.helpers import ready
from tests.sim.manifest import POOLS, Shop, Spec, shop
from tests.sim.world import World


@dataclass
class Disk:
    """The state directory of a simulated world."""

    world: World
    state: Path
    store: Store

    def written(self) -> tuple[list[str], dict[str, tuple[int, int]], int, int]:
        """The content of the store, the size and time of each file, and what was said."""
        sizes = {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in self.state.glob("state.db*")}
        sizes.pop("state.db-shm", None)  # shared memory of readers
        with closing(sqlite3.connect(self.state / "state.db")) as db:
            content = list(db.iterdump())
        return content, sizes, self.world.tape.decided_count, len(self.world.tape.notes)


@pytest.fixture
def disk(worlds: Callable[[Shop], World], tmp_path: Path) -> Iterator[Callable[[Shop], Disk]]:
    """Makes a world whose memory is the real store."""
    made: list[Disk] = []

    def make(wanted: Shop) -> Disk:
        world = worlds(wanted)
        store = Store.open(tmp_path / "state", world.clock)  # type: ignore[arg-type]
        made.append(Disk(world, tmp_path / "state", store))
        memory = StoreMemory(BlockingMemory(store, "a simulation"), InlineRunner())
        world.memory.clock = memory.clock.record()
        world.memory.handle = lambda hook: memory  # type: ignore[method-assign,assignment]
        return made[-1]

    yield make
    for one in made:
        one.world.kill()
        one.store.close()


def say(disk: Disk, verb: str, key: str, **payload: object) -> None:
    """An operator's command, in the real inbox."""
    disk.store.append(verb, json.dumps({"object": key, "reason": "a test", **payload}), "ada", disk.world.clock.now())
    assert disk.world.life is not None
    disk.world.life.loop.wake.set("a command arrived")


def nothing(disk: Disk) -> None:
    """All is well."""


def unready(disk: Disk) -> None:
    """Every replica fails its readiness: the last ones stay in pool and name."""
    disk.world.apps.lies["*", "readiness"] = ProbeValue.FAIL


def half_unready(disk: Disk) -> None:
    """One replica is out of the pool."""
    disk.world.apps.mute.add(min(disk.world.containers()))


def given_up(disk: Disk) -> None:
    """One replica cannot be healed and was given up."""
    disk.world.apps.cursed.add(min(disk.world.containers()))
    disk.world.run(3 * 3600 * SECOND)


def unreadable_pool(disk: Disk) -> None:
    """The balancer does not answer."""
    disk.world.outside.break_reads(POOLS)


def suspended(disk: Disk) -> None:
    """An operator suspended a workload, one replica of which fails."""
    say(disk, "suspend", "workload/api")
    disk.world.apps.cursed.add(min(disk.world.containers()))


def drained(disk: Disk) -> None:
    """An operator drained a replica."""
    say(disk, "drain", "workload/web/0", value=Force.DRAIN.value)


TROUBLES = (nothing, unready, half_unready, given_up, unreadable_pool, suspended, drained)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_an_hour_without_a_change_writes_nothing(disk, trouble):
    made = disk(Shop((Spec(), Spec("api", replicas=2, pools=("api",)))))
    ready(made.world)
    trouble(made)
    made.world.run(600 * SECOND)
    before = made.written()
    made.world.run(3600 * SECOND)
    assert made.written() == before


def test_a_flap_is_written_and_then_nothing_again(disk):
    made = disk(shop())
    name = min(ready(made.world).containers())
    before = made.written()
    made.world.apps.mute.add(name)
    made.world.run(60 * SECOND)
    failed = made.written()
    assert failed[0] != before[0]
    made.world.run(3600 * SECOND)
    assert made.written() == failed
    assert not [note for level, note in made.world.tape.notes if level >= logging.WARNING]
