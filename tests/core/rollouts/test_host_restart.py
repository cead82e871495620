"""Host restarts do not count against a revision; replicas that exit by themselves do. In virtual time."""

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Strategy
from reconciler.core.model.revision import Standing
from tests.core.rollouts.world import names_of, of, standing, up
from tests.core.rollouts.world import staged as staged_shop
from tests.sim.manifest import NODE, Shop
from tests.sim.world import World

TIMES = {"bake": 1800 * SECOND, "window": 3600 * SECOND}
SLOW = 150 * SECOND
"""How long an application takes to answer after everything was started at once: much longer than a bake waits."""


def staged(image: str = "v1", **fields) -> Shop:
    return staged_shop(image, liveness=False, **TIMES, **fields)


def baking(world) -> World:
    """v2 has just taken over from v1, which is kept."""
    here = world(staged())
    here.push(staged("v2"))
    here.run(220 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert up(here, "v1") == 0
    return here


def reboot(here: World) -> None:
    here.reboot_host()


def reboot_of_a_node(here: World) -> None:
    here.runtime.reboot()


def engine_away(here: World) -> None:
    """It starts by itself again what it took along, before the next look."""
    here.checks.clear()  # a pool whose members were all started again has no member with traffic
    here.outside.break_reads(NODE)
    here.run(60 * SECOND)
    for name in names_of("v2"):
        here.runtime.exit(name)
        here.start_by_hand(name)
    here.outside.mend_reads(NODE)


HOST = (reboot, reboot_of_a_node, engine_away)


@pytest.mark.parametrize("happens", HOST)
def test_replicas_that_the_host_took_along_have_time_to_come_back(world, happens):
    here = baking(world)
    here.apps.start_delay = SLOW
    happens(here)
    here.run(120 * SECOND)
    assert up(here, "v2") == 3
    assert standing(here, "v2") is Standing.ACTIVE
    here.run(60 * SECOND)
    assert all(of(here, "v2").values())
    # They were well again: what happens now is their own doing.
    here.apps.mute |= set(names_of("v2"))
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.FAILED


@pytest.mark.parametrize("happens", HOST)
def test_a_revision_that_does_not_come_back_is_rolled_back_in_the_end(world, happens):
    here = baking(world)
    here.apps.mute |= set(names_of("v2"))
    happens(here)
    here.run(500 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    here.run(400 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    assert all(of(here, "v1").values())


def test_an_engine_restart_does_not_excuse_replicas_that_exit_on_their_own(world):
    here = baking(world)
    here.outside.break_reads(NODE)
    here.run(60 * SECOND)
    here.apps.mute |= set(names_of("v2"))
    here.outside.mend_reads(NODE)
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.FAILED, "their lives began long before"


def test_a_canary_that_the_host_took_along_has_not_failed(world):
    steps = (CanaryStep(5_000, 300 * SECOND),)
    here = world(staged(strategy=Strategy.CANARY, delay=0, steps=steps))
    here.push(staged("v2", strategy=Strategy.CANARY, delay=0, steps=steps))
    here.run(60 * SECOND)
    assert any(of(here, "v2").values())
    here.apps.start_delay = SLOW
    reboot(here)
    here.run(120 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    here.run(400 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
