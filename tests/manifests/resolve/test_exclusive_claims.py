"""Host ports and exclusive volumes that two workloads claim: reported before any action, with both places."""

from pathlib import Path

import pytest

from tests.manifests.trees import ENGINE_PROVIDERS, GOOD, load_files, problems_of

TWO_NODES = ENGINE_PROVIDERS + (
    "---\napiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: there}\nspec: {type: engine}\n"
)


def workload(name: str, port: str = "", volume: str = "", mount: str = "", spec: str = "nodes: [here]") -> str:
    """A workload with a port (what follows containerPort) and a volume (what follows its name)."""
    lines = [
        f"apiVersion: reconciler/v1\nkind: Workload\nmetadata: {{name: {name}}}",
        f"spec:\n  {spec}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:",
        f"      volumes: [{{name: v, {volume}}}]" if volume else "      volumes: []",
        "      containers:",
        f"        - name: app\n          image: app\n          ports: [{{containerPort: 8080{port}}}]",
    ]
    if volume:
        lines.append(f"          volumeMounts: [{{name: v, mountPath: /v{mount}}}]")
    return "\n".join(lines) + "\n"


def tree(one: str, other: str) -> dict[str, str | bytes]:
    rest = {"instance.yaml": GOOD["instance.yaml"], "providers.yaml": TWO_NODES}
    return rest | {"one.yaml": one, "other.yaml": other}


EXCLUSIVE = "named: data, accessMode: ReadWriteOncePod"
HOST = "hostPath: {path: /srv/data}, accessMode: ReadWriteOncePod"

CLASHES = {
    "the same port": ({"port": ", hostPort: 80"}, {"port": ", hostPort: 80"}),
    "all addresses and one": ({"port": ", hostPort: 80"}, {"port": ", hostPort: 80, hostIP: 127.0.0.1"}),
    "all of a family and one": (
        {"port": ", hostPort: 80, hostIP: 0.0.0.0"},
        {"port": ", hostPort: 80, hostIP: 127.0.0.1"},
    ),
    "both are exclusive": ({"volume": EXCLUSIVE}, {"volume": EXCLUSIVE, "mount": ", readOnly: true"}),
    "one is exclusive and the other writes": ({"volume": EXCLUSIVE}, {"volume": "named: data"}),
    "another spelling of the same path": ({"volume": HOST}, {"volume": "hostPath: {path: /srv/data/}"}),
}


@pytest.mark.parametrize("name", CLASHES)
def test_conflicting_claims_on_a_node_are_refused_with_both_places(tmp_path: Path, name: str) -> None:
    one, other = CLASHES[name]
    for number, (first, second) in enumerate(((one, other), (other, one))):
        root = tmp_path / str(number)
        root.mkdir()
        (problem,) = problems_of(root, tree(workload("one", **first), workload("other", **second)))
        assert (problem.code, problem.file) == ("conflict", "other.yaml")
        assert "workload/other: workload/one (one.yaml:" in problem.message
        assert "on node here" in problem.message
        assert problem.hint


FINE = {
    "another port": ({"port": ", hostPort: 80"}, {"port": ", hostPort: 81"}),
    "another protocol": ({"port": ", hostPort: 53"}, {"port": ", hostPort: 53, protocol: UDP"}),
    "another address": (
        {"port": ", hostPort: 80, hostIP: 127.0.0.1"},
        {"port": ", hostPort: 80, hostIP: 127.0.0.2"},
    ),
    "another family": ({"port": ", hostPort: 80, hostIP: 0.0.0.0"}, {"port": ', hostPort: 80, hostIP: "::"'}),
    "another node": ({"port": ", hostPort: 80"}, {"port": ", hostPort: 80", "spec": "nodes: [there]"}),
    "a node that no replica is on": (
        {"port": ", hostPort: 80"},
        {"port": ", hostPort: 80", "spec": "nodes: [there, here]"},
    ),
    "no replicas": ({"port": ", hostPort: 80"}, {"port": ", hostPort: 80", "spec": "replicas: 0"}),
    "none is exclusive": ({"volume": "named: data"}, {"volume": "named: data"}),
    "the other only reads": ({"volume": EXCLUSIVE}, {"volume": "named: data", "mount": ", readOnly: true"}),
    "another volume": ({"volume": EXCLUSIVE}, {"volume": "named: more, accessMode: ReadWriteOncePod"}),
}


@pytest.mark.parametrize("name", FINE)
def test_claims_that_do_not_conflict_are_accepted(tmp_path: Path, name: str) -> None:
    one, other = FINE[name]
    first, second = (
        workload("one", **one),
        workload("other", **other).replace("replicas: 0", "replicas: 0\n  nodes: [here]"),
    )
    assert len(load_files(tmp_path, tree(first, second)).workloads) == 2


def test_two_containers_of_a_replica_cannot_publish_the_same_port(tmp_path: Path) -> None:
    twice = workload("one", port=", hostPort: 80}, {containerPort: 8081, hostPort: 80")
    (problem,) = problems_of(tmp_path, tree(twice, workload("other")))
    assert "workload/one: workload/one (one.yaml:" in problem.message
    assert "port 80 (TCP) on node here" in problem.message
