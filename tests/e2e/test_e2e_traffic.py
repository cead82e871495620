"""Replicas leave and come back under load on real containers and a real balancer, and no client notices."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from edge_world import until
from traffic_world import Agent, Load, Traffic, serving

from reconciler.shell.clock import SystemClock

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy"), pytest.mark.timeout(300)]


def busy(seen: Load, more: int = 20) -> None:
    """Wait until clients have had that many further answers: what is tried next happens under load."""
    start = seen.total
    until(lambda: seen.total >= start + more, f"{more} more requests")


def stops_of(world: Traffic, replica: str) -> list[int]:
    """When stops of a replica were begun (wall, ns)."""
    return [began for name, began, _ in world.journal("stop") if name == replica]


def writes(world: Traffic) -> int:
    """How many weights were written so far."""
    return sum(" done " in line and ": weight " in line for line in world.log().splitlines())


def test_replicas_are_drained_restarted_and_replaced_without_a_failed_request(engine: str):
    with serving(engine) as world, world.load() as seen:
        busy(seen)
        first, *others = world.containers()
        before = world.started_at()
        world.tell("drain", "workload/web/0", "--for", "5m", "--reason", "looking into a leak")
        until(lambda: world.weight(first) == 0, "the drained one has no weight")
        assert world.endpoint(first)["override"]["reason"] == "looking into a leak"
        busy(seen)
        assert all(world.weight(other) == 100 for other in others)
        world.tell("release", "workload/web/0")
        world.settle()
        assert world.started_at() == before, "who is drained by a person's word is not stopped"
        world.tell("restart", "workload/web", "--wait", "--reason", "new certificates")
        world.settle()
        assert set(world.started_at()) == set(before)
        assert not set(world.started_at().values()) & set(before.values())
        busy(seen)
        world.edit('"value": "1"', '"value": "2"')
        until(lambda: not set(before) & set(world.containers()), "all were replaced", 120)
        world.settle()
        busy(seen)
    seen.check(200)


def test_an_idle_replica_is_stopped_after_the_shortest_drain_and_a_busy_one_when_its_last_request_is_over(engine: str):
    with serving(engine, drain=("1s", "25s")) as world, ThreadPoolExecutor(6) as pool:
        idle = SystemClock().now().wall
        world.tell("restart", "workload/web/0", "--wait")
        [stopped] = stops_of(world, "workload/web/0")
        assert 1 <= (stopped - idle) / 1e9 < 15
        world.settle()
        slow = [pool.submit(world.fetch, "/slow?6") for _ in range(6)]
        until(lambda: world.under_way() >= 6, "all six are under way")
        begun = SystemClock().now().wall
        world.tell("restart", "workload/web/1", "--wait")
        assert [one.result() for one in slow]
        [stopped] = stops_of(world, "workload/web/1")
        assert 5 <= (stopped - begun) / 1e9 < 20, "it waited for its requests, and not for the longest drain"


def test_a_reload_of_the_balancer_in_the_middle_of_a_drain_cuts_no_request_and_loses_no_weight(engine: str):
    with serving(engine, drain=("1s", "12s")) as world, ThreadPoolExecutor(6) as pool, world.load() as seen:
        busy(seen)
        victim, *others = world.containers()
        slow = [pool.submit(world.fetch, "/slow?8") for _ in range(6)]
        until(lambda: world.under_way() >= 6, "all six are under way")
        asked = SystemClock().now().wall
        world.tell("restart", "workload/web/0")
        until(lambda: world.weight(victim) == 0, "it drains")
        world.reload()
        assert world.weight(victim) == 0
        assert [world.weight(other) for other in others] == [100, 100]
        answers = [one.result() for one in slow]
        assert len(set(answers)) > 1, "several replicas had one"
        until(lambda: stops_of(world, "workload/web/0") != [], "it was stopped", 60)
        [stopped] = stops_of(world, "workload/web/0")
        assert (stopped - asked) / 1e9 >= 12, "what the new process counts says nothing of what the old one has"
        world.settle()
        busy(seen)
    seen.check(100)


def test_a_request_that_outlasts_the_longest_drain_is_cut_and_no_other(engine: str):
    with serving(engine, drain=("1s", "3s")) as world, ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(world.fetch, "/slow?9") for _ in range(3)]
        until(lambda: world.under_way() >= 3, "each replica has one")
        world.tell("restart", "workload/web/0", "--wait")
        failed = [one for one in slow if one.exception() is not None]
        assert len(failed) == 1
        assert ": cut sessions of " in world.log(), "it is told"


def test_a_person_who_changes_a_weight_again_and_again_is_reported_and_not_fought(engine: str):
    with serving(engine) as world:
        victim = world.containers()[0]

        def told_to_the_person() -> bool:
            # A change that comes before our own was read back is repaired without being counted: so again and again.
            if world.weight(victim) == 100:
                world.set_weight(victim, 7)
            return "ConflictingWriter" in world.log()

        until(told_to_the_person, "it was told", 60)
        held = [one for one in world.held() if one["rule"] == "ConflictingWriter"]
        assert held, world.held()
        assert "100" in held[0]["message"]
        assert "7" in held[0]["message"]
        assert world.weight(victim) == 7, "nobody fights"


def test_weights_that_an_agent_check_writes_are_reported_and_not_fought(engine: str):
    with Agent("10%\n") as agent:
        slots = f"agent-check agent-addr 127.0.0.1 agent-port {agent.port} agent-inter 300ms"
        with serving(engine, slots=slots, settled=False) as world:
            until(lambda: world.log().count("(ConflictingWriter: ") >= 3, "it was told of all three", 60)
            held = [one for one in world.held() if one["rule"] == "ConflictingWriter"]
            assert "agent-check" in held[0]["message"], held
            written, asked = writes(world), agent.asked
            until(lambda: agent.asked > asked + 80, "it has written ten times more, which takes three looks")
            assert writes(world) == written, "nobody fights"
