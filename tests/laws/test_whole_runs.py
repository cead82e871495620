"""Laws of whole runs: convergence, order of steps, health restarts, pools and names that never become empty, plan and apply, read-back, kills."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from providers.actions import ChangeRecords, CreateContainer, SetWeight, StartContainer, StopContainer
from providers.facts import ProbeValue
from providers.testing.faults import Fault
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger_fold import OutcomeKind
from reconciler.core.model.reasons import Rule
from reconciler.shell.loop import LONGEST_SLEEP
from tests.laws.examples import examples, stride
from tests.laws.helpers import QUICK, WEB, ready
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import NAMES, NODE, POOLS, Shop, Spec, shop
from tests.sim.world import World

STRIDE = stride(search=4, ci=24)
"""The distance between the points of a kill in each of four shards, which begin a quarter of it apart."""


def kinds(world: World, since: int = 0) -> list[str]:
    """The effective writes in order: kind and, for weights, up or down."""
    names = []
    for write in world.traffic.writes[since:]:
        if not write.effective:
            continue
        name = type(write.action).__name__
        if isinstance(write.action, SetWeight):
            name = "up" if write.action.weight else "down"
        names.append(name)
    return names


# --- convergence ------------------------------------------------------------------------------------------------


def test_a_healthy_world_converges_and_is_quiet_for_an_hour(worlds):
    world = ready(worlds(shop()))
    before = world.memory.saves, len(world.traffic.writes), world.tape.decided_count, world.memory.decisions
    notes, reads = len(world.tape.notes), world.traffic.reads
    world.run(3600 * SECOND)
    assert (world.memory.saves, len(world.traffic.writes), world.tape.decided_count, world.memory.decisions) == before
    assert len(world.tape.notes) == notes
    assert world.traffic.reads > reads + 100
    assert not world.tape.last.holds
    assert not world.tape.last.waits


def test_a_quiet_world_is_observed_often_and_decided_rarely(worlds):
    world = ready(worlds(replace(shop(), look_pools=SECOND)))
    looks, ticks = world.traffic.reads, world.memory.ticks
    world.run(3600 * SECOND)
    looks, ticks = world.traffic.reads - looks, world.memory.ticks - ticks
    assert looks >= 3600
    assert 3600 * SECOND / LONGEST_SLEEP <= ticks <= looks / 2


def test_a_foreign_change_is_reverted_at_the_next_look(worlds):
    world = ready(worlds(replace(shop(), look_pools=SECOND)))
    world.run(60 * SECOND)
    pool = world.outside.pools[POOLS]["web"]
    endpoint, member = next(iter(pool.items()))
    pool[endpoint] = replace(member, weight=0)
    world.run(SECOND)
    assert pool[endpoint].weight == member.weight == 100


def test_a_command_without_a_wake_up_takes_effect_after_the_longest_nap(worlds):
    world = ready(worlds(shop()))
    world.memory.wake_holder = lambda: None
    world.memory.say("suspend", "workload/web")
    world.run(LONGEST_SLEEP)
    assert not world.memory.inbox
    assert "workload/web" in world.memory.ledger().suspensions


def test_a_converged_world_is_never_written_to(worlds):
    world = ready(worlds(shop(pools=("web", "web-2"))))
    assert all(write.effective for write in world.traffic.writes)
    count = len(world.traffic.writes)
    world.restart()
    world.run(60 * SECOND)
    world.kill()
    world.run(60 * SECOND)
    assert len(world.traffic.writes) == count


# --- order ------------------------------------------------------------------------------------------------------


def test_scaling_up_adds_container_then_weight_then_name(worlds):
    world = ready(worlds(shop(replicas=1)))
    assert kinds(world) == ["CreateContainer", "StartContainer", "up", "ChangeRecords"]
    started, weighed = world.traffic.writes[1].at, world.traffic.writes[2].at
    assert weighed - started >= world.apps.start_delay


def test_scaling_down_removes_name_waits_ttl_removes_weight_drains_stops(worlds):
    world = ready(worlds(shop(replicas=2, ttl=30, drain=10 * SECOND)))
    count = len(world.traffic.writes)
    world.push(shop(replicas=1, ttl=30, drain=10 * SECOND))
    world.run(120 * SECOND)
    names, down, stop = (world.traffic.writes[count + n] for n in range(3))
    assert kinds(world, count) == ["ChangeRecords", "down", "StopContainer", "RemoveContainer", "RemoveEndpoint"]
    assert down.at - names.at >= 30 * SECOND
    assert stop.at - down.at >= 10 * SECOND
    assert list(world.weights()) == world.running()


def test_a_stop_waits_for_weight_0_in_every_pool(worlds):
    world = ready(worlds(shop(replicas=2, pools=("web", "web-2"))))
    world.push(shop(replicas=1, pools=("web", "web-2")))
    world.run(200 * SECOND)
    assert world.traffic.count(StopContainer) == 1  # the watchdog checked the weights at that very moment
    assert len(world.weights("web")) == len(world.weights("web-2")) == 1


def test_a_health_failure_removes_the_weight_at_once_without_a_ttl(worlds):
    world = ready(worlds(shop(ttl=300)))
    count = len(world.traffic.writes)
    world.apps.sick.add(world.generation(WEB.format(1)))
    world.run(60 * SECOND)
    assert kinds(world, count)[:4] == ["down", "ChangeRecords", "StopContainer", "StartContainer"]
    first, stop = world.traffic.writes[count], world.traffic.writes[count + 2]
    assert stop.at - first.at <= 11 * SECOND
    world.run(60 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    assert len(world.published()) == 3


def test_a_rollout_replaces_one_replica_at_a_time(worlds):
    world = ready(worlds(shop()))
    fewest = [3]

    def count(action):
        serving = sum(1 for weight in world.weights().values() if weight)
        fewest.append(serving)
        assert len(world.containers()) <= 4

    world.checks.append(count)
    world.push(shop(image="v2"))
    world.run(600 * SECOND)
    assert min(fewest) >= 2
    assert world.running() == [f"shop-web-{Spec(image='v2').revision[:8]}-{n}" for n in range(3)]


def test_a_rollout_that_never_becomes_ready_keeps_the_old_replicas(worlds):
    world = ready(worlds(shop()))
    revision = Spec(image="v2").revision[:8]
    world.apps.mute |= {f"shop-web-{revision}-{n}" for n in range(3)}
    world.push(shop(image="v2"))
    world.run(600 * SECOND)
    assert sum(1 for weight in world.weights().values() if weight) == 3
    world.runtime.exit(WEB.format(2))
    world.run(60 * SECOND)
    assert WEB.format(2) in world.running()
    assert sum(1 for weight in world.weights().values() if weight) == 3
    world.push(shop(image="v3"))
    world.run(900 * SECOND)
    assert world.running() == [f"shop-web-{Spec(image='v3').revision[:8]}-{n}" for n in range(3)]


# --- restarts ---------------------------------------------------------------------------------------------------


@examples(15)
@given(
    limit=st.integers(1, 3),
    window=st.sampled_from([60, 300]),
    events=st.lists(st.sampled_from(["restart", "kill", "back", "forth", "run", "points"]), min_size=4, max_size=12),
)
def test_health_restarts_stay_within_their_limit(limit, window, events):
    world = World(shop(limit=limit, window=window * SECOND, drain=SECOND, backoff=QUICK))
    dog = Watchdog(world)
    try:
        world.run(60 * SECOND)
        world.apps.cursed |= {WEB.format(n) for n in range(3)}
        for event in events:
            if event == "restart":
                world.restart()
            elif event == "kill":
                world.kill()
            elif event == "points":
                world.kill_in, world.cut = 7, not world.cut
            elif event in {"back", "forth"}:
                world.clock.step_wall((-1 if event == "back" else 1) * 7200 * SECOND)
            world.run(45 * SECOND)
            grants = world.memory.ledger().grants.values()
            assert sum(1 for grant in grants if grant.cause.value == "LivenessFailed") <= 1
        assert dog.restarts
    finally:
        world.close()


def test_a_lost_ledger_pauses_health_restarts_for_one_window(worlds):
    world = ready(worlds(shop()))
    world.kill()
    world.memory.rows.clear()
    world.apps.sick.add(world.generation(WEB.format(0)))
    world.run(200 * SECOND)
    assert not world.dog.restarts
    assert {hold.rule for hold in world.tape.last.holds} == {Rule.LEDGER_LOST}
    world.run(200 * SECOND)
    assert [restart[1] for restart in world.dog.restarts] == ["workload/web/0"]


def test_a_host_restart_starts_all_and_counts_no_attempt(worlds):
    world = ready(worlds(shop(replicas=10)))
    world.reboot_host()
    assert not world.running()
    count = len(world.traffic.writes)
    world.run(60 * SECOND)
    assert len(world.running()) == 10
    assert kinds(world, count).count("StartContainer") == 10
    ledger = world.memory.ledger()
    assert not ledger.attempts
    assert not ledger.failures


def test_four_failing_starts_do_not_block_other_workloads(worlds):
    world = worlds(Shop((Spec(name="bad", replicas=4), Spec(name="web", replicas=2))))
    world.fail_next(NODE, *[Fault.NONE] * 6, *[Fault.REJECTED] * 4)
    world.run(30 * SECOND)
    assert [name for name in world.running() if "-web-" in name] == [WEB.format(0), WEB.format(1)]


def test_a_failing_replica_is_restarted_despite_a_pending_exit(worlds):
    world = ready(worlds(shop(replicas=2)))
    world.apps.cursed.add(WEB.format(0))
    world.run(120 * SECOND)
    world.push(shop(replicas=1))
    world.run(60 * SECOND)
    world.apps.cursed.clear()
    world.run(900 * SECOND)
    assert world.running() == [WEB.format(0)]
    assert world.weights() == {WEB.format(0): 100}


# --- never empty ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN])
def test_no_pool_or_name_becomes_empty_when_every_readiness_probe_says(value, worlds):
    world = ready(worlds(shop()))
    world.apps.lies["*", "readiness"] = value
    world.run(600 * SECOND)
    assert sum(1 for weight in world.weights().values() if weight) >= 1
    assert world.published()
    if value is not ProbeValue.FAIL:
        assert world.weights() == {WEB.format(n): 100 for n in range(3)}
        assert len(world.published()) == 3
    world.apps.lies.clear()
    world.run(60 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


def test_flapping_probes_never_empty_a_pool(worlds):
    world = ready(worlds(shop()))
    for number, period in enumerate((13, 17, 23)):
        world.apps.flaps[WEB.format(number), "readiness"] = period * SECOND
    world.run(1200 * SECOND)
    assert world.published()


def test_a_granted_restart_may_remove_the_last_weight(worlds):
    world = ready(worlds(shop(replicas=1)))
    world.apps.sick.add(world.generation(WEB.format(0)))
    world.run(120 * SECOND)
    assert len(world.dog.restarts) == 1
    assert world.weights() == {WEB.format(0): 100}
    assert world.published()


# --- plan = apply -----------------------------------------------------------------------------------------------


def shape(steps) -> list[tuple[str, str, str]]:
    """Steps without addresses, which a forecast does not know."""
    shapes = []
    for step in steps:
        action = step.action
        name = "" if isinstance(action, ChangeRecords) else action.name
        shapes.append((step.object, type(action).__name__, name))
    return shapes


@pytest.mark.parametrize(
    "after", [None, {"image": "v2"}, {"replicas": 1}, {"replicas": 5}, {"pools": ("web", "web-2")}]
)
def test_apply_does_what_the_plan_printed(after, worlds):
    world = worlds(shop())
    world.apps.start_delay = 0
    if after is not None:
        ready(world)
        world.kill()
        world.shop = shop(**after)
    count, saves = len(world.traffic.writes), world.memory.saves
    _, observed, now = world.observe_once()
    plan = forecast(world.shop.desired(), observed, now)
    assert (len(world.traffic.writes), world.memory.saves) == (count, saves)
    assert plan.steps
    done = len(world.tape.steps)
    summary = world.once()
    assert summary.exit == 0, summary.reasons
    expected, actual = shape(step.step for step in plan.steps), shape(world.tape.steps[done:])
    if after is not None:
        assert sorted(actual) == sorted(expected)
        assert [step for step in actual if "Container" in step[1]] == [
            step for step in expected if "Container" in step[1]
        ]
    else:
        assert [step for step in actual if step[1] != "ChangeRecords"] == [
            step for step in expected if step[1] != "ChangeRecords"
        ]


# --- read-back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CreateContainer, StartContainer, SetWeight, ChangeRecords])
def test_a_write_without_effect_is_noticed_and_repeated(kind, worlds):
    world = worlds(shop(replicas=1))
    world.traffic.lies, world.traffic.kinds = 1, (kind,)
    world.run(90 * SECOND)
    assert [
        outcome
        for outcome in world.tape.outcomes
        if outcome.kind is OutcomeKind.FAILED and "read back as" in outcome.message
    ]
    assert world.published() == (world.containers()[WEB.format(0)].address,)


def test_a_weight_without_effect_starts_no_drain(worlds):
    world = ready(worlds(shop(replicas=2)))
    world.traffic.lies, world.traffic.kinds = 3, (SetWeight,)
    world.push(shop(replicas=1))
    world.run(300 * SECOND)
    assert world.running() == [WEB.format(0)]  # the watchdog checked weight 0 and the whole drain before the stop


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.UNREACHABLE])
def test_lost_answers_converge_to_the_same_world(fault, worlds):
    world = worlds(shop())
    for provider in (NODE, POOLS, NAMES):
        world.fail_next(provider, *[fault] * 3)
    world.run(120 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    assert len(world.published()) == 3


# --- kills ------------------------------------------------------------------------------------------------------


def calm(**fields) -> Shop:
    """A shop with shorter times: the same events in fewer ticks."""
    return shop(ttl=5, drain=5 * SECOND, **fields)


def story(world: World) -> None:
    """A start, a failing replica, a new template, a smaller scale."""
    world.run(40 * SECOND)
    name = WEB.format(1)
    if name in world.containers():
        world.apps.sick.add(world.generation(name))
    world.run(60 * SECOND)
    world.push(calm(image="v2"))
    world.run(150 * SECOND)
    world.push(calm(image="v2", replicas=1))
    world.run(100 * SECOND)


def end_state(world: World) -> tuple:
    return world.running(), world.weights(), len(world.published()), len(world.dog.restarts)


@cache
def undisturbed() -> tuple[tuple, int]:
    """The end of the story without a kill, and the number of points for kills. Computed once for all shards."""
    world = World(calm())
    world.dog = Watchdog(world)
    try:
        story(world)
        return end_state(world), world.points
    finally:
        world.close()


@pytest.mark.parametrize("shard", range(4))
def test_a_kill_at_any_point_converges_without_a_second_restart(shard, worlds):
    wanted, points = undisturbed()
    assert wanted[0] == [f"shop-web-{Spec(image='v2').revision[:8]}-0"]
    assert wanted[3] == 1
    assert points > 100
    for point in range(shard * STRIDE // 4, points, STRIDE):
        world = worlds(calm())
        world.kill_in, world.cut = point, bool(point // STRIDE % 2)
        story(world)
        assert end_state(world) == wanted, f"killed at point {point}"
        assert world.lives == 2
        world.close()


def test_repeated_kills_only_delay_convergence(worlds):
    world = worlds(shop())
    for _ in range(30):
        world.kill_in = 5
        world.run(5 * SECOND)
    world.kill_in = -1
    world.run(60 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
