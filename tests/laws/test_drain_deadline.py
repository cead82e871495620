"""Replicas that push draining and do not exit: they are replaced once, after `push.drainDeadline`."""

from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND, Desired, Push
from manifests.values.limits import Mode
from manifests.values.rollouts import Rollout
from providers.actions import RemoveContainer, StopContainer
from reconciler.core.forecast import forecast
from reconciler.core.model.override import Force
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Rule
from reconciler.core.plan_text import to_text
from reconciler.shell.pushing.pushes import Sender
from tests.builders import NOW, SEEN, Scene
from tests.laws.helpers import WEB, ready
from tests.laws.test_traffic import Replica
from tests.sim.manifest import Shop, Spec
from tests.sim.world import World

DEADLINE = 120 * SECOND


@dataclass(frozen=True, slots=True)
class PushShop(Shop):
    """A shop whose replicas push, with a short deadline; in mode observe, restarts are only reported."""

    observe: bool = False
    deadline: int = DEADLINE

    def desired(self) -> Desired:
        made = super(PushShop, self).desired()
        workloads = []
        for workload in made.workloads:
            restarts = replace(workload.restarts, mode=Mode.OBSERVE) if self.observe else workload.restarts
            workloads.append(replace(workload, push=Push(drain_deadline=self.deadline), restarts=restarts))
        return replace(made, workloads=tuple(workloads))


def shop(observe: bool = False, deadline: int = DEADLINE, **fields) -> PushShop:
    return PushShop((Spec(ttl=1, **fields),), look_pools=SECOND, observe=observe, deadline=deadline)


def stops(world: World) -> list[str]:
    return [
        write.action.name
        for write in world.traffic.writes
        if isinstance(write.action, StopContainer) and write.effective
    ]


def overdue(world: World) -> list:
    return [hold for hold in world.tape.last.holds if hold.rule is Rule.DRAIN_DEADLINE]


def drain(world: World, number: int) -> str:
    assert Replica(world, number).push(PushEvent.DRAINING) == 200
    return world.containers()[WEB.format(number)].id


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_replica_that_does_not_exit_is_replaced_once(replicas, worlds):
    world = ready(worlds(shop(replicas=replicas)))
    old = drain(world, 0)
    world.run(100 * SECOND)
    assert not stops(world)
    assert world.weights()[WEB.format(0)] == 0
    world.run(60 * SECOND)
    assert world.containers()[WEB.format(0)].id != old
    world.run(1200 * SECOND)
    assert stops(world) == [WEB.format(0)]
    assert set(world.weights().values()) == {100}
    assert len(world.published()) == replicas
    assert not overdue(world)
    kept = [value for _, value in world.memory.evidence]
    assert [value["cause"] for value in kept] == ["DrainDeadline"]
    assert kept[0]["log"] is not None
    assert Replica(world, 0).push(PushEvent.READY) == 200


def test_a_replica_that_exits_by_itself_is_only_started_again(worlds):
    world = ready(worlds(shop(replicas=2)))
    old = drain(world, 0)
    world.run(60 * SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(600 * SECOND)
    assert world.containers()[WEB.format(0)].id == old
    assert not stops(world)
    assert world.weights()[WEB.format(0)] == 100


def test_every_generation_that_drains_is_replaced_once(worlds):
    world = ready(worlds(shop(replicas=2)))
    for _ in range(2):
        drain(world, 0)
        world.run(DEADLINE + 200 * SECOND)
    assert stops(world) == [WEB.format(0)] * 2


def test_replicas_that_drain_together_are_replaced_one_at_a_time(worlds):
    world = ready(worlds(shop(replicas=3)))
    down = []
    world.checks.append(lambda _: down.append(3 - len(world.running())))
    for number in range(3):
        drain(world, number)
    world.run(DEADLINE + 600 * SECOND)
    assert sorted(stops(world)) == [WEB.format(number) for number in range(3)]
    assert max(down) == 1
    assert set(world.weights().values()) == {100}


def test_limits_of_restarts_hold_the_replacement_with_its_age(worlds):
    world = ready(worlds(shop(replicas=2, observe=True)))
    drain(world, 0)
    at = world.clock.now().steady
    world.run(DEADLINE + 300 * SECOND)
    assert not stops(world)
    (hold,) = overdue(world)
    assert hold.since is not None
    assert abs(hold.since - at) < SECOND
    assert any(hold.rule is Rule.OBSERVE_ONLY for hold in world.tape.last.holds)


def test_a_suspended_workload_keeps_its_draining_replica(worlds):
    world = ready(worlds(shop(replicas=2)))
    drain(world, 0)
    world.push(shop(replicas=2, suspend=True))
    world.run(DEADLINE + 300 * SECOND)
    assert not stops(world)
    assert overdue(world)
    world.push(shop(replicas=2))
    world.run(200 * SECOND)
    assert stops(world) == [WEB.format(0)]


def test_a_replacement_counts_as_an_attempt(worlds):
    world = ready(worlds(shop(replicas=2, limit=1, window=3600 * SECOND)))
    for _ in range(2):
        drain(world, 0)
        world.run(DEADLINE + 200 * SECOND)
    assert stops(world) == [WEB.format(0)]
    assert any(hold.rule is Rule.RESTART_LIMIT for hold in world.tape.last.holds)


def test_a_replica_that_drains_for_ever_blocks_no_rollout(worlds):
    for observe in (False, True):
        world = ready(worlds(shop(replicas=3, observe=observe)))
        drain(world, 1)
        world.run(DEADLINE + 10 * SECOND)
        world.push(shop(replicas=3, observe=observe, image="v2"))
        world.run(900 * SECOND)
        assert len(world.running()) == 3
        assert not any(name.startswith(WEB.format("")[:-1]) for name in world.running())


def test_a_new_replica_that_drains_for_ever_lets_the_rollout_go_on(worlds):
    world = ready(worlds(shop(replicas=3, observe=True)))
    world.push(shop(replicas=3, observe=True, image="v2"))
    new = None
    while new is None:
        world.run(SECOND)
        new = next((name for name in world.weights() if world.weights()[name] and "77e94671" not in name), None)
    sender = Sender(container=world.containers()[new].id)
    assert world.life.loop.pushing.push(sender, PushEvent.DRAINING, "boot", 1, None).status == 200
    world.run(DEADLINE + 900 * SECOND)
    fresh = [name for name in world.running() if "77e94671" not in name]
    assert len(fresh) == 3


def test_an_operator_who_forces_it_up_keeps_it(worlds):
    world = ready(worlds(shop(replicas=2)))
    drain(world, 0)
    world.memory.say("force", "workload/web/0", value=Force.UP.value)
    world.run(DEADLINE + 300 * SECOND)
    assert not stops(world)
    assert world.weights()[WEB.format(0)] == 100


@pytest.mark.parametrize("cut", [False, True])
def test_a_kill_at_any_point_replaces_it_once(cut, worlds):
    for point in range(0, 60, 5):
        world = ready(worlds(shop(replicas=2)))
        drain(world, 0)
        world.run(DEADLINE - 2 * SECOND)
        world.kill_in, world.cut = point, cut
        world.run(400 * SECOND)
        assert stops(world) == [WEB.format(0)], point
        assert set(world.weights().values()) == {100}


def test_a_recreation_removes_the_old_container_once(worlds):
    world = ready(worlds(shop(replicas=2)))
    drain(world, 0)
    world.run(DEADLINE + 400 * SECOND)
    removed = [
        write.action.name
        for write in world.traffic.writes
        if isinstance(write.action, RemoveContainer) and write.effective
    ]
    assert removed == [WEB.format(0)]


def test_a_draining_replica_waits_until_its_deadline(worlds):
    world = ready(worlds(shop(replicas=2)))
    drain(world, 0)
    world.run(60 * SECOND)
    ledger = world.memory.ledger()
    assert not ledger.grants
    (wait,) = [wait for wait in world.tape.last.waits if wait.object == "workload/web/0"]
    assert wait.until is not None
    assert world.clock.now().steady < wait.until <= world.clock.now().steady + DEADLINE - 60 * SECOND


def test_a_plan_shows_the_whole_replacement():
    scene = Scene(Spec(replicas=2, publish=None))
    fact = scene.facts[0]
    push = PushFact(PushEvent.DRAINING, SEEN - 60 * SECOND, SEEN - 60 * SECOND, "boot", 1)
    world = replace(scene.observed(), pushes={fact.generation: push})
    text = to_text(forecast(shop(replicas=2, publish=None).desired(), world, NOW))
    lines = [line for line in text.splitlines() if "workload/web/0" in line]
    assert "stop shop-web-77e94671-0" in lines[0]
    assert "DrainDeadline" in lines[0]
    assert [word for line in lines for word in ("stop", "remove", "create", "start") if f": {word} " in line] == [
        "stop",
        "remove",
        "create",
        "start",
    ]


def test_after_a_failed_rollout_an_old_replica_is_restarted(worlds):
    rollout = Rollout(progress_deadline=60 * SECOND)
    world = ready(worlds(shop(replicas=3, rollout=rollout)))
    later = shop(replicas=3, rollout=rollout, image="v2")
    world.apps.mute |= {f"shop-web-{later.specs[0].revision[:8]}-{number}" for number in range(3)}
    world.push(later)
    world.run(120 * SECOND)
    drain(world, 1)
    world.run(DEADLINE + 200 * SECOND)
    assert stops(world).count(WEB.format(1)) == 1
    assert world.weights()[WEB.format(1)] == 100
