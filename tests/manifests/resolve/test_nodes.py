"""Lists of nodes: equal to plain tuples, membership without reading the list, and one object for equal lists."""

from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Desired, Provider, Role, Template, Workload
from manifests.values.nodes import Nodes
from tests.manifests.trees import INSTANCE, PROVIDERS, WORKLOAD, load_files, problems_of
from tests.sim.manifest import shop

NODES = Nodes(("node-a", "node-b", "node-c"))
SECOND = "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: there}\nspec: {type: process}\n"


def test_a_list_of_nodes_equals_the_plain_tuple():
    assert NODES == ("node-a", "node-b", "node-c")
    assert hash(NODES) == hash(tuple(NODES))
    assert repr(NODES) == repr(tuple(NODES))
    assert ("node-b" in NODES, "node-d" in NODES, 1 in NODES, None in NODES) == (True, False, False, False)


def test_the_place_of_a_node_is_that_in_the_list():
    plain = tuple(NODES)
    for node in plain:
        assert NODES.index(node) == plain.index(node)
    assert NODES.index("node-b", -2) == plain.index("node-b", -2)
    for arguments in (("node-d",), (1,), ("node-a", 1), ("node-c", 0, 2), ("node-b", 2, 1)):
        with pytest.raises(ValueError, match="not in"):
            plain.index(*arguments)
        with pytest.raises(ValueError, match="not in"):
            NODES.index(*arguments)


def test_every_workload_has_such_a_list_and_a_copy_keeps_it():
    workload = Workload("workload/web", "web", ("node-a",), 1, Template((), None))
    assert isinstance(workload.nodes, Nodes)
    assert replace(workload, replicas=2).nodes is workload.nodes


def tree(*lists: str) -> dict[str, str | bytes]:
    """Workloads with these lists of nodes, on two providers."""
    files: dict[str, str | bytes] = {"a.yaml": INSTANCE, "b.yaml": f"{PROVIDERS}---\n{SECOND}"}
    for number, nodes in enumerate(lists):
        text = WORKLOAD.replace("name: web", f"name: web-{number}", 1).replace("app: web", f"app: web-{number}")
        files[f"w{number}.yaml"] = text.replace("replicas: 3", f"replicas: 3\n  nodes: {nodes}")
    return files


def test_workloads_with_equal_lists_share_one_object(tmp_path: Path):
    first, second, third = load_files(tmp_path, tree("[here, there]", "[here, there]", "[there, here]")).workloads
    assert first.nodes is second.nodes
    assert (first.nodes, third.nodes) == (("here", "there"), ("there", "here"))


def test_a_wrong_list_is_reported_for_each_workload_that_has_it(tmp_path: Path):
    problems = problems_of(tmp_path, tree("[here, nowhere]", "[here, nowhere]"))
    assert sorted(problem.message.partition(":")[0] for problem in problems) == ["workload/web-0", "workload/web-1"]


def test_the_nodes_of_manifests_are_those_that_are_named_anywhere():
    desired: Desired = shop(nodes=("node-a", "node-b")).desired()
    providers = (
        Provider("provider/spare", "spare", "process", Role.RUNTIME, {}),
        Provider("provider/edge", "edge", "file", Role.ENDPOINTS, {}),
    )
    assert replace(desired, providers=providers).nodes == {"node-a", "node-b", "spare"}
