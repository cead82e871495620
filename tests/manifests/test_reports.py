"""The whole report of a broken tree, and mistakes that other tools ignore."""

from pathlib import Path

import pytest

from manifests.problems import Code, ManifestErrors, did_you_mean, key_path, render, suggest
from tests.manifests.trees import GOOD, POLICY, PROVIDERS, SERVICE, WORKLOAD, load_files, problems_of

BROKEN = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web_1}
spec:
  nods: [here]
  replicas: "3"
  drain: {max: 30}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: app
          image: Nginx
          comand: [nginx]
          env: {A: b}
          livenessProbe:
            tcpSocket: {port: http, host: 169.254.169.254}
            successThreshold: 2
          readinessProbe: {}
        - name: sidecar
          command: [sleep, 1]
---
kind: Servce
apiVersion: reconciler/v1
"""

REPORT = """\
web.yaml:3:18: bad-value: workload/web_1: metadata.name: 'web_1' is not a name: use a-z, 0-9 and '-', with a letter or digit at both ends
    write 'web-1'
web.yaml:5:3: unknown-field: workload/web_1: spec cannot have a field 'nods'
    did you mean 'nodes'?
web.yaml:6:13: wrong-type: workload/web_1: spec.replicas: expected a whole number, found a string
    write it without quotes
web.yaml:7:16: wrong-type: workload/web_1: spec.drain.max: expected a duration with a unit, found a whole number
    write 30s for seconds, or another unit such as "30m"
web.yaml:13:18: bad-value: workload/web_1: spec.template.spec.containers[0].image: 'Nginx' is not an image reference: image names are lower case
web.yaml:14:11: unknown-field: workload/web_1: spec.template.spec.containers[0] cannot have a field 'comand'
    did you mean 'command'?
web.yaml:15:16: wrong-type: workload/web_1: spec.template.spec.containers[0].env: expected a list, found a mapping
    start each item with '- '
web.yaml:17:37: unknown-field: workload/web_1: spec.template.spec.containers[0].livenessProbe.tcpSocket cannot have a field 'host'
    remove it: probes connect to the observed address of the container
web.yaml:19:27: bad-value: workload/web_1: spec.template.spec.containers[0].readinessProbe: a probe must have exactly one of httpGet, tcpSocket, exec, grpc and runtimeHealth, found none
web.yaml:21:28: wrong-type: workload/web_1: spec.template.spec.containers[1].command[1]: expected a string, found a whole number
    put it in quotes
web.yaml:23:7: unknown-kind: there is no kind 'Servce'
    did you mean 'Service'?"""


def test_all_problems_are_reported_at_once_with_place_path_and_next_step(tmp_path: Path) -> None:
    assert render(problems_of(tmp_path, GOOD | {"web.yaml": BROKEN})) == REPORT


def test_one_bad_document_makes_the_whole_set_invalid(tmp_path: Path) -> None:
    with pytest.raises(ManifestErrors) as caught:
        load_files(
            tmp_path,
            GOOD | {"zz.yaml": WORKLOAD.replace("name: web", "name: other", 1).replace("replicas: 3", "replicas: x")},
        )

    assert [problem.file for problem in caught.value.problems] == ["zz.yaml"]
    assert str(caught.value) == render(caught.value.problems)
    assert not caught.value.empty_tree


def test_an_object_declared_twice_is_an_error_that_names_both_places(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, GOOD | {"a/copy.yaml": "---\n---\n" + WORKLOAD})

    assert [problem.render() for problem in problems] == [
        "web.yaml:4:9: duplicate-object: workload/web is declared twice: the other is at a/copy.yaml:3:1\n    keep one of the two"
    ]


@pytest.mark.parametrize("name", ["docker-compose.yml", "package.json", "values.yaml", "notes.YAML"])
def test_a_file_without_manifests_is_never_skipped_silently(name: str, tmp_path: Path) -> None:
    problems = problems_of(tmp_path, GOOD | {name: '{"name": "x", "services": {}}'})

    assert [(problem.file, problem.code) for problem in problems] == [(name, Code.NOT_A_MANIFEST)]


def test_a_separator_that_is_followed_by_a_comment_still_separates(tmp_path: Path) -> None:
    both = WORKLOAD + "--- # the service\n" + SERVICE + "...\n# the end\n---\n# nothing more\n"

    assert load_files(tmp_path, GOOD | {"web.yaml": both, "service.yml": ""}).services[0].key == "service/web"


def test_a_variable_keeps_a_string_that_yaml_1_1_would_convert(tmp_path: Path) -> None:
    text = WORKLOAD.replace("value: production", "value: 2122:22")

    value = load_files(tmp_path, GOOD | {"web.yaml": text})

    assert value.workloads[0].template.container.env == (("MODE", "2122:22"),)


@pytest.mark.parametrize(
    "broken",
    [
        "value: [s3cr3t]",
        "value: {s3cr3t: 1}",
        "value: s3cr3t\n              valeu: s3cr3t",
        'value: "s3cr3t\\0"',
        "value: !s3cr3t-tag x",
    ],
)
def test_the_value_of_a_variable_never_appears_in_a_report(broken: str, tmp_path: Path) -> None:
    text = WORKLOAD.replace("{name: MODE, value: production}", f"name: MODE\n              {broken}")

    problems = problems_of(tmp_path, GOOD | {"web.yaml": text})

    assert problems
    assert "s3cr3t" not in render(problems).replace("!s3cr3t-tag", "")


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("provider: edge", "provider: egde", "did you mean 'edge'?"),
        ("provider: edge", "provider: balancers", "declared Provider objects: edge, here, zones"),
        ("provider: edge", "provider: here", "endpoints providers: edge"),
    ],
)
def test_the_hint_for_an_unknown_reference_lists_the_declared_objects(
    old: str, new: str, hint: str, tmp_path: Path
) -> None:
    problems = problems_of(tmp_path, GOOD | {"service.yml": SERVICE.replace(old, new)})

    assert [problem.hint for problem in problems] == [hint]


def test_problems_of_several_objects_are_all_reported(tmp_path: Path) -> None:
    files = GOOD | {
        "dns.yaml": POLICY.replace("{name: web}", "{name: wbe}"),
        "service.yml": SERVICE.replace("port: http", "port: 81"),
        "providers.yaml": PROVIDERS.replace("type: zonefile", "type: zonefiel"),
    }

    assert [problem.code for problem in problems_of(tmp_path, files)] == [
        Code.UNKNOWN_REFERENCE,
        Code.UNKNOWN_TYPE,
        Code.UNKNOWN_PORT,
    ]


def test_suggestions_are_near_and_stay_cheap() -> None:
    assert suggest("Replicas", ["replicas", "nodes"]) == "replicas"
    assert suggest("xyz", ["replicas", "nodes"]) == ""
    assert did_you_mean("x", [], "names") == ""
    assert did_you_mean("x", [f"name-{n}" for n in range(100)], "names").endswith("name-11, …")
    assert suggest("web-99999", [f"web-{n}" for n in range(100_000)]) == "web-99999"


def test_key_paths_are_written_as_in_the_documents() -> None:
    assert key_path(("spec", "containers", 0, "app.io/name", "a-b_c")) == 'spec.containers[0]."app.io/name".a-b_c'
