"""A `--once` run waits for an activation that is due within its time, and reports that another run is needed otherwise."""

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.reasons import Waiting
from reconciler.core.model.revision import Standing
from reconciler.exits import Exit
from tests.core.rollouts.world import names_of, of, staged, standing, up
from tests.sim.world import World


@pytest.fixture
def world():
    made: list[World] = []

    def make(manifest) -> World:
        world = World(manifest)
        made.append(world)
        assert world.once().exit is Exit.OK
        return world

    yield make
    for world in made:
        world.close()


def test_one_run_waits_for_an_activation_that_is_due_within_its_time(world):
    here = world(staged())
    assert standing(here, "v1") is Standing.ACTIVE
    here.push(staged("v2", delay=300 * SECOND))
    assert here.once(600 * SECOND).exit is Exit.OK
    assert standing(here, "v2") is Standing.ACTIVE
    assert all(of(here, "v2").values())
    assert up(here, "v1") == 0


def test_one_run_starts_a_later_revision_and_asks_for_another_run(world):
    here = world(staged())
    here.push(staged("v2", delay=7200 * SECOND))
    begun = here.clock.now().steady
    summary = here.once(600 * SECOND)
    assert summary.exit is Exit.OK
    assert here.clock.now().steady - begun < 600 * SECOND  # nothing more can happen within its time
    assert up(here, "v1") == up(here, "v2") == 3
    assert not any(of(here, "v2").values())
    assert Waiting.ACTIVATION in {wait.waiting for wait in summary.decision.waits}
    assert summary.run_again
    here.push(staged("v2", delay=7200 * SECOND))
    here.clock.advance(7200 * SECOND)
    assert here.once(600 * SECOND).exit is Exit.OK
    assert standing(here, "v2") is Standing.ACTIVE


def test_one_run_exits_manual_when_the_declared_revision_expired(world):
    here = world(staged())
    here.push(staged("v2", delay=30 * SECOND, pending_grace=60 * SECOND))
    here.apps.mute |= set(names_of("v2"))
    assert here.once(600 * SECOND).exit is Exit.MANUAL
    assert standing(here, "v2") is Standing.EXPIRED
    assert all(of(here, "v1").values())
