"""kill -9 of the program at many moments of its work, then once more to the end: one copy of each replica, nothing twice."""

import random
import signal
import subprocess

from tests.e2e.quickstart_world import World, ask, pid_of
from tests.laws.examples import some

MOMENTS = (0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.4)
"""Seconds after its start at which a run is killed: from reading manifests to publishing names."""


def interrupted(world: World, seconds: float) -> None:
    """One run that is killed after so many seconds, wherever it is."""
    process = world.start("--once")
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)


def test_killed_at_any_moment_it_converges_to_one_copy_of_each_replica(world):
    for moment in some(MOMENTS):
        interrupted(world, moment)
    code, out = world.run("--once", "--timeout", "40s")
    assert code == 0, out
    replicas = world.replicas()
    assert len(replicas) == 3
    assert world.pool() == {replica["address"]: 100 for replica in replicas.values()}
    assert world.records() == {replica["address"] for replica in replicas.values()}
    # One service for each of them, and no second copy anywhere.
    assert world.processes() == {pid_of(replica["address"]) for replica in replicas.values()}


def test_a_restart_that_is_killed_half_way_is_finished_and_not_repeated(world):
    code, out = world.run("--once")
    assert code == 0, out
    before = world.replicas()
    victim = before["workload/web/1"]["address"]
    others = {
        replica["address"]: pid_of(replica["address"]) for replica in before.values() if replica["address"] != victim
    }
    ask(victim, "/break", "POST")
    moments = random.Random(7)
    for moment in some([moments.uniform(0.8, 3.2) for _ in range(4)]):
        interrupted(world, moment)
    code, out = world.run("--once", "--timeout", "40s")
    assert code == 0, out
    after = world.replicas()
    assert {name: one["state"] for name, one in after.items()} == dict.fromkeys(before, "Ready")
    assert after["workload/web/1"]["attempts"] == 1
    assert {address: pid_of(address) for address in others} == others
    assert world.pool() == {replica["address"]: 100 for replica in after.values()}
