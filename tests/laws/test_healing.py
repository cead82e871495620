"""Laws of healing in simulated worlds: one canary, escalation, budgets, flapping and wrong probes, clocks, a frozen process."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from manifests.values.limits import Mode, Rate, RestartLimits
from providers.actions import CreateContainer, RemoveContainer, StopContainer
from providers.facts import ContainerState, ProbeValue
from reconciler.core.model.reasons import Reason, Rule
from tests.laws.examples import examples, stride
from tests.laws.helpers import LOOSE, MINUTE, QUICK, WEB, ready, stops, within
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World


def sicken(world: World, *ordinals: int) -> None:
    for ordinal in ordinals:
        world.apps.sick.add(world.generation(WEB.format(ordinal)))


def rules(world: World) -> set[Rule]:
    return {hold.rule for hold in world.tape.last.holds}


# --- mass failure -----------------------------------------------------------------------------------------------


def test_a_mass_failure_restarts_one_canary_and_keeps_traffic(worlds):
    world = ready(worlds(shop(replicas=6, max_unavailable=6, backoff=QUICK)))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(4 * MINUTE)
    assert len(stops(world)) == 1
    assert Rule.MASS_FAILURE in rules(world)
    # The canary leaves and returns: its readiness passes. All others have kept their weight.
    assert sum(1 for weight in world.weights().values() if weight) >= 5
    assert len(world.published()) >= 5


@pytest.mark.parametrize(("replicas", "readiness"), [(2, True), (5, False)])
def test_a_wrong_liveness_probe_never_empties_a_pool(replicas, readiness, worlds):
    world = ready(worlds(shop(replicas=replicas, readiness=readiness, backoff=QUICK)))
    least = []
    world.checks.append(lambda _: least.append(sum(1 for weight in world.weights().values() if weight)))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(60 * MINUTE)
    assert len(set(stops(world))) >= 2, "several were restarted without success, each without weight for that time only"
    assert min(least) >= replicas - 1
    assert set(world.weights().values()) == {100}


def test_a_replica_failing_readiness_stays_at_weight_0_in_a_mass_failure(worlds):
    world = ready(worlds(shop(replicas=4, backoff=QUICK)))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.apps.mute.add(WEB.format(0))
    world.run(60 * MINUTE)
    assert world.weights() == {WEB.format(0): 0, **{WEB.format(n): 100 for n in (1, 2, 3)}}


def test_each_failed_canary_lengthens_the_wait(worlds):
    world = ready(worlds(shop(replicas=4, max_unavailable=4, backoff=QUICK)))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(60 * MINUTE)
    at = [write.at for write in world.traffic.writes if isinstance(write.action, StopContainer) and write.effective]
    assert 3 <= len(at) <= 5
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(pauses)), pauses
    hold = next(hold for hold in world.tape.last.holds if hold.rule is Rule.MASS_FAILURE and hold.until is not None)
    assert "suspect" in hold.message


def test_after_a_successful_canary_all_are_restarted_one_by_one(worlds):
    guard = replace(LOOSE, restarts=replace(LOOSE.restarts, in_flight=2))
    world = ready(worlds(Shop((Spec(replicas=4, max_unavailable=4, backoff=QUICK),), guard=guard)))
    sicken(world, 0, 1, 2, 3)
    most = [0]

    def count(action):
        down = [item for item in world.containers().values() if item.state is not ContainerState.RUNNING]
        most.append(len(down))

    world.checks.append(count)
    world.run(10 * MINUTE)
    assert sorted(stops(world)) == [WEB.format(n) for n in range(4)]
    assert max(most) == 1
    assert not world.tape.last.holds


def test_half_of_the_replicas_failing_is_a_mass_failure_one_is_not(worlds):
    world = ready(worlds(shop(replicas=6)))
    sicken(world, 0)
    world.run(15 * SECOND)
    assert Rule.MASS_FAILURE not in rules(world)
    world.run(5 * MINUTE)
    sicken(world, 1, 2, 3)
    world.run(12 * SECOND)
    assert Rule.MASS_FAILURE in rules(world)
    world.run(20 * MINUTE)
    assert len(world.running()) == 6
    assert not world.tape.last.holds


def test_a_mass_failure_of_a_node_restarts_one_canary(worlds):
    names = ("a", "b", "c", "d")
    world = ready(worlds(Shop(tuple(Spec(name=name, replicas=1, pools=(name,)) for name in names), guard=LOOSE)))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(4 * MINUTE)
    assert len(stops(world)) == 1
    held = [
        hold.object
        for hold in world.tape.last.holds
        if hold.rule is Rule.MASS_FAILURE and hold.action.startswith("restart")
    ]
    assert len(held) >= 3


@examples(15)
@given(replicas=st.integers(2, 6), budget=st.integers(0, 6), spread=st.integers(0, 6), first=st.integers(0, 5))
def test_a_group_that_fails_at_once_has_exactly_one_canary(replicas, budget, spread, first):
    world = World(Shop((Spec(replicas=replicas, max_unavailable=budget, backoff=QUICK),), guard=LOOSE))
    dog = Watchdog(world)
    try:
        world.run(90 * SECOND)
        order = [(first + n) % replicas for n in range(replicas)]
        for ordinal in order:
            world.apps.cursed.add(WEB.format(ordinal))
            world.run(spread * SECOND // replicas)
        world.run(3 * MINUTE)
        assert len(dog.restarts) == 1
    finally:
        world.close()


# --- escalation -------------------------------------------------------------------------------------------------


def failing_for_good(worlds) -> World:
    world = ready(worlds(shop(replicas=3, backoff=QUICK, limit=100)))
    world.apps.cursed.add(WEB.format(1))
    return world


def test_a_permanent_failure_is_restarted_recreated_and_given_up(worlds):
    world = failing_for_good(worlds)
    world.run(15 * MINUTE)
    causes = [step.cause for step in world.tape.steps if isinstance(step.action, StopContainer)]
    assert causes == [Reason.LIVENESS_FAILED] * 3 + [Reason.RECREATE] + [Reason.LIVENESS_FAILED] * 3
    assert world.traffic.count(RemoveContainer) == 1
    assert world.traffic.count(CreateContainer) == 4
    assert Rule.FAILED in rules(world)
    assert [escalation.tries for escalation in world.memory.ledger().escalations.values()] == [7]
    assert WEB.format(1) in world.running()
    assert not world.weights().get(WEB.format(1))
    count = len(stops(world))
    world.restart()
    world.run(30 * MINUTE)
    assert len(stops(world)) == count


def test_a_new_template_clears_the_escalation(worlds):
    world = failing_for_good(worlds)
    world.run(15 * MINUTE)
    world.push(shop(replicas=3, backoff=QUICK, limit=100, image="v2"))
    world.run(10 * MINUTE)
    assert world.running() == [f"shop-web-{Spec(image='v2').revision[:8]}-{n}" for n in range(3)]
    assert not world.memory.ledger().escalations
    assert not world.tape.last.holds


@pytest.mark.parametrize("key", ["workload/web/1", "workload/web", "*"])
def test_resume_allows_another_restart(worlds, key):
    world = failing_for_good(worlds)
    world.run(15 * MINUTE)
    world.apps.cursed.clear()
    sicken(world, 1)
    world.run(5 * MINUTE)
    count = len(stops(world))
    assert Rule.FAILED in rules(world)
    world.memory.say("resume", key)
    world.run(5 * MINUTE)
    assert len(stops(world)) == count + 1
    assert not world.tape.last.holds
    assert not world.memory.ledger().escalations


def test_a_kill_at_any_point_of_a_recreation_converges(worlds):
    for point in range(0, 60, stride(search=1, ci=7)):
        world = World(shop(replicas=2, backoff=QUICK, limit=100))
        dog = Watchdog(world)
        try:
            world.run(90 * SECOND)
            world.apps.cursed.add(WEB.format(1))
            while world.traffic.count(StopContainer) < 3:
                world.run(10 * SECOND)
            world.kill_in, world.cut = point, point % 2 == 1
            world.run(2 * MINUTE)
            world.kill_in = -1
            world.apps.cursed.clear()
            world.run(6 * MINUTE)
            assert len(world.running()) == 2
            assert not world.memory.ledger().grants
            assert dog.restarts
        finally:
            world.close()


# --- budget and modes -------------------------------------------------------------------------------------------


@given(
    replicas=st.integers(1, 5),
    budget=st.integers(0, 3),
    events=st.lists(
        st.tuples(st.sampled_from(["sick", "mute", "crash", "roll", "kill", "back", "resume"]), st.integers(0, 4)),
        min_size=3,
        max_size=8,
    ),
)
def test_restarts_never_take_down_more_than_the_budget(replicas, budget, events):
    spec = Spec(replicas=replicas, max_unavailable=budget, backoff=QUICK, drain=2 * SECOND, ttl=2)
    world = World(Shop((spec,), guard=LOOSE))
    Watchdog(world)
    ours: list[str] = []

    def check(action):
        if isinstance(action, StopContainer):
            ours.append(action.name)
        down = {
            name
            for name in set(ours)
            if (item := world.containers().get(name)) is not None and item.state is not ContainerState.RUNNING
        }
        assert len(down) <= max(1, budget), down

    world.checks.append(check)
    try:
        world.run(60 * SECOND)
        image = 1
        for event, number in events:
            names = world.running()
            name = names[number % len(names)] if names else ""
            if event == "sick" and name:
                world.apps.sick.add(world.generation(name))
            elif event == "mute" and name:
                world.apps.unready.add(world.generation(name))
            elif event == "crash" and name:
                world.runtime.exit(name)
            elif event == "roll":
                image += 1
                world.push(replace(world.shop, specs=(replace(spec, image=f"v{image}"),)))
            elif event == "kill":
                world.kill()
            elif event == "back":
                world.clock.step_wall(-3600 * SECOND)
            world.run(20 * SECOND)
    finally:
        world.close()


def test_observe_mode_reports_restarts_and_does_none(worlds):
    guard = replace(LOOSE, restarts=replace(LOOSE.restarts, mode=Mode.OBSERVE))
    world = ready(worlds(Shop((Spec(),), guard=guard)))
    sicken(world, 1)
    world.run(5 * MINUTE)
    assert not stops(world)
    assert rules(world) == {Rule.OBSERVE_ONLY}
    assert world.weights()[WEB.format(1)] == 0
    world.push(Shop((Spec(),), guard=LOOSE))
    world.run(2 * MINUTE)
    assert stops(world) == [WEB.format(1)]


# --- wrong probes, clocks, a frozen process ---------------------------------------------------------------------


def test_a_flapping_probe_causes_no_more_restarts_than_its_limits(worlds):
    world = ready(worlds(shop(replicas=3)))
    world.apps.flaps[WEB.format(1), "liveness"] = 30 * SECOND
    world.run(60 * MINUTE)
    assert len(stops(world)) <= 16  # back-off of 10 s doubling to 5 min, of which the jitter takes up to a quarter
    assert set(stops(world)) <= {WEB.format(1)}


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_step_of_the_clock_refills_no_limit(worlds, step):
    world = ready(worlds(shop(replicas=2, backoff=QUICK, limit=2, window=300 * SECOND)))
    world.apps.cursed.add(WEB.format(1))
    world.run(90 * SECOND)
    count = len(stops(world))
    for _ in range(4):
        world.clock.step_wall(step * SECOND)
        world.run(20 * SECOND)
    assert len(stops(world)) <= max(2, count)


def test_a_frozen_process_restarts_nothing_for_missed_probes(worlds):
    world = ready(worlds(shop(replicas=3)))
    world.clock.advance(20 * MINUTE)
    world.run(2 * MINUTE)
    assert not stops(world)
    assert set(world.weights().values()) == {100}


@examples(12)
@given(events=st.lists(st.sampled_from(["kill", "restart", "back", "forth", "points", "run"]), min_size=4, max_size=10))
def test_rate_limits_hold_across_kills_and_clock_steps(events):
    specs = tuple(Spec(name=f"w{n}", replicas=3, pools=(), publish=None, limit=100, backoff=QUICK) for n in range(3))
    limits = RestartLimits(workload=Rate(1, 2), node=Rate(3, 3), in_flight=9)
    world = World(Shop(specs, guard=replace(LOOSE, restarts=limits)))
    dog = Watchdog(world)
    try:
        world.run(60 * SECOND)
        for spec in specs:
            world.apps.cursed.add(f"shop-{spec.name}-{spec.revision[:8]}-0")
            world.run(21 * SECOND)
        for event in events:
            if event == "restart":
                world.restart()
            elif event == "kill":
                world.kill()
            elif event == "points":
                world.kill_in, world.cut = 9, not world.cut
            elif event in {"back", "forth"}:
                world.clock.step_wall((-1 if event == "back" else 1) * 7200 * SECOND)
            world.run(50 * SECOND)
        for spec in specs:
            within(Rate(1, 2), [at for at, replica, _ in dog.restarts if replica.startswith(f"{spec.key}/")])
        within(Rate(3, 3), [at for at, _, _ in dog.restarts])
        assert len(dog.restarts) >= 3
    finally:
        world.close()


def test_a_replica_that_allows_no_restart_is_reported_and_left_alone(worlds):
    world = ready(worlds(shop(limit=0)))
    world.apps.sick = {world.generation(WEB.format(0))}
    world.run(10 * MINUTE)
    assert not stops(world)
    (held,) = (hold for hold in world.tape.last.holds if hold.rule is Rule.RESTART_LIMIT)
    assert held.until is None
    assert "spec.restarts.limit" in held.next_step
