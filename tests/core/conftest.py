"""A watched world, made and closed: what the tests of rollouts begin with."""

import pytest

from manifests.values.desired import SECOND
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop
from tests.sim.world import World


@pytest.fixture
def world():
    """Makes a watched world that has come to rest, and closes it."""
    made: list[World] = []

    def make(this: Shop) -> World:
        one = World(this)
        one.dog = Watchdog(one)
        made.append(one)
        one.run(90 * SECOND)
        return one

    yield make
    for one in made:
        one.close()
