"""A single run goes on until its own deadline while anything may still answer, and only then says what did not."""

from collections.abc import Callable

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import FOREVER
from reconciler.exits import Exit
from tests.sim.manifest import NAMES, NODE, POOLS, shop
from tests.sim.world import World

PROVIDERS = [NODE, POOLS, NAMES]


class Later(World):
    """A world in which something happens at an instant, whatever the program does."""

    at, event = FOREVER, staticmethod(lambda: None)

    def after(self, duration: int, event: Callable[[], object]) -> None:
        """Let something happen after `duration`."""
        self.at, self.event = self.clock.now().steady + duration, event

    def next_event(self) -> int:
        return min(self.at, super().next_event())

    def happen(self) -> None:
        if self.at <= self.clock.now().steady:
            self.at, event = FOREVER, self.event
            event()
        super().happen()


@pytest.fixture
def world():
    made = Later(shop())
    yield made
    made.close()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_run_converges_with_a_provider_that_answers_late(world, provider):
    world.outside.break_reads(provider)
    world.after(120 * SECOND, lambda: world.outside.mend_reads(provider))
    assert world.once().exit is Exit.OK
    assert len(world.running()) == len(world.published()) == 3
    assert set(world.weights().values()) == {100}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_run_ends_at_its_deadline_with_a_provider_that_never_answers(world, provider):
    world.outside.break_reads(provider, "no route to host")
    began = world.true_time()
    summary = world.once(within=90 * SECOND)
    assert 90 * SECOND <= world.true_time() - began < 100 * SECOND
    assert summary.exit is Exit.UNFINISHED
    assert [reason for reason in summary.reasons if provider in reason and "no route to host" in reason]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_run_that_does_not_wait_ends_at_once_with_such_a_provider(world, provider):
    world.outside.break_reads(provider)
    began = world.true_time()
    assert world.once(wait=False).exit is Exit.UNFINISHED
    assert world.true_time() - began < 20 * SECOND
