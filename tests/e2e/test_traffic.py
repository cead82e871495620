"""Replicas leave and come back under load on real containers and a real balancer, and no client notices."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from reconciler.shell.clock import SystemClock
from tests.e2e.edge_world import until
from tests.e2e.traffic_world import Agent, Load, Traffic, serving

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy")]


def busy(load: Load, more: int = 20) -> None:
    """Wait until clients have had that many further answers: what is tried next happens under load."""
    start = load.total
    until(lambda: load.total >= start + more, f"{more} more requests")


def stops_of(world: Traffic, replica: str) -> list[int]:
    """When stops of a replica were begun (wall, ns)."""
    return [began for name, began, _ in world.journal("stop") if name == replica]


def writes(world: Traffic) -> int:
    """How many weights were written so far."""
    return sum(" done " in line and ": weight " in line for line in world.log().splitlines())


def test_drains_restarts_and_replacements_fail_no_request(engine: str):
    with serving(engine) as world, world.load() as load:
        busy(load)
        first, *others = world.containers()
        before = world.started_at()
        world.tell("drain", "workload/web/0", "--for", "5m", "--reason", "looking into a leak")
        until(lambda: world.weight(first) == 0, "the drained one has no weight")
        assert world.endpoint(first)["override"]["reason"] == "looking into a leak"
        busy(load)
        assert all(world.weight(other) == 100 for other in others)
        world.tell("release", "workload/web/0")
        world.settle()
        assert world.started_at() == before, "a replica that the operator drained is not stopped"
        world.tell("restart", "workload/web", "--wait", "--reason", "new certificates")
        world.settle()
        assert set(world.started_at()) == set(before)
        assert not set(world.started_at().values()) & set(before.values())
        busy(load)
        world.edit('"value": "1"', '"value": "2"')
        until(lambda: not set(before) & set(world.containers()), "all were replaced")
        world.settle()
        busy(load)
    load.check(200)


def test_a_drain_ends_after_its_minimum_or_with_the_last_request(engine: str):
    with serving(engine, drain=("1s", "200s")) as world, ThreadPoolExecutor(6) as pool:
        idle = SystemClock().now().wall
        world.tell("restart", "workload/web/0", "--wait")
        [stopped] = stops_of(world, "workload/web/0")
        assert 1 <= (stopped - idle) / 1e9 < 200
        world.settle()
        victim = world.containers()[1]
        held = [pool.submit(world.fetch, "/hold") for _ in range(6)]
        until(lambda: world.under_way() >= 6, "all six are under way")
        assert world.under_way(victim)
        begun = SystemClock().now().wall
        world.tell("restart", "workload/web/1")
        until(lambda: world.weight(victim) == 0, "it drains")
        time.sleep(4)  # without its requests it would have been stopped by now
        assert not stops_of(world, "workload/web/1")
        world.go(*world.containers())
        assert [request.result() for request in held]
        until(lambda: stops_of(world, "workload/web/1") != [], "it was stopped")
        [stopped] = stops_of(world, "workload/web/1")
        assert (stopped - begun) / 1e9 < 200, "it waited for its requests, and not for the longest drain"


def test_a_balancer_reload_in_a_drain_cuts_no_request_and_keeps_weights(engine: str):
    with serving(engine, drain=("1s", "12s")) as world, ThreadPoolExecutor(6) as pool, world.load() as load:
        busy(load)
        victim, *others = world.containers()
        held = [pool.submit(world.fetch, "/hold") for _ in range(6)]
        until(lambda: world.under_way() >= 6, "all six are under way")
        asked = SystemClock().now().wall
        world.tell("restart", "workload/web/0")
        until(lambda: world.weight(victim) == 0, "it drains")
        world.reload()
        assert world.weight(victim) == 0
        assert [world.weight(other) for other in others] == [100, 100]
        world.go(victim, *others)
        assert len({one.result() for one in held}) > 1, "several replicas had one"
        until(lambda: stops_of(world, "workload/web/0") != [], "it was stopped")
        [stopped] = stops_of(world, "workload/web/0")
        assert (stopped - asked) / 1e9 >= 12, "what the new process counts says nothing of what the old one has"
        world.settle()
        busy(load)
    load.check(100)


def test_a_request_that_outlasts_the_longest_drain_is_cut_and_no_other(engine: str):
    with serving(engine, drain=("1s", "3s")) as world, ThreadPoolExecutor(6) as pool:
        victim, *others = world.containers()
        held = [pool.submit(world.fetch, "/hold") for _ in range(6)]
        until(lambda: world.under_way() >= 6, "all six are under way")
        count = world.under_way(victim)
        assert 0 < count < 6, "several replicas have one"
        world.tell("restart", "workload/web/0", "--wait")
        world.go(*others)
        assert len([request for request in held if request.exception() is not None]) == count
        assert ": cut sessions of " in world.log(), "the cut is logged"


def test_an_operator_who_keeps_changing_a_weight_is_reported_not_fought(engine: str):
    with serving(engine) as world:
        victim = world.containers()[0]

        def reported() -> bool:
            # A change that comes before our own was read back is repaired without being counted: so again and again.
            if world.weight(victim) == 100:
                world.set_weight(victim, 7)
            return "ConflictingWriter" in world.log()

        until(reported, "the conflict is logged")
        held = [hold for hold in world.held() if hold["rule"] == "ConflictingWriter"]
        assert held, world.held()
        assert "100" in held[0]["message"]
        assert "7" in held[0]["message"]
        assert world.weight(victim) == 7, "the weight is not fought"


def test_weights_that_an_agent_check_writes_are_reported_and_not_fought(engine: str):
    with Agent("10%\n") as agent:
        slots = f"agent-check agent-addr 127.0.0.1 agent-port {agent.port} agent-inter 300ms"
        with serving(engine, slots=slots, settled=False) as world:
            until(lambda: world.log().count("(ConflictingWriter: ") >= 3, "the conflict is logged for all three")
            held = [hold for hold in world.held() if hold["rule"] == "ConflictingWriter"]
            assert "agent-check" in held[0]["message"], held
            written, asked = writes(world), agent.asked
            until(lambda: agent.asked > asked + 80, "it has written ten times more, which takes three looks")
            assert writes(world) == written, "the weight is not fought"
