import pytest

from manifests.problems import Code

TYPOS = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: shop}
spec:
  replicsa: 2
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
        - name: shop
          command: [sleep, "60"]
          ports: [{name: http, containerPort: 99999}]
          readinessProbe: {tcpSocket: {port: htttp}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {name: shop}
spec:
  selector: {app: wbe}
  port: http
  balancers: [{provider: pol, pool: shop}]
"""


def test_a_valid_tree_says_what_it_holds(tree, reconcile):
    done = reconcile("validate", tree)
    assert (done.code, done.err) == (0, "")
    assert done.out == "valid: instance 'small' with 3 providers, 1 workload, 1 service, 1 DNS policy\n"


def test_a_valid_tree_as_json(tree, reconcile):
    done = reconcile("validate", tree, "-o", "json")
    numbers = {"objects": 7, "errors": 0, "warnings": 0}
    assert done.document == {"format_version": 2, "exit_code": 0, "valid": True, **numbers, "problems": []}


AMBIGUOUS = ("value: sentinel-of-the-manifest", "value: yes")


def test_a_warning_is_called_one_and_is_counted_apart_from_errors(tree, reconcile):
    manifest = tree / "all.yaml"
    manifest.write_text(manifest.read_text().replace(*AMBIGUOUS))
    valid = reconcile("validate", tree)
    assert valid.code == 0
    assert ": warning: yaml-ambiguous: " in valid.out
    assert valid.out.endswith("1 DNS policy; 1 warning\n")
    (tree / "typos.yaml").write_text(TYPOS)
    invalid = reconcile("validate", tree)
    assert invalid.out.count(": warning: ") == 1
    assert invalid.out.endswith("3 errors and 1 warning in 2 files (exit 3)\n")
    document = reconcile("validate", tree, "-o", "json").document
    assert (document["errors"], document["warnings"]) == (3, 1)
    assert [problem["severity"] for problem in document["problems"]].count("warning") == 1
    refused = reconcile("plan", tree)
    assert "error: 3 errors and 1 warning in the manifests" in refused.err
    document = reconcile("plan", tree, "-o", "json").document
    assert (document["errors"], document["warnings"]) == (3, 1)


def test_all_problems_are_listed_at_once_with_place_and_hint(tree, reconcile, golden):
    (tree / "typos.yaml").write_text(TYPOS)
    done = reconcile("validate", tree)
    assert done.code == 3
    assert done.err == ""
    golden("cli/validate-typos.txt", done.out)


def test_problems_as_json_are_one_document(tree, reconcile):
    (tree / "typos.yaml").write_text(TYPOS)
    done = reconcile("validate", tree, "-o", "json")
    assert done.code == done.document["exit_code"] == 3
    assert done.document["valid"] is False
    places = {(problem["file"], problem["line"]) for problem in done.document["problems"]}
    assert ("typos.yaml", 5) in places
    assert {"severity", "code", "file", "line", "column", "path", "message", "hint"} == set(
        done.document["problems"][0]
    )


@pytest.mark.parametrize("words", [["validate"], ["plan"], ["apply", "--yes"], ["--once"], ["destroy", "--yes"]])
def test_an_empty_directory_is_refused_and_never_read_as_delete_all(words, tmp_path, reconcile):
    (tmp_path / "empty").mkdir()
    done = reconcile(*words, tmp_path / "empty")
    assert done.code == 7
    assert 'an empty source never means "delete all"' in done.out + done.err


@pytest.mark.parametrize("words", [["validate"], ["plan"], ["apply", "--yes"], ["--once"], ["status"]])
def test_a_path_that_is_not_there_is_invalid(words, tmp_path, reconcile, home):
    done = reconcile(*words, tmp_path / "nowhere")
    assert done.code == 3
    assert Code.PATH_NOT_FOUND in done.out + done.err
    assert not home.exists()


def test_invalid_manifests_stop_every_other_command_before_any_change(tree, reconcile, home):
    (tree / "typos.yaml").write_text(TYPOS)
    for words in (["--once"], ["plan"], ["apply", "--yes"], ["destroy", "--yes"], ["--watch"]):
        done = reconcile(*words, tree)
        assert done.code == 3
        assert "typos.yaml:5:3: unknown-field" in done.err
        assert "(exit 3)" in done.err
    assert not home.exists()


def test_broken_manifests_as_json_are_one_document_too(tree, reconcile):
    (tree / "typos.yaml").write_text(TYPOS)
    done = reconcile("plan", tree, "-o", "json")
    assert done.document["exit_code"] == 3
    assert {problem["file"] for problem in done.document["problems"]} == {"typos.yaml"}


def test_a_document_of_an_unknown_kind_does_not_make_others_look_missing(tree, reconcile):
    manifest = tree / "all.yaml"
    manifest.write_text(manifest.read_text().replace("kind: Service", "kind: Servise"))
    done = reconcile("validate", tree)
    assert done.code == 3
    assert "did you mean 'Service'?" in done.out
    assert done.out.endswith("1 error in 1 file (exit 3)\n")
