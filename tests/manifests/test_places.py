"""Fields are found at their lines, also in JSON, and an unknown one at the nearest value around it."""

from pathlib import Path

import pytest

from manifests.places import MOST_BYTES, Places
from manifests.problems import NOWHERE, Where
from manifests.source.directory import SourceFile, read_tree
from manifests.yaml.read import read_file
from tests.manifests.trees import GOOD, load_path, write

TEXT = b"""\
kind: Other
---
kind: Workload
metadata: {name: web}
spec:
  replicas: 2
  drain:
    max: 5s
  template:
    metadata:
      labels:
        app.kubernetes.io/name: web
    spec:
      networks: [edge]
      containers:
        - name: web
          env:
            - name: LEVEL
              value: debug
          ports:
            - containerPort: 8080
          volumeMounts:
            - {name: a, mountPath: /data/x.y, readOnly: true}
"""


@pytest.fixture
def places():
    return Places([SourceFile("web.yaml", TEXT)])


DOCUMENT = read_file("web.yaml", TEXT)[0][1].where


@pytest.mark.parametrize(
    ("field", "line", "column"),
    [
        ("replicas", 6, 13),
        ("drain.max", 8, 10),
        ("labels[app.kubernetes.io/name]", 12, 33),
        ("networks", 14, 17),
        ("containers[web].env[LEVEL]", 19, 22),
        ("containers[web].ports[8080/TCP]", 21, 15),
        ("containers[web].volumeMounts[/data/x.y]", 23, 15),
        ("containers[web].env[GONE]", 18, 13),
        ("containers[web].image", 16, 11),
        ("rollout.strategy", 6, 3),
    ],
)
def test_a_field_is_found_at_its_line(places, field, line, column):
    assert places.of(DOCUMENT, field) == Where("web.yaml", line, column)


def test_without_its_file_a_field_has_the_place_of_its_document(places):
    elsewhere = Where("gone.yaml", 3, 1)
    assert places.of(elsewhere, "replicas") == elsewhere
    assert places.of(NOWHERE, "replicas") == NOWHERE
    large = Places([SourceFile("web.yaml", TEXT + b"#" * MOST_BYTES)])
    assert large.of(DOCUMENT, "replicas") == DOCUMENT


def test_a_field_of_an_environment_has_its_place_there(tmp_path: Path) -> None:
    change = (
        "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: web}\nspec:\n  replicas: 4\n"
        "  template: {spec: {containers: [{name: app, env: [{name: MODE, value: test}]}]}}\n"
    )
    tree = read_tree(write(tmp_path, {**GOOD, "environments/prod/web.yaml": change}), environment="prod")
    (web,) = load_path(tmp_path, environment="prod").workloads
    places = Places(tree.base, tree.overlay)
    assert str(places.of(web.where, "replicas")) == "environments/prod/web.yaml:5:13"
    assert str(places.of(web.where, "containers[app].env[MODE]")) == "environments/prod/web.yaml:6:72"
    assert str(places.of(web.where, "containers[app].command")).startswith("web.yaml:13:")
