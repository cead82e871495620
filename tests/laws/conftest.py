"""Worlds with a watchdog, created and closed."""

import pytest

from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop
from tests.sim.world import World


@pytest.fixture
def worlds():
    """Creates worlds with a watchdog and closes them."""
    made: list[World] = []

    def make(shop: Shop, **kwargs) -> World:
        made.append(World(shop, **kwargs))
        made[-1].dog = Watchdog(made[-1])
        return made[-1]

    yield make
    for world in made:
        world.close()
