"""Revisions that are not activated, and rollbacks. In virtual time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from manifests.values.desired import SECOND
from manifests.values.rollouts import Supersede
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.revision import Standing
from reconciler.core.model.step import Step
from tests.core.rollouts.world import names_of, of, revision, row, staged, standing, up
from tests.inline_runner import InlineRunner
from tests.sim.world import World

T = TypeVar("T")

# --- whether ----------------------------------------------------------------------------------------------------


def test_a_failing_revision_is_never_activated_and_expires_with_a_hold(world):
    here = world(staged())
    here.apps.mute |= {names_of("v2")[1]}
    here.push(staged("v2", pending_grace=1800 * SECOND))
    here.run(1700 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    assert not any(of(here, "v2").values())
    assert any(wait.waiting is Waiting.VERIFIED for wait in here.tape.last.waits)
    here.run(400 * SECOND)
    assert standing(here, "v2") is Standing.EXPIRED
    (hold,) = [hold for hold in here.tape.last.holds if hold.rule is Rule.REVISION_NOT_ELIGIBLE]
    assert hold.next_step
    assert "2 of 3 replicas" in hold.message
    here.run(120 * SECOND)
    assert not any(revision("v2")[:8] in name for name in here.containers())
    assert all(of(here, "v1").values())
    # The next poll does not try it again; another time for it does.
    here.apps.mute.clear()
    here.push(staged("v2", pending_grace=1800 * SECOND))
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.EXPIRED
    here.push(staged("v2", delay=60 * SECOND))
    here.run(180 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


def test_a_failing_newest_due_revision_does_not_activate_an_older_one(world):
    here = world(staged())
    now = here.clock.now().wall
    times = {"supersede": Supersede.ON_ACTIVATION}
    here.apps.mute |= set(names_of("v3"))
    here.push(staged("v2", activate_at=now + 300 * SECOND, **times))
    here.run(30 * SECOND)
    here.push(staged("v3", activate_at=now + 300 * SECOND, **times))
    here.run(900 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert not any(of(here, "v2").values())


def test_a_failing_active_revision_does_not_activate_a_waiting_one_early(world):
    here = world(staged())
    here.push(staged("v2", delay=3600 * SECOND))
    here.run(60 * SECOND)
    here.apps.sick.add(here.generation(names_of("v1")[0]))
    before = here.generation(names_of("v1")[0])
    here.run(120 * SECOND)
    assert here.generation(names_of("v1")[0]) != before
    assert standing(here, "v1") is Standing.ACTIVE
    assert not any(of(here, "v2").values())


def test_with_both_unwell_the_active_one_keeps_the_traffic(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(60 * SECOND)
    here.apps.mute |= {*names_of("v1"), *names_of("v2")}
    here.run(600 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert any(of(here, "v1").values())
    assert not any(of(here, "v2").values())


def test_a_crashing_waiting_replica_is_restarted_until_its_revision_fails(world):
    here = world(staged())
    bad = names_of("v2")[0]
    here.apps.crash_after[bad] = SECOND
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(1800 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    starts = [
        write for write in here.traffic.writes if isinstance(write.action, StartContainer) and write.action.name == bad
    ]
    assert 2 <= len(starts) <= 7
    assert not any(revision("v2")[:8] in name for name in here.containers())
    assert all(of(here, "v1").values())


def test_a_workload_removed_from_the_manifests_loses_its_waiting_revision(world):
    here = world(staged(pools=()))
    here.push(staged("v2", pools=(), delay=7200 * SECOND))
    here.run(60 * SECOND)
    here.push(replace(staged("v2", pools=()), destroy=True))
    here.run(600 * SECOND)
    assert here.running() == []


def test_a_suspended_workload_activates_once_resumed_without_loss_of_grace(world):
    here = world(staged())
    here.push(staged("v2", pending_grace=600 * SECOND))
    here.run(30 * SECOND)
    here.push(staged("v2", pending_grace=600 * SECOND, suspend=True))
    here.run(1800 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    here.push(staged("v2", pending_grace=600 * SECOND))
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


# --- taking it back ---------------------------------------------------------------------------------------------


def test_a_revision_failing_within_bake_is_rolled_back_without_creates(world):
    here = world(staged())
    old = {name: here.containers()[name].id for name in names_of("v1")}
    here.push(staged("v2"))
    here.run(220 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert up(here, "v1") == 0
    count = len(here.traffic.writes)
    here.apps.mute |= set(names_of("v2"))
    here.run(120 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())
    assert not any(of(here, "v2").values())
    assert {name: here.containers()[name].id for name in names_of("v1")} == old
    assert not any(isinstance(write.action, CreateContainer) for write in here.traffic.writes[count:])
    # It is not tried again until its manifest changes.
    here.apps.mute.clear()
    here.run(1800 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())
    assert any(hold.rule is Rule.REVISION_NOT_ELIGIBLE for hold in here.tape.last.holds)
    here.push(staged("v3", delay=60 * SECOND))
    here.run(180 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE


def test_a_revision_that_fails_after_bake_stays(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(600 * SECOND)
    here.apps.mute |= set(names_of("v2"))
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert any(of(here, "v2").values())


def test_the_next_poll_does_not_undo_a_rollback_by_an_operator(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(300 * SECOND)
    count = len(here.traffic.writes)
    here.memory.say("rollback", "workload/web")
    here.run(90 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.FAILED
    assert "rolled back by an operator: a test" in row(here, "v2").why
    assert not any(isinstance(write.action, CreateContainer | RemoveContainer) for write in here.traffic.writes[count:])
    here.push(staged("v2"))
    here.run(1200 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())


class SlowStops(InlineRunner):
    """Calls in place, but a stop takes until the test lets it go on."""

    def __init__(self, here: World) -> None:
        self.here, self.held, self.go_on = here, 0, asyncio.Event()
        self._next = ""
        here.tape.watch = self._begins
        here.life.loop.applier.runner = self

    def _begins(self, step: Step) -> None:
        self._next = step.id if isinstance(step.action, StopContainer) else ""

    async def run(self, call: Callable[[], T]) -> T:
        stop, self._next = self._next, ""
        if stop:
            self.held += 1
            self.here.clock.base_tasks += 10  # calls that take time
            await self.go_on.wait()
            self.here.clock.base_tasks -= 10
        return await super().run(call)


def test_stopping_replicas_get_the_traffic_back_only_when_they_run_again(world):
    here = world(staged(delay=0))
    stops = SlowStops(here)
    here.push(staged("v2", delay=0))
    while not stops.held:
        here.run(SECOND)
    assert all(of(here, "v2").values())
    here.memory.say("rollback", "workload/web")
    here.run(30 * SECOND)
    assert standing(here, "v1") is Standing.SUPERSEDED, "they run and are ready, but not for long"
    assert all(of(here, "v2").values())
    assert not any(of(here, "v1").values())
    stops.go_on.set()
    here.run(90 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())


def test_a_rollback_needs_an_earlier_revision(world):
    here = world(staged())
    here.memory.say("rollback", "workload/web")
    here.run(60 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert "no earlier revision is kept" in row(here, "v1").why


def test_a_waiting_revision_that_is_rolled_back_is_not_activated(world):
    here = world(staged())
    here.push(staged("v2", delay=600 * SECOND))
    here.run(60 * SECOND)
    here.memory.say("rollback", "workload/web")
    here.run(1200 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.FAILED
    assert not any(revision("v2")[:8] in name for name in here.containers())
