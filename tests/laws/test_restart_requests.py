"""Restart requests over whole runs: every replica is decided, none is restarted twice, the budget is kept."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Guard
from providers.actions import StartContainer, StopContainer
from providers.facts import ExitCause
from providers.testing.faults import Fault
from reconciler.core.forecast import forecast
from reconciler.core.healing.restart_requests import TTL
from reconciler.core.model.instant import instant
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.model.restart_request import FailurePolicy, Fate, Request
from reconciler.core.plan_text import to_text
from tests.laws.examples import examples
from tests.laws.helpers import WEB, ready, stops, watch_down
from tests.sim.manifest import HTTP, Shop, Spec, shop
from tests.sim.world import World


def ask(world: World, name: str = "r1", obj: str = "workload/web", **more: object) -> None:
    world.memory.request(name, Request(obj, instant(world.clock.now()), "ada", "new certificates", **more))


def fates(world: World, name: str = "r1") -> list[Fate]:
    return [member.fate for member in world.memory.ledger().requests[name].members or ()]


def stop_counts(world: World) -> Counter:
    return Counter(stops(world))


@pytest.fixture
def world():
    made = World(shop())
    ready(made)
    yield made
    made.close()


def test_every_replica_is_restarted_once_within_the_budget(world):
    down = watch_down(world)
    ask(world)
    world.run(400 * SECOND)
    assert fates(world) == [Fate.DONE] * 3
    assert stop_counts(world) == {WEB.format(n): 1 for n in range(3)}
    assert max(down) == 1
    assert world.memory.ledger().requests["r1"].succeeded


def test_a_request_can_name_one_replica(world):
    ask(world, obj="workload/web/1")
    world.run(200 * SECOND)
    assert stop_counts(world) == {WEB.format(1): 1}
    assert fates(world) == [Fate.DONE]


def test_a_replica_started_after_the_request_is_not_restarted(world):
    requested_at = instant(world.clock.now())
    world.run(SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    world.memory.request("late", Request("workload/web/0", requested_at, "ada", "as of then"))
    world.run(60 * SECOND)
    assert fates(world, "late") == [Fate.DONE]
    assert stop_counts(world) == {}


def test_a_replica_that_exits_by_itself_is_not_restarted_again(world):
    ask(world, ordered=True)
    world.run(2 * SECOND)
    world.runtime.exit(WEB.format(2))
    world.run(400 * SECOND)
    assert fates(world) == [Fate.DONE] * 3
    assert stop_counts(world) == {WEB.format(0): 1, WEB.format(1): 1}


def test_an_ordered_request_waits_for_each_replica(world):
    order: list[str] = []
    world.checks.append(lambda action: order.append(action.name) if isinstance(action, StopContainer) else None)
    ask(world, ordered=True, min_started=60 * SECOND)
    world.run(600 * SECOND)
    assert order == [WEB.format(n) for n in range(3)]
    started = [write.at for write in world.traffic.writes if isinstance(write.action, StartContainer)][-3:]
    assert all(later - earlier >= 60 * SECOND for earlier, later in pairwise(started))


def test_grace_and_drain_of_the_request_override_the_manifest(world):
    ask(world, obj="workload/web/0", grace=SECOND, drain=3 * SECOND)
    world.run(200 * SECOND)
    [stop] = [write.action for write in world.traffic.writes if isinstance(write.action, StopContainer)]
    assert stop.grace == SECOND


def test_a_failed_replica_ends_the_request_and_skips_the_rest(world):
    world.apps.slow[WEB.format(0)] = 10**6 * SECOND
    ask(world, ordered=True)
    world.run(400 * SECOND)
    assert fates(world) == [Fate.FAILED, Fate.SKIPPED, Fate.SKIPPED]
    assert not world.memory.ledger().requests["r1"].succeeded
    assert set(stop_counts(world)) <= {WEB.format(0)}


@pytest.mark.parametrize("slow", [3 * SECOND, 7 * SECOND])
def test_a_replica_that_is_slow_to_start_has_not_failed(world, slow):
    for ordinal in range(3):
        world.apps.slow[WEB.format(ordinal)] = slow
    ask(world, ordered=True)
    world.run(400 * SECOND)
    assert fates(world) == [Fate.DONE] * 3
    if slow < HTTP.period:  # else its liveness probe restarts it, as the manifest says
        assert stop_counts(world) == {WEB.format(ordinal): 1 for ordinal in range(3)}


def test_a_replica_that_exits_once_after_its_restart_has_not_failed(world):
    ask(world, obj="workload/web/0")
    while not stop_counts(world):
        world.run(SECOND)
    while WEB.format(0) not in world.running():
        world.run(SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(100 * SECOND)
    assert fates(world) == [Fate.DONE]


def test_a_replica_that_still_fails_at_the_deadline_has_failed(world):
    world.apps.slow[WEB.format(0)] = 10**6 * SECOND
    ask(world, obj="workload/web/0", deadline=60 * SECOND)
    world.run(70 * SECOND)
    assert fates(world) == [Fate.FAILED]
    assert "deadline" in world.memory.ledger().requests["r1"].members[0].message


def test_a_request_can_ignore_failures(world):
    world.apps.slow[WEB.format(0)] = 10**6 * SECOND
    ask(world, ordered=True, failure_policy=FailurePolicy.IGNORE, deadline=1200 * SECOND)
    world.run(1300 * SECOND)
    assert fates(world)[0] is Fate.FAILED
    assert all(fate in {Fate.DONE, Fate.EXPIRED} for fate in fates(world)[1:])


def test_a_suspended_request_expires_at_its_deadline(world):
    world.memory.say("suspend", "workload/web")
    ask(world, deadline=120 * SECOND)
    world.run(60 * SECOND)
    held = [hold for hold in world.tape.last.holds if hold.action.startswith("restart ")]
    assert {hold.rule for hold in held} == {Rule.SUSPENDED}
    world.run(90 * SECOND)
    assert fates(world) == [Fate.EXPIRED] * 3
    assert stop_counts(world) == {}


def test_a_suspended_node_holds_a_request_until_resume(world):
    world.memory.say("suspend", "node/node-a")
    ask(world, deadline=1200 * SECOND)
    world.run(60 * SECOND)
    assert stop_counts(world) == {}
    world.memory.say("resume", "node/node-a")
    world.run(400 * SECOND)
    assert fates(world) == [Fate.DONE] * 3


def test_a_denied_workload_is_not_restarted(world):
    world.close()
    world = World(Shop((Spec(),), guard=Guard(deny=frozenset({"workload/web"}))))
    world.shop = shop()
    ask(world, deadline=60 * SECOND)
    world.run(120 * SECOND)
    assert stop_counts(world) == {}
    world.close()


def test_two_requests_at_once_restart_a_member_once(world):
    ask(world)
    ask(world, "r2")
    world.run(400 * SECOND)
    assert fates(world) == fates(world, "r2") == [Fate.DONE] * 3
    assert set(stop_counts(world).values()) == {1}


def test_a_finished_request_is_forgotten_after_its_ttl(world):
    ask(world)
    world.run(400 * SECOND)
    world.run(TTL)
    assert world.memory.ledger().requests == {}


def test_a_request_without_replicas_finishes_at_once(world):
    ask(world, obj="workload/gone")
    world.run(5 * SECOND)
    request = world.memory.ledger().requests["r1"]
    assert request.finished is not None
    assert "no replicas" in request.message


def test_a_single_run_waits_until_the_request_is_decided(world):
    ask(world)
    summary = world.once()
    assert int(summary.exit) == 0
    assert fates(world) == [Fate.DONE] * 3


@pytest.fixture
def pods():
    """Replicas of two containers: `main` and `proxy`."""
    made = World(shop(sidecars=("proxy",)))
    ready(made)
    yield made
    made.close()


def starts(world: World) -> dict[str, tuple[int, int]]:
    """The start times of the two containers of each replica."""
    by_name = {name: container.starts for name, container in world.containers().items()}
    return {name: (starts_of[""].started_at, starts_of["proxy"].started_at) for name, starts_of in by_name.items()}


def test_a_request_for_one_container_keeps_the_budget(pods):
    before, down = starts(pods), watch_down(pods)
    ask(pods, only="proxy")
    pods.run(400 * SECOND)
    assert fates(pods) == [Fate.DONE] * 3
    assert max(down) == 1
    for name, (main, proxy) in starts(pods).items():
        assert main == before[name][0]
        assert proxy > before[name][1]
    assert set(stop_counts(pods).values()) == {1}
    assert {write.action.only for write in pods.traffic.writes if isinstance(write.action, StopContainer)} == {"proxy"}


def test_restarting_the_first_container_restarts_its_network_members(pods):
    before = starts(pods)
    ask(pods, obj="workload/web/1", only="main")
    pods.run(200 * SECOND)
    assert fates(pods) == [Fate.DONE]
    after = starts(pods)
    assert all(new > old for new, old in zip(after[WEB.format(1)], before[WEB.format(1)], strict=True))
    assert after[WEB.format(0)] == before[WEB.format(0)]


def test_a_sidecar_exit_is_no_restart_of_its_replica(pods):
    pods.memory.say("suspend", "workload/web")
    ask(pods, "whole", "workload/web/0")
    ask(pods, "part", "workload/web/1", only="proxy")
    pods.run(10 * SECOND)
    for name, only in ((WEB.format(0), "proxy"), (WEB.format(1), "")):
        pods.containers()[name].end(1, ExitCause.EXITED, pods.clock.now().steady, only)
    pods.memory.say("resume", "workload/web")
    pods.run(400 * SECOND)
    assert fates(pods, "whole") == fates(pods, "part") == [Fate.DONE]
    assert stop_counts(pods) == {WEB.format(0): 1}
    [stop] = [write.action for write in pods.traffic.writes if isinstance(write.action, StopContainer)]
    assert not stop.only


@pytest.mark.parametrize("sidecars", [(), ("proxy",)])
def test_an_unknown_container_ends_the_request_and_lists_existing_ones(sidecars):
    world = World(shop(sidecars=sidecars))
    try:
        ready(world)
        ask(world, only="prxy")
        world.run(30 * SECOND)
        request = world.memory.ledger().requests["r1"]
        assert request.finished is not None
        assert request.message == f"workload/web has no container prxy; it has: {', '.join(['main', *sidecars])}"
        assert stop_counts(world) == {}
    finally:
        world.close()


def test_a_plan_names_the_stopped_container_and_ends_with_the_request(pods):
    _, observed, now = pods.observe_once()
    request = Request("workload/web/0", instant(now), "ada", only="proxy")
    ledger = replace(observed.ledger, requests={"r1": request})
    text = to_text(forecast(pods.shop.desired(), replace(observed, ledger=ledger), now))
    assert text.count(f"stop {WEB.format(0)} only proxy grace 5s (Requested: out of rotation and drained)") == 1
    assert text.count(f": start {WEB.format(0)} (Requested: stopped for a restart)") == 1
    assert "request" not in text.partition("wait ")[2]


def test_requests_survive_a_round_trip_through_their_rows(world):
    ask(world)
    world.run(30 * SECOND)
    ledger = world.memory.ledger()
    assert from_rows(to_rows(ledger)) == ledger


@examples(20)
@given(kills=st.lists(st.integers(0, 60), max_size=4), lost=st.booleans(), only=st.sampled_from(["", "proxy"]))
def test_no_kill_causes_a_second_restart(kills, lost, only):
    world = World(shop(sidecars=("proxy",)))
    try:
        ready(world)
        ask(world, only=only)
        if lost:
            world.fail_next(world.nodes[0], Fault.LOST_REPLY)
        for after in kills:
            world.kill_in = after
            world.run(20 * SECOND)
        world.kill_in = -1
        world.run(500 * SECOND)
        assert fates(world) == [Fate.DONE] * 3
        assert all(count == 1 for count in stop_counts(world).values())
        requested = [step for step in world.tape.steps if step.cause is Reason.REQUESTED]
        assert requested
    finally:
        world.close()
