"""A disk that takes its time: while a write is under way everything else goes on, and what must be remembered is on it before an action."""

import pytest

from manifests.values.desired import SECOND
from providers.actions import Action, SetWeight
from reconciler.core.model.reasons import Rule
from reconciler.core.model.step import target_of
from tests.laws.examples import stride
from tests.laws.helpers import MINUTE, WEB, ready
from tests.sim.manifest import Spec, shop
from tests.sim.world import World

SLOW = 300 * SECOND // 1_000
"""A slow disk: longer than it takes for a decision to become stale, shorter than a tick waits."""

STRIDE = stride(search=1, ci=2)


def rules(world: World) -> set[Rule]:
    return {hold.rule for hold in world.tape.last.holds}


def recorded_before_it_acts(world: World) -> World:
    """From here on, the journal has an open entry of each step that needs one when its call is made, and no two writes are at once."""

    def check(action: Action) -> None:
        assert world.memory.disk.most <= 1, "two writes at once"
        step = world.dog.steps[target_of(action)]
        if step.journal:
            assert (step.id, "") in world.memory.journal.values(), f"{step.id} is not in the journal"

    world.checks.append(check)
    return world


@pytest.mark.parametrize("delay", [SECOND // 50, SLOW, 1_500 * SECOND // 1_000], ids=["20ms", "300ms", "1.5s"])
def test_a_slow_disk_delays_a_rollout_and_does_not_stop_it(worlds, delay):
    world = recorded_before_it_acts(ready(worlds(shop())))
    lives = world.lives
    world.memory.disk.delay = delay
    world.push(shop(image="v2"))
    world.run(20 * MINUTE)
    revision = Spec(image="v2").revision[:8]
    assert world.running() == [f"shop-web-{revision}-{n}" for n in range(3)]
    assert set(world.weights().values()) == {100}
    assert world.memory.disk.writes > 10
    assert world.memory.disk.most == 1
    assert world.lives == lives
    world.memory.disk.delay = 0
    world.run(2 * MINUTE)
    assert not world.tape.last.holds
    assert all(outcome for _, outcome in world.memory.journal.values())


def test_weights_follow_health_while_the_disk_hangs(worlds):
    world = recorded_before_it_acts(ready(worlds(shop())))
    lives, count = world.lives, len(world.traffic.writes)
    world.memory.disk.hangs = True
    world.runtime.exit(WEB.format(0))  # its end is news for the ledger: a write begins and does not end
    world.run(5 * SECOND)
    world.apps.mute.add(WEB.format(1))
    world.run(10 * SECOND)
    assert world.weights() == {WEB.format(0): 0, WEB.format(1): 0, WEB.format(2): 100}
    assert Rule.LEDGER_UNWRITABLE in rules(world)
    world.apps.mute.clear()
    world.run(5 * MINUTE)
    assert world.weights()[WEB.format(1)] == 100
    assert all(isinstance(write.action, SetWeight) for write in world.traffic.writes[count:])
    assert "has not answered" in next(hold.message for hold in world.tape.last.holds if hold.object == "instance")
    world.memory.disk.hangs = False
    world.run(SECOND)
    assert Rule.LEDGER_UNWRITABLE not in rules(world), "the answer of the disk ends the hold, not the next try"
    world.run(2 * MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    assert world.lives == lives


def test_an_order_whose_late_write_succeeds_is_in_effect(worlds):
    world = ready(worlds(shop()))
    world.memory.disk.hangs = True
    world.memory.say("suspend", "workload/web")
    world.run(20 * SECOND)
    assert Rule.LEDGER_UNWRITABLE in rules(world)
    assert world.memory.inbox, "an order is acknowledged only with the ledger that has it"
    world.memory.disk.hangs = False  # the late write acknowledges the order, although the daemon has gone on without it
    world.run(20 * SECOND)
    assert not world.memory.inbox
    assert "workload/web" in world.memory.ledger().suspensions
    world.runtime.exit(WEB.format(0))
    world.run(MINUTE)
    assert WEB.format(0) not in world.running()
    world.memory.say("resume", "workload/web")
    world.run(MINUTE)
    assert WEB.format(0) in world.running()


def test_an_order_that_arrives_during_a_write_is_not_lost(worlds):
    world = ready(worlds(shop()))
    world.memory.disk.delay = SLOW
    world.runtime.exit(WEB.format(0))
    world.run(4 * SECOND)
    for number in range(5):
        world.memory.say("suspend" if number % 2 == 0 else "resume", "workload/web")
        world.run(SLOW // 3)
    world.run(20 * SECOND)
    assert not world.memory.inbox
    assert "workload/web" in world.memory.ledger().suspensions


def test_steps_that_wait_for_the_disk_are_void_under_new_manifests(worlds):
    world = ready(worlds(shop()))
    world.memory.disk.delay = 3 * SECOND
    world.push(shop(image="v2"))
    world.run(4 * SECOND)
    world.push(shop())  # back, while the first steps wait for the disk
    world.run(10 * MINUTE)
    world.memory.disk.delay = 0
    world.run(2 * MINUTE)
    assert world.running() == [WEB.format(n) for n in range(3)]
    assert set(world.weights().values()) == {100}
    assert all(outcome for _, outcome in world.memory.journal.values()), "every entry is closed"


def test_a_stop_during_a_write_ends_after_it(worlds):
    world = ready(worlds(shop()))
    world.memory.disk.delay = SLOW
    world.runtime.exit(WEB.format(0))
    world.run(SECOND)
    world.restart()
    world.run(2 * MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


@pytest.mark.parametrize("lands", [False, True], ids=["lost", "written"])
@pytest.mark.parametrize("point", range(0, 120, STRIDE))
def test_a_kill_during_a_write_leaves_it_whole_or_not_at_all(worlds, point, lands):
    world = recorded_before_it_acts(ready(worlds(shop(drain=SECOND))))
    world.memory.disk.delay, world.memory.disk.lands = SLOW, lands
    world.apps.cursed.add(WEB.format(0))  # a health restart, with its grant
    world.run(15 * SECOND)
    world.kill_in = point
    world.push(shop(image="v2", drain=SECOND))
    world.run(2 * MINUTE)
    world.kill_in = -1
    world.memory.disk.delay = 0
    world.run(15 * MINUTE)
    revision = Spec(image="v2", drain=SECOND).revision[:8]
    assert world.running() == [f"shop-web-{revision}-{n}" for n in range(3)]
    assert set(world.weights().values()) == {100}
    assert not world.memory.ledger().grants
    assert all(outcome for _, outcome in world.memory.journal.values())


@pytest.mark.parametrize("lands", [False, True], ids=["lost", "written"])
@pytest.mark.parametrize("point", range(0, 60, STRIDE))
def test_a_restart_for_health_is_not_repeated_by_a_kill_during_a_write(worlds, point, lands):
    world = recorded_before_it_acts(ready(worlds(shop(drain=SECOND))))
    world.memory.disk.delay, world.memory.disk.lands = SLOW, lands
    generation = world.generation(WEB.format(0))
    world.kill_in = point
    world.apps.cursed.add(WEB.format(0))
    world.run(40 * SECOND)
    world.apps.cursed.clear()
    world.kill_in = -1
    world.run(3 * MINUTE)
    assert len([1 for _, replica, restarted in world.dog.restarts if restarted == generation]) <= 1
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
