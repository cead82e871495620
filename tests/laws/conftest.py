"""Watched worlds, made and closed."""

import pytest

from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop
from tests.sim.world import World


@pytest.fixture
def worlds():
    """Makes watched worlds and closes them."""
    made: list[World] = []

    def make(this: Shop, **kwargs) -> World:
        made.append(World(this, **kwargs))
        made[-1].dog = Watchdog(made[-1])
        return made[-1]

    yield make
    for one in made:
        one.close()
