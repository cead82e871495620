"""Replicas that move: for a while the same name exists on two nodes, and each of the two is its own container."""

from dataclasses import replace

from providers.actions import StopContainer
from providers.facts import Known, Probes
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason, Waiting
from tests.builders import FAIL, NOW, PASS, SEEN, Scene, ago, container
from tests.sim.manifest import NODE, Shop, Spec

MOVED = Spec(replicas=2, nodes=("node-b",), pools=(), publish=None)


def test_two_containers_of_one_name_are_stopped_one_after_the_other() -> None:
    scene = Scene(MOVED)
    scene.facts = [replace(fact, node="node-b") for fact in scene.facts]
    here, there = scene.facts[0], container(MOVED, 0, id="former", address="10.0.9.9", ports=())
    scene.probes[here.generation] = Probes(None, FAIL, PASS)
    scene.probes[there.generation] = Probes(None, PASS, PASS)
    grants = {
        there.id: Grant("workload/web/0", there.generation, Reason.SURPLUS, ago(60), ago(60), weight_out=ago(60)),
        here.id: Grant("workload/web/0", here.generation, Reason.LIVENESS_FAILED, ago(60), ago(60), weight_out=ago(60)),
    }
    scene.ledger = replace(scene.ledger, grants=grants)
    observed = scene.observed()
    both = {NODE: Known((there,), NODE, SEEN), "node-b": Known(tuple(scene.facts), "node-b", SEEN)}
    desired = Shop((MOVED,)).desired()

    first = decide(desired, replace(observed, runtimes=both), NOW)
    stops = [step.action for step in first.steps if isinstance(step.action, StopContainer)]
    assert len(stops) == 1, first.steps
    assert [wait.message for wait in first.waits if wait.waiting is Waiting.CALL] == [
        f"another call on {here.name} runs first"
    ]
    left, other = (there, here) if stops[0].expect == here.generation else (here, there)
    both[other.node] = Known(tuple(fact for fact in both[other.node].value if fact.id != other.id), other.node, SEEN)
    second = decide(desired, replace(observed, runtimes=both, ledger=first.ledger), NOW)
    (stop,) = [step.action for step in second.steps if isinstance(step.action, StopContainer)]
    assert stop.expect == left.generation
