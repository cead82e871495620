"""A node whose containers no probe can reach, from their first start: what the program does about it is bounded, and it says so.

Whether a probe has passed is remembered for a revision, not for a node. So these replicas fail like sick ones, and the limits of
healing bound what is done: attempts in a row, one canary for each node, and the budget of the workload.
"""

from collections import Counter

from providers.facts import ProbeValue
from reconciler.core.model.reasons import Rule
from tests.builders import container
from tests.laws.helpers import LOOSE, MINUTE, QUICK, WEB, ready, stops
from tests.sim.manifest import Shop, Spec

NODES = ("node-a", "node-b")


def test_a_replica_on_a_node_without_a_path_is_given_up(worlds):
    spec = Spec(replicas=1, nodes=NODES, backoff=QUICK)
    world = ready(worlds(Shop((spec,), guard=LOOSE), nodes=NODES))
    for probe in ("liveness", "readiness"):
        world.apps.lies[WEB.format(1), probe] = ProbeValue.FAIL
    world.push(Shop((Spec(replicas=2, nodes=NODES, backoff=QUICK),), guard=LOOSE))
    world.run(120 * MINUTE)
    assert Counter(stops(world)) == {WEB.format(1): 7}, (
        "three restarts, a recreation, three restarts; the other one runs on"
    )
    assert world.weights()[WEB.format(0)] == 100
    (hold,) = [hold for hold in world.tape.last.holds if hold.rule is Rule.FAILED]
    assert "1 other replica is alive, but none on node-b" in hold.message
    assert hold.next_step.startswith("check whether node-b is the cause")


def test_a_probe_that_does_not_reach_a_node_restarts_nothing_there(worlds):
    world = ready(worlds(Shop((Spec(replicas=1, nodes=NODES, backoff=QUICK),), guard=LOOSE), nodes=NODES))
    for probe in ("liveness", "readiness"):
        world.apps.lies[WEB.format(1), probe] = ProbeValue.UNKNOWN
    world.push(Shop((Spec(replicas=2, nodes=NODES, backoff=QUICK),), guard=LOOSE))
    world.run(60 * MINUTE)
    assert stops(world) == []
    assert world.weights()[WEB.format(0)] == 100


def test_a_node_without_a_path_has_one_canary_for_all_workloads(worlds):
    names = ("a", "b", "c", "d")
    specs = tuple(Spec(name=name, replicas=2, nodes=NODES, pools=(name,), backoff=QUICK) for name in names)
    world = worlds(Shop(specs, guard=LOOSE), nodes=NODES)
    for spec in specs:
        for probe in ("liveness", "readiness"):
            world.apps.lies[container(spec, 1).name, probe] = ProbeValue.FAIL
    world.run(60 * MINUTE)
    assert 1 <= len(stops(world)) <= 5, "canaries, with pauses that double"
    assert {name.rpartition("-")[2] for name in stops(world)} == {"1"}, "what runs on the other node runs on"
