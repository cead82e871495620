"""Thousands of ticks with churn leak no threads, descriptors, tasks, children or memory."""

import asyncio
import gc
import os
import random
import sys
import threading
from dataclasses import replace

from manifests.values.desired import SECOND
from tests.sim.manifest import Shop, shop
from tests.sim.world import World

TICKS = 10_000
GROWTH = TICKS
"""Blocks of memory: less than one for each tick."""


def busy(**fields: object) -> Shop:
    """A shop whose pools are observed often, so that thousands of ticks need few turns."""
    return replace(shop(**fields), look_pools=SECOND)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> str:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return file.read()


def churn(world: World, rng: random.Random, turns: int) -> None:
    """Crashes, failures, new templates and scales, operator commands, restarts and kills of the process."""
    for turn in range(turns):
        world.traffic.writes.clear()
        world.tape.steps.clear()
        world.tape.outcomes.clear()
        world.tape.notes.clear()
        world.memory.audit.clear()
        world.memory.journal = {n: entry for n, entry in world.memory.journal.items() if not entry[1]}
        ours = sorted(world.containers())
        event = rng.randrange(8)
        if event == 0 and ours:
            name = rng.choice(ours)
            if world.containers()[name].up:
                world.runtime.exit(name)
        elif event == 1 and ours:
            world.apps.sick = {world.generation(rng.choice(ours))}
        elif event == 2:
            world.push(busy(image=f"v{turn}"))
        elif event == 3:
            world.push(busy(image=f"v{turn}", replicas=rng.randrange(1, 5)))
        elif event == 4:
            world.restart()
        elif event == 5:
            world.kill_in = rng.randrange(20)
        elif event == 6:
            world.memory.say(rng.choice(["suspend", "resume"]), "workload/web", world.clock.now().wall + 60 * SECOND)
        world.run(61 * SECOND)


def test_thousands_of_ticks_leak_no_resources():
    rng = random.Random(7)
    world = World(busy())
    try:
        churn(world, rng, 40)
        world.restart()
        gc.collect()
        before = threading.active_count(), descriptors(), children()
        rows, blocks, start = len(world.memory.rows), sys.getallocatedblocks(), world.memory.ticks
        while world.memory.ticks - start < TICKS:
            churn(world, rng, 10)
        world.restart()
        world.run(120 * SECOND)
        gc.collect()
        assert world.life is not None
        assert len(asyncio.all_tasks(world.life.events)) <= 3
        assert (threading.active_count(), descriptors(), children()) == before
        assert len(world.memory.rows) <= rows + 20
        grown = sys.getallocatedblocks() - blocks
        assert grown < GROWTH, f"{grown} blocks of memory more than after the warm-up"
    finally:
        world.close()
