"""A node that a workload may use and does not use changes nothing for it: neither its status nor how its failures are judged."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import Known, Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Suspension
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Rule
from reconciler.core.status.objects import Condition, rows
from tests.builders import NOW, PASS, SEEN, Scene, probe
from tests.sim.manifest import HTTP, NODE, Shop, Spec

BOTH = (NODE, "node-b")


def seen(scene: Scene) -> Observed:
    """The facts, with an empty second node."""
    observed = scene.observed()
    return replace(observed, runtimes={**observed.runtimes, "node-b": Known((), "node-b", SEEN)})


@pytest.mark.parametrize(
    ("replicas", "node", "condition"),
    [
        (1, NODE, Condition.SUSPENDED),
        (1, "node-b", Condition.READY),
        (2, "node-b", Condition.SUSPENDED),  # where its second replica is to be created
    ],
)
def test_the_suspension_of_a_node_counts_for_workloads_that_use_it(replicas, node, condition):
    spec = Spec(replicas=replicas, nodes=BOTH)
    scene = Scene(spec)
    scene.facts = scene.facts[:1]
    scene.ledger = replace(scene.ledger, suspensions={f"node/{node}": Suspension("ann", "kernel update", 0)})
    decision = decide(Shop((spec,)).desired(), seen(scene), NOW)
    assert decision.status.workloads[0].condition is condition
    (web,) = rows(decision.status, decision.holds, NOW)["workloads"]
    said = [f"ann suspended node/{node}: kernel update"] if condition is Condition.SUSPENDED else []
    assert [entry["message"] for entry in web["suspended_by"]] == said


def test_the_deny_list_counts_like_a_suspension():
    spec = Spec(replicas=1, nodes=BOTH)
    for node, expected in ((NODE, Condition.SUSPENDED), ("node-b", Condition.READY)):
        desired = Shop((spec,)).desired()
        desired = replace(desired, guard=replace(desired.guard, deny=(f"node/{node}",)))
        assert decide(desired, seen(Scene(spec)), NOW).status.workloads[0].condition is expected


@pytest.mark.parametrize(("nodes", "together"), [(("node-b", NODE), False), ((NODE,), True)])
def test_only_workloads_on_a_node_say_what_is_simultaneous_there(nodes, together):
    # a and b fail 40 s apart; only the probe of c has a period in which both lie
    specs = (Spec("a", replicas=1), Spec("b", replicas=1), Spec("c", replicas=1, nodes=nodes))
    scene = Scene(*specs)
    here, there = scene.facts[:2], scene.facts[2]
    for fact, since in zip(here, (50, 10), strict=True):
        scene.probes[fact.generation] = Probes(None, probe(ProbeValue.FAIL, since), PASS)
    observed = seen(scene)
    placed = {node: tuple(fact for fact in here if node == NODE) for node in BOTH}
    placed[nodes[0]] += (replace(there, node=nodes[0]),)
    observed = replace(observed, runtimes={node: Known(facts, node, SEEN) for node, facts in placed.items()})
    desired = Shop(specs).desired()
    slow = replace(HTTP, period=600 * SECOND)
    workloads = tuple(
        replace(w, template=replace(w.template, container=replace(w.template.container, liveness=slow)))
        if w.name == "c"
        else w
        for w in desired.workloads
    )
    decision = decide(replace(desired, workloads=workloads), observed, NOW)
    assert (f"node/{NODE}" in decision.ledger.outbreaks) is together
    assert (Rule.MASS_FAILURE in {hold.rule for hold in decision.holds}) is together
