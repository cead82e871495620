"""The fixture `world`: a simulated world with a watchdog."""

import pytest

from manifests.values.desired import SECOND
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop
from tests.sim.world import World


@pytest.fixture
def world():
    """Create a watched world that has converged, and close it after the test."""
    made: list[World] = []

    def make(manifest: Shop) -> World:
        world = World(manifest)
        world.dog = Watchdog(world)
        made.append(world)
        world.run(90 * SECOND)
        return world

    yield make
    for world in made:
        world.close()
