"""Whole plans of names in their text form."""

from collections.abc import Callable

import pytest

from providers.capabilities import PLAIN
from reconciler.core.forecast import forecast
from reconciler.core.plan_text import to_text
from tests.core.dns.world import FAIL, PASS, World, geo_world, policy


def published_first() -> World:
    world = World((policy(),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    return world


def place_withdrawn() -> World:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    return world


def lacking() -> World:
    world = World((policy(),), can=PLAIN)
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    return world


CASES: dict[str, Callable[[], World]] = {
    "dns-published-first": published_first,
    "dns-place-withdrawn": place_withdrawn,
    "dns-provider-without-weights-and-places": lacking,
}


@pytest.mark.parametrize("name", CASES)
def test_the_plan_of_names(name: str, golden: Callable[[str, str], None]) -> None:
    world = CASES[name]()

    golden(f"plan/{name}.txt", to_text(forecast(world.desired(), world.observed(), world.now)))
