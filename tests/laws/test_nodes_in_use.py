"""Nothing that is remembered or shown of a workload names a node that it may use and does not use."""

import json

from providers.facts import ProbeValue
from reconciler.core.status.objects import rows
from tests.laws.helpers import LOOSE, MINUTE, QUICK, ready, stops
from tests.sim.manifest import Shop, Spec

NODES = ("node-a", "node-b", *(f"spare-{index}" for index in range(8)))


def test_no_row_and_no_document_names_a_node_that_is_not_in_use(worlds):
    def release(image: str) -> Shop:
        return Shop((Spec(replicas=2, nodes=NODES, image=image, backoff=QUICK),), guard=LOOSE)

    world = ready(worlds(release("v1"), nodes=NODES))
    sick = sorted(world.containers())[0]
    world.apps.sick.add(world.generation(sick))
    world.run(5 * MINUTE)
    assert stops(world) == [sick]
    world.memory.say("suspend", "node/node-a")
    world.run(MINUTE)
    world.memory.say("resume", "node/node-a")
    world.push(release("v2"))
    world.run(10 * MINUTE)
    world.memory.say("suspend", "node/spare-0")
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(10 * MINUTE)

    decision, now = world.tape.last, world.clock.now()
    of_nodes = {
        *NODES,
        *(f"node/{node}" for node in NODES),
    }  # what is remembered of a node itself, such as its suspension
    texts = [f"{key} {text}" for key, text in world.memory.rows.items() if key[1] not in of_nodes]
    texts += [json.dumps(workload) for workload in rows(decision.status, decision.holds, now)["workloads"]]
    texts += [repr(row) for row in (*decision.holds, *decision.waits)]
    texts += [repr(event) for event in world.tape.events if event[1] != "node/spare-0"]
    assert any("node-b" in text for text in texts)
    assert [text for text in texts if "spare-" in text] == []
