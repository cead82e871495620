"""How hypothesis searches here: the same examples on every run in CI, few enough for the suite to stay quick."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from laws.watchdog import Watchdog
from sim.manifest import Shop
from sim.world import World

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile(
    "default", derandomize=True, max_examples=25, stateful_step_count=20, print_blob=True, **COMMON
)
settings.register_profile("search", max_examples=1500, stateful_step_count=40, print_blob=True, **COMMON)
settings.register_profile(
    "quick",
    max_examples=250,
    stateful_step_count=int(os.environ.get("STEPS", "8")),
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
    **COMMON,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


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
