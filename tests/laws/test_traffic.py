"""Whole runs with pushes, drains by requests in flight, overrides, ramps, and another writer of weights."""

from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND, Desired, Push
from manifests.values.traffic import Ramp
from providers.actions import CutSessions, SetWeight, StopContainer
from providers.facts import ContainerState
from reconciler.core.model.push_fact import PushEvent
from reconciler.core.model.reasons import Rule
from reconciler.shell.pushing.pushes import Sender
from tests.laws.examples import stride
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import POOLS, Shop, Spec
from tests.sim.world import Killed, World


@dataclass(frozen=True, slots=True)
class Busy(Spec):
    """Replicas that leave as soon as they have no requests in flight."""

    @property
    def quiet(self) -> int:
        return 2 * SECOND


@dataclass(frozen=True, slots=True)
class PushShop(Shop):
    """A shop whose replicas push their state."""

    ramp: Ramp | None = None

    def desired(self) -> Desired:
        made = super(PushShop, self).desired()
        pushing = tuple(replace(workload, push=Push()) for workload in made.workloads)
        return replace(
            made, workloads=pushing, services=tuple(replace(service, ramp=self.ramp) for service in made.services)
        )


def busy(**fields) -> PushShop:
    return replace(PushShop((Busy(drain=30 * SECOND, ttl=1, **fields),)), look_pools=SECOND)


class Replica:
    """One replica that pushes."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.name, self.seq = world, WEB.format(number), 0

    def push(self, event: PushEvent, inflight: int | None = None) -> int:
        item = self.world.containers()[self.name]
        self.seq += 1
        ruling = self.world.life.loop.pushing.push(
            Sender(container=item.id), event, f"boot-{item.started_at}", self.seq, inflight
        )
        return ruling.status


def member(world: World, number: int):
    address = world.containers()[WEB.format(number)].address
    pool = world.outside.pools[POOLS]["web"]
    return next(member for endpoint, member in pool.items() if endpoint.address == address)


def since(world: World, count: int, kind: type) -> list[int]:
    return [
        write.at
        for write in world.traffic.writes[count:]
        if isinstance(write.action, kind) and (write.effective or kind is CutSessions)
    ]


def down(world: World, count: int) -> int:
    return next(w.at for w in world.traffic.writes[count:] if isinstance(w.action, SetWeight) and not w.action.weight)


# --- drains -----------------------------------------------------------------------------------------------------


def test_an_idle_endpoint_leaves_after_the_minimum_drain(worlds):
    world = ready(worlds(busy(replicas=2)))
    count = len(world.traffic.writes)
    world.push(busy(replicas=1))
    world.run(20 * SECOND)
    (stop,) = since(world, count, StopContainer)
    assert 2 * SECOND <= stop - down(world, count) <= 4 * SECOND


def test_a_busy_endpoint_leaves_after_its_last_request(worlds):
    world = ready(worlds(busy(replicas=2)))
    count = len(world.traffic.writes)
    member(world, 1).in_flight = 3
    world.push(busy(replicas=1))
    world.run(20 * SECOND)
    assert world.weights()[WEB.format(1)] == 0
    assert WEB.format(1) in world.running()
    member(world, 1).in_flight = 0
    world.run(6 * SECOND)
    assert world.running() == [WEB.format(0)]
    assert not since(world, count, CutSessions)


def test_endless_requests_are_cut_after_the_maximum_drain(worlds):
    world = ready(worlds(busy(replicas=2)))
    count = len(world.traffic.writes)
    member(world, 1).in_flight = 3
    world.push(busy(replicas=1))
    world.run(120 * SECOND)
    (cut,), (stop,) = since(world, count, CutSessions), since(world, count, StopContainer)
    assert cut - down(world, count) >= 30 * SECOND
    assert stop >= cut
    assert world.running() == [WEB.format(0)]


def test_a_balancer_reload_during_a_drain_extends_it_to_the_maximum(worlds):
    world = ready(worlds(busy(replicas=2)))
    count = len(world.traffic.writes)
    member(world, 1).in_flight = 3
    world.push(busy(replicas=1))
    world.run(8 * SECOND)
    world.pools.restart()
    for endpoint in world.outside.pools[POOLS]["web"].values():
        endpoint.in_flight = 0
    world.run(100 * SECOND)
    (stop,) = since(world, count, StopContainer)
    assert stop - down(world, count) >= 30 * SECOND
    assert world.weights() == {WEB.format(0): 100}


def test_destroy_drains_as_long_as_the_manifests_say(worlds):
    slow = Shop((Spec(replicas=2, ttl=1, drain=25 * SECOND),))
    world = ready(worlds(slow))
    world.shop = replace(slow, destroy=True)
    count = len(world.traffic.writes)
    world.once()
    stops = since(world, count, StopContainer)
    assert len(stops) == 2
    assert min(stops) - down(world, count) >= 25 * SECOND
    assert not world.containers()
    assert not world.weights()
    assert not world.published()


def test_a_pruned_replica_drains_by_its_last_manifest_across_restarts(
    worlds,
):
    both = Shop((Spec(), Spec("api", replicas=2, pools=("api",), drain=25 * SECOND, publish=None)), prune=True)
    world = ready(worlds(both))
    world.push(replace(both, specs=(Spec(), replace(both.specs[1], drain=40 * SECOND))))
    world.run(30 * SECOND)
    world.kill()
    count = len(world.traffic.writes)
    world.push(replace(both, specs=(Spec(),)))
    world.run(200 * SECOND)
    stops = since(world, count, StopContainer)
    assert len(stops) == 2
    assert 40 * SECOND <= min(stops) - down(world, count) <= 60 * SECOND
    assert sorted(world.running()) == [WEB.format(n) for n in range(3)]
    world.run(60 * SECOND)
    assert set(world.memory.ledger().exit_times) == {"workload/web"}


def test_a_destroy_killed_anywhere_is_finished_by_the_next_one(worlds):
    shop, point, killed = Shop((Spec(replicas=2, ttl=5, drain=7 * SECOND),)), 0, True
    while killed:
        world = ready(worlds(shop))
        world.kill()
        world.shop, world.kill_in, killed = replace(shop, destroy=True), point, False
        try:
            world.once()
        except Killed:
            killed = True
        world.kill_in = -1
        world.once()
        assert (world.containers(), world.weights(), world.published()) == ({}, {}, ()), f"killed at point {point}"
        world.close()
        point += stride(search=1, ci=1)
    assert point > 30


# --- pushes -----------------------------------------------------------------------------------------------------


def test_a_draining_push_removes_the_weight_across_a_kill(worlds):
    world = ready(worlds(busy(replicas=3)))
    replica = Replica(world, 1)
    assert replica.push(PushEvent.DRAINING, 2) == 200
    world.run(SECOND)
    assert world.weights()[WEB.format(1)] == 0
    assert WEB.format(1) in world.running()
    world.kill()
    world.run(300 * SECOND)
    assert world.weights()[WEB.format(1)] == 0
    world.runtime.exit(WEB.format(1))
    world.run(60 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


def test_a_not_ready_push_expires_and_a_ready_push_outranks_the_probe(worlds):
    world = ready(worlds(busy(replicas=3)))
    replica = Replica(world, 1)
    replica.push(PushEvent.NOT_READY)
    world.run(59 * SECOND)
    assert world.weights()[WEB.format(1)] == 0
    world.run(10 * SECOND)
    assert world.weights()[WEB.format(1)] == 100
    world.apps.mute.add(WEB.format(1))
    for _ in range(6):
        replica.push(PushEvent.READY)
        world.run(10 * SECOND)
    assert world.weights()[WEB.format(1)] == 100
    world.run(60 * SECOND)
    assert world.weights()[WEB.format(1)] == 0


def test_a_dead_container_keeps_no_weight_despite_its_push(worlds):
    world = ready(worlds(busy(replicas=2)))
    Replica(world, 1).push(PushEvent.READY)
    world.apps.start_delay = 100 * SECOND
    world.runtime.exit(WEB.format(1))
    world.run(20 * SECOND)
    assert not world.weights().get(WEB.format(1))


# --- overrides, other writers, ramps ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["drain", "release"])
def test_a_drain_override_survives_a_restart_until_release(verb, worlds):
    world = ready(worlds(busy(replicas=3)))
    world.memory.say("drain", "workload/web/1")
    world.run(10 * SECOND)
    assert world.weights()[WEB.format(1)] == 0
    world.kill()
    world.runtime.exit(WEB.format(1))
    world.run(60 * SECOND)
    assert not world.weights().get(WEB.format(1))
    if verb == "release":
        world.memory.say("release", "workload/web/1")
        world.run(30 * SECOND)
        assert world.weights()[WEB.format(1)] == 100
    assert world.containers()[WEB.format(1)].state is ContainerState.RUNNING


def test_a_conflicting_writer_is_reported_and_the_conflict_ends(worlds):
    world = ready(worlds(busy(replicas=2)))
    count = len(world.traffic.writes)
    for _ in range(40):
        member(world, 1).weight = 7
        world.run(3 * SECOND)
    assert len(since(world, count, SetWeight)) == 2
    assert any(hold.rule is Rule.CONFLICTING_WRITER for hold in world.tape.last.holds)


def test_lost_weights_of_a_balancer_are_restored_within_a_look(worlds):
    world = ready(worlds(busy(replicas=3)))
    world.pools.restart()
    for endpoint in world.outside.pools[POOLS]["web"].values():
        endpoint.weight = 0
    world.run(3 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    assert not any(hold.rule is Rule.CONFLICTING_WRITER for hold in world.tape.last.holds)


def test_a_ramp_grows_in_steps_and_survives_a_kill(worlds):
    shop = replace(busy(replicas=1), ramp=Ramp(30 * SECOND, 10))
    world = worlds(shop)
    weights = []
    world.checks.append(lambda action: weights.append(action.weight) if isinstance(action, SetWeight) else None)
    world.run(15 * SECOND)
    world.kill()
    world.run(60 * SECOND)
    assert weights[0] == 10
    assert weights == sorted(weights)
    assert weights[-1] == 100
    assert len(weights) > 10


TEN_MINUTES = Ramp(600 * SECOND, 10)


def lowered(world: World, count: int) -> list[tuple[str, int, int]]:
    """The cuts since then: (container, weight before, weight after)."""
    actions = [write.action for write in world.traffic.writes[count:] if isinstance(write.action, SetWeight)]
    return [(action.name, action.before, action.weight) for action in actions if action.weight < (action.before or 0)]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (None, TEN_MINUTES),
        (Ramp(5 * SECOND, 10), TEN_MINUTES),
        (Ramp(40 * SECOND, 80), Ramp(40 * SECOND, 1)),
        (Ramp(40 * SECOND, 10), Ramp(400 * SECOND, 1)),
    ],
    ids=["added", "lengthened", "lower share", "lengthened and lower in the middle"],
)
def test_no_change_of_a_ramp_takes_weight_away(first, then, kill, worlds):
    world = worlds(replace(busy(replicas=2), ramp=first))
    world.run(25 * SECOND)
    before, count = world.weights(), len(world.traffic.writes)
    assert all(before.values())
    world.push(replace(busy(replicas=2), ramp=then))
    if kill:
        world.kill()
    world.run(20 * SECOND)
    assert not lowered(world, count)
    assert all(world.weights()[name] >= weight for name, weight in before.items())
    world.run(700 * SECOND)
    assert set(world.weights().values()) == {100}


def test_a_ramp_added_between_write_and_read_back_cuts_nothing(worlds):
    world = worlds(busy(replicas=2))
    for _ in range(200):
        world.run(SECOND // 10)
        if set(world.weights().values()) == {100}:
            break
    world.kill()
    world.push(replace(busy(replicas=2), ramp=TEN_MINUTES))
    count = len(world.traffic.writes)
    world.run(60 * SECOND)
    assert not lowered(world, count)
    assert set(world.weights().values()) == {100}


@pytest.mark.parametrize("lost", [0, 1, 100], ids=["to nothing", "to one", "to another value"])
def test_weights_lost_by_a_balancer_come_back_without_a_ramp(lost, worlds):
    world = ready(worlds(busy(replicas=3)))
    world.push(replace(busy(replicas=3), ramp=TEN_MINUTES))
    world.run(5 * SECOND)
    world.pools.restart()
    for endpoint in world.outside.pools[POOLS]["web"].values():
        endpoint.weight = lost
    world.run(3 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


def test_a_weight_that_another_writer_took_comes_back_without_a_ramp(worlds):
    world = ready(worlds(busy(replicas=2)))
    world.push(replace(busy(replicas=2), ramp=TEN_MINUTES))
    world.run(5 * SECOND)
    member(world, 1).weight = 7
    world.run(3 * SECOND)
    assert world.weights()[WEB.format(1)] == 100


def test_a_growing_weight_that_another_writer_raised_is_set_back(worlds):
    world = worlds(replace(busy(replicas=2), ramp=TEN_MINUTES))
    world.run(60 * SECOND)
    member(world, 1).weight = 100
    world.run(5 * SECOND)
    assert world.weights()[WEB.format(1)] < 50


def test_a_lost_ledger_during_a_ramp_takes_no_weight_away(worlds):
    world = worlds(replace(busy(replicas=2), ramp=Ramp(60 * SECOND, 10)))
    world.run(40 * SECOND)
    before, count = world.weights(), len(world.traffic.writes)
    world.kill()
    world.memory.rows.clear()
    world.push(replace(busy(replicas=2), ramp=TEN_MINUTES))
    world.run(20 * SECOND)
    assert not lowered(world, count)
    assert all(world.weights()[name] >= weight for name, weight in before.items())


def test_a_ramp_added_before_a_drain_does_not_slow_the_return(worlds):
    world = ready(worlds(busy(replicas=2)))
    world.push(replace(busy(replicas=2), ramp=TEN_MINUTES))
    world.memory.say("drain", "workload/web/1")
    world.run(10 * SECOND)
    assert world.weights()[WEB.format(1)] == 0
    world.memory.say("release", "workload/web/1")
    world.run(3 * SECOND)
    assert world.weights()[WEB.format(1)] == 100


def test_an_endpoint_forced_up_gets_its_full_weight_without_a_ramp(worlds):
    world = worlds(replace(busy(replicas=2), ramp=TEN_MINUTES))
    world.run(30 * SECOND)
    assert 0 < world.weights()[WEB.format(1)] < 30
    world.memory.say("force", "workload/web/1", value="up")
    world.run(5 * SECOND)
    assert world.weights()[WEB.format(1)] == 100
    world.memory.say("release", "workload/web/1")
    world.run(10 * SECOND)
    assert world.weights()[WEB.format(1)] == 100
    assert world.weights()[WEB.format(0)] < 50


@pytest.mark.parametrize(("weight", "least"), [(200, 55), (40, 40)], ids=["raised", "lowered"])
def test_a_ramp_goes_on_from_where_it_is_when_the_weight_changes(weight, least, worlds):
    ramp = Ramp(60 * SECOND, 10)
    world = worlds(replace(busy(replicas=2), ramp=ramp))
    world.run(40 * SECOND)
    before = world.weights()
    assert all(50 <= now < 100 for now in before.values())
    written = []
    world.checks.append(lambda action: written.append(action.weight) if isinstance(action, SetWeight) else None)
    world.push(replace(busy(replicas=2, weight=weight), ramp=ramp))
    world.run(60 * SECOND)
    assert min(written) >= least
    assert set(world.weights().values()) == {weight}
