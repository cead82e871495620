"""A watched world for the tests of rollouts, opened and closed."""

import pytest

from manifests.values.desired import SECOND
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop
from tests.sim.world import World


@pytest.fixture
def world():
    """Makes a watched world that has converged, and closes it."""
    made: list[World] = []

    def make(manifests: Shop) -> World:
        world = World(manifests)
        world.dog = Watchdog(world)
        made.append(world)
        world.run(90 * SECOND)
        return world

    yield make
    for world in made:
        world.close()
