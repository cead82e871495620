"""Pushes out of real containers steer the weights of a real balancer, and a container's own draining loses no request."""

import sys

import pytest

from tests.e2e.edge_world import until
from tests.e2e.traffic_world import serving

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy")]

BLIND = [sys.executable, "-m", "reconciler.push", "run"]
"""The client without a probe: it says ready as soon as the program runs, and repeats that."""


def test_a_replica_that_pushes_startup_gets_no_traffic_before_ready(engine: str):
    with serving(engine, push=True, words=["cold"], settled=False) as world:
        until(lambda: len(world.containers()) == 3 and "" not in world.addresses(), "all three run")
        first, *others = world.containers()
        until(lambda: world.events() == ["startup"] * 3, "all three have said that they start")
        assert not any(world.pool().values())
        world.ask(world.address(first), "/ready")
        until(lambda: world.weight(first) == 100, "who has become ready gets its weight")
        assert [world.weight(other) for other in others] == [0, 0]


def test_a_fresh_push_outranks_the_probe_in_both_directions(engine: str):
    with serving(engine, push=True, run=BLIND) as world:
        victim = world.containers()[0]
        until(lambda: world.ask(world.address(victim), "/unready") != "", "it listens, later than it said")
        until(lambda: world.endpoint(victim)["observer"]["ready"] == "fail", "its readiness probe fails")
        assert world.weight(victim) == 100, "its own word is fresh, and the probe is overruled"
        world.docker("exec", victim, sys.executable, "-m", "reconciler.push", "not-ready")
        until(lambda: world.weight(victim) == 0, "it says itself that it is not ready")
        world.docker("exec", victim, sys.executable, "-m", "reconciler.push", "ready")
        until(lambda: world.weight(victim) == 100, "it says that it is ready again")


def test_a_container_that_says_draining_before_it_ends_loses_no_request(engine: str):
    with serving(engine, push=True, words=["polite"], restart="no") as world, world.load() as load:
        until(lambda: load.total > 30, "there is load")
        for victim in world.containers():
            started = world.started_at()[victim]
            place = f"{world.address(victim)}:8080"
            world.docker("stop", "-t", "60", victim)
            ended = world.api.finished(victim)
            [cut] = [line for line in world.log().splitlines() if "PushedDraining" in line and place in line]
            assert cut.partition(" ")[0] < ended, "its weight was 0 before it ended"
            until(lambda it=victim, at=started: world.started_at()[it] not in {at, ""}, "it was started again")
            world.settle()
        before = load.total
        until(lambda: load.total > before + 30, "there is load still")
    load.check(100)
