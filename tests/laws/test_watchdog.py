"""A law that is broken at a write, a step or a decision fails the test, although the program survives everything that a call raises."""

import pytest

from manifests.values.desired import SECOND
from tests.sim.manifest import shop


def broken(_: object) -> None:
    raise AssertionError("a law is broken")


def test_a_law_that_is_broken_at_a_write_fails_the_run(worlds):
    world = worlds(shop())
    world.checks.append(broken)
    with pytest.raises(AssertionError, match="a law is broken"):
        world.run(60 * SECOND)
    world.checks.clear()
    world.tape.broken.clear()


def test_a_law_that_is_broken_at_a_step_fails_the_run(worlds):
    world = worlds(shop())
    world.tape.watch = broken
    with pytest.raises(AssertionError, match="a law is broken"):
        world.run(60 * SECOND)
    world.tape.watch = lambda step: None


def test_a_law_that_is_broken_in_a_process_that_was_killed_fails_the_run(worlds):
    world = worlds(shop())
    world.checks.append(broken)
    world.kill_in = 60
    with pytest.raises(AssertionError, match="a law is broken"):
        world.run(60 * SECOND)
    world.checks.clear()


def test_a_law_that_is_broken_in_a_single_run_fails_it(worlds):
    world = worlds(shop())
    world.checks.append(broken)
    with pytest.raises(AssertionError, match="a law is broken"):
        world.once()
    world.checks.clear()
