"""Another host continues an instance over the same store: no limit refills, nothing ends early, and nothing waits longer than it must.

Each law compares two worlds with the same history: in one the program starts again on its host, in the other on a host with
another boot id, another uptime and perhaps another wall clock.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Backoff, Guard, MassChange
from manifests.values.limits import Rate, RestartLimits
from manifests.values.rollouts import CanaryStep, Strategy
from reconciler.core.model.instant import instant
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.restart_request import Request
from reconciler.core.model.revision import Standing
from tests.core.rollouts.world import of, staged, standing
from tests.laws.helpers import MINUTE, WEB, ready
from tests.sim.manifest import NODE, Shop, Spec
from tests.sim.world import World

DAY = 86_400 * SECOND
UPTIMES = (30 * DAY, 90 * DAY)
"""The first host has been up for 60 days: the other one 30 days more, or 30 days less."""

STOPPED = 40 * SECOND


@pytest.fixture
def on_a_host(worlds):
    """A world whose host has been up for 60 days."""

    def make(shop: Shop) -> World:
        world = worlds(shop)
        world.move_to_host("machine a", 60 * DAY)
        world.memory.begin(world.clock)
        return world

    return make


def limit_spent(on_a_host) -> World:
    """A replica that always fails has used its restarts up."""
    world = ready(on_a_host(Shop((Spec(limit=2, window=1800 * SECOND, backoff=Backoff(SECOND, SECOND, 0)),))))
    world.apps.cursed.add(WEB.format(0))
    world.run(400 * SECOND)
    assert {hold.rule for hold in world.tape.last.holds} == {Rule.RESTART_LIMIT}
    return world


def backing_off(on_a_host) -> World:
    """The next restart of a failing replica waits for its back-off."""
    world = ready(on_a_host(Shop((Spec(limit=9, backoff=Backoff(300 * SECOND, 900 * SECOND, 3600 * SECOND)),))))
    world.apps.cursed.add(WEB.format(0))
    world.run(150 * SECOND)
    assert {hold.rule for hold in world.tape.last.holds} == {Rule.BACK_OFF}
    return world


def rate_spent(on_a_host) -> World:
    """A workload has used up its restarts per minute."""
    rates = RestartLimits(workload=Rate(1, 2), node=Rate(600, 600), total=Rate(600, 600))
    spec = Spec(replicas=4, max_unavailable=4)
    world = ready(on_a_host(Shop((spec,), guard=Guard(mass_change=MassChange(100, 50), restarts=rates))))
    world.apps.sick |= {world.generation(WEB.format(number)) for number in range(4)}
    world.run(14 * SECOND)
    assert world.tape.last.holds
    return world


def activation_waits(on_a_host) -> World:
    """A new revision waits for its activation delay."""
    world = on_a_host(staged(delay=1800 * SECOND))
    world.run(60 * SECOND)
    world.push(staged("v2", delay=1800 * SECOND))
    world.run(300 * SECOND)
    assert standing(world, "v2") is Standing.SCHEDULED
    return world


def canary_bakes(on_a_host) -> World:
    """A canary has its share of the traffic for a while."""
    steps = (CanaryStep(2_000, 600 * SECOND), CanaryStep(5_000, 600 * SECOND))
    fields = {"strategy": Strategy.CANARY, "delay": 0, "steps": steps, "bake": 900 * SECOND}
    world = on_a_host(staged(**fields))
    world.run(60 * SECOND)
    world.push(staged("v2", **fields))
    world.run(200 * SECOND)
    assert any(of(world, "v2").values())
    return world


def drains(on_a_host) -> World:
    """A replaced replica drains."""
    world = ready(on_a_host(Shop((Spec(drain=900 * SECOND, ttl=300),))))
    world.push(Shop((Spec(image="v2", drain=900 * SECOND, ttl=300),)))
    world.run(420 * SECOND)
    assert any(wait.waiting is Waiting.DRAIN for wait in world.tape.last.waits)
    return world


def approved(on_a_host) -> World:
    """An operator has approved removals, but the node could not be read until now."""
    specs = tuple(Spec(name=f"web{number}", replicas=1, pools=(), publish=None) for number in range(6))
    guard = Guard(mass_change=MassChange(10, 1))
    world = ready(on_a_host(Shop(specs, prune=True, guard=guard)))
    world.push(Shop(specs[:2], prune=True, guard=guard))
    world.run(300 * SECOND)
    [command] = {hold.next_step for hold in world.tape.last.holds if hold.rule is Rule.MASS_CHANGE}
    world.memory.say("approve", command.rpartition(" ")[2], at=instant(world.clock.now()))
    world.outside.break_reads(NODE)
    world.run(60 * SECOND)
    assert any(approval.approved for approval in world.memory.ledger().approvals.values())
    assert len(world.running()) == 6
    world.outside.mend_reads(NODE)
    return world


def restart_requested(on_a_host) -> World:
    """A restart that was asked for is under way, with a deadline."""
    world = ready(on_a_host(Shop((Spec(drain=120 * SECOND),))))
    world.memory.request(
        "r1", Request("workload/web", instant(world.clock.now()), "ada", "keys", deadline=2400 * SECOND)
    )
    world.run(100 * SECOND)
    return world


STORIES = (
    limit_spent,
    backing_off,
    rate_spent,
    activation_waits,
    canary_bakes,
    drains,
    approved,
    restart_requested,
)
Story = Callable[[Callable[[Shop], World]], World]


def stop(world: World) -> None:
    world.kill()
    world.clock.advance(STOPPED)


def continued(world: World, duration: int) -> list[tuple[int, str]]:
    count, begun = len(world.traffic.writes), world.clock.now().steady
    world.run(duration)
    return [((write.at - begun) // SECOND, repr(write.action)) for write in world.traffic.writes[count:]]


@pytest.mark.parametrize("uptime", UPTIMES)
@pytest.mark.parametrize("story", STORIES)
def test_another_host_does_exactly_what_this_host_would_have_done(story: Story, uptime, on_a_host):
    stayed, moved = story(on_a_host), story(on_a_host)
    stop(stayed)
    stop(moved)
    moved.move_to_host("machine b", uptime)
    expected, done = continued(stayed, 60 * MINUTE), continued(moved, 60 * MINUTE)
    assert done == expected
    assert expected, "the story goes on"
    assert remaining(moved) == remaining(stayed)


def remaining(world: World) -> dict[tuple[str, str], int]:
    """How long each hold and wait still lasts (ns)."""
    now, last = world.now().steady, world.tape.last
    lasting = [(item.object, item.rule.value, item.until) for item in last.holds]
    lasting += [(item.object, item.waiting.value, item.until) for item in last.waits]
    return {(obj, kind): until - now for obj, kind, until in lasting if until is not None}


@pytest.mark.parametrize("uptime", UPTIMES)
@pytest.mark.parametrize("step", [-2 * DAY, -20 * SECOND, 15 * SECOND])
@pytest.mark.parametrize("story", [limit_spent, backing_off, activation_waits, canary_bakes, drains])
def test_a_wrong_wall_clock_shifts_what_waits_by_its_error_only(story: Story, step, uptime, on_a_host):
    stayed, moved = story(on_a_host), story(on_a_host)
    stop(stayed)
    stop(moved)
    since_saved = moved.clock.now().wall - moved.memory.clock.wall
    moved.move_to_host("machine b", uptime, step)
    stayed.run(2 * SECOND)
    moved.run(2 * SECOND)
    shift = max(-since_saved, step)  # a clock that is behind adds nothing, and takes nothing from what was saved
    before, after = remaining(stayed), remaining(moved)
    shared = before.keys() & after.keys()
    assert shared, (before, after)
    for key in shared:
        earliest, latest = before[key] - max(shift, 0) - SECOND, before[key] - min(shift, 0) + SECOND
        assert earliest <= after[key] <= latest, (key, before[key] / SECOND, after[key] / SECOND)


def test_hosts_that_take_over_from_each_other_in_turn_refill_nothing(on_a_host):
    world = limit_spent(on_a_host)
    left = remaining(world)["workload/web/0", Rule.RESTART_LIMIT.value]
    attempts = world.memory.ledger().attempts["workload/web/0"]
    for number in range(12):
        world.move_to_host(f"machine {number % 3}", (70 + 40 * (number % 3)) * DAY + number * 10 * SECOND)
        world.run(10 * SECOND)
        assert world.memory.ledger().attempts["workload/web/0"] == attempts
    assert abs(remaining(world)["workload/web/0", Rule.RESTART_LIMIT.value] - (left - 120 * SECOND)) <= SECOND


def test_a_lost_ledger_has_a_lost_clock(on_a_host):
    """The next one has another lineage, and health restarts wait as after every loss."""
    world = limit_spent(on_a_host)
    lineage = world.now().lineage
    world.kill()
    world.memory.rows.clear()
    world.memory.clock = None
    world.move_to_host("machine b", 90 * DAY)
    world.run(5 * SECOND)
    assert world.now().lineage != lineage
    assert world.memory.ledger().history_lost is not None


def test_an_idle_process_saves_no_clock(on_a_host):
    world = ready(on_a_host(replace(Shop(), look_pools=15 * SECOND)))
    world.run(60 * MINUTE)
    before, saves = world.memory.clock, world.memory.saves
    world.run(60 * MINUTE)
    assert (world.memory.clock, world.memory.saves) == (before, saves)
    assert before.steady < world.now().steady - 60 * MINUTE
