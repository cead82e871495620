"""The first line of a command about an instance, and the field `manifests` of its JSON document."""

import json
from pathlib import Path

import pytest

from manifests.load import read_sources
from reconciler import tree as trees
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.archive import Archive
from reconciler.shell.store.instance_index import place_of


def ran(tree: Path, state: Path, commit: str = "", local: Path | None = None) -> Archive:
    """A run that put the manifests of the tree in force."""
    archive = Archive(state, trees.state_base(), "small", place_of(tree, local), SystemClock(), lambda: commit)
    assert archive.in_force(read_sources(tree, local)) == ""
    return archive


def break_it(tree: Path) -> int:
    """Add a bracket that is not closed to the file of the tree; returns its line."""
    (file,) = tree.glob("*.yaml")
    text = file.read_text()
    file.write_text(f"{text}broken: [\n")
    return text.count("\n") + 1


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["explain", "workload/web"],
        ["events"],
        ["get", "endpoints"],
        ["get", "requests"],
        ["get", "records"],
    ],
)
def test_the_first_line_names_file_and_line_of_a_broken_tree(words, tree, stored, reconcile):
    ran(tree, stored, "0123456789abcdef0123")
    line = break_it(tree)
    done = reconcile(*words, tree)
    assert done.code == 0
    first = done.out.partition("\n")[0]
    assert first.startswith("manifests: ")
    assert f".yaml:{line}:" in first
    assert "(commit 0123456789ab)" in first
    document = json.loads(reconcile(*words, tree, "-o", "json").out)["manifests"]
    assert document["attempted"]["problems"][0]["line"] == line
    assert document["attempted"]["valid"] is False
    assert document["in_force"]["commit"] == "0123456789abcdef0123"


@pytest.mark.parametrize("words", [["suspend", "workload/web", "--reason", "x"], ["restart", "workload/web"]])
def test_an_order_is_taken_while_the_tree_is_broken(words, tree, stored, reconcile):
    ran(tree, stored)
    line = break_it(tree)
    done = reconcile(*words[:2], tree, *words[2:])
    assert done.code == 0
    assert f".yaml:{line}:" in done.out.partition("\n")[0]


def test_manifests_in_force_are_no_line_and_a_field(tree, stored, reconcile):
    ran(tree, stored)
    assert not reconcile("get", "endpoints", tree).out.startswith("manifests: ")
    document = json.loads(reconcile("get", "endpoints", tree, "-o", "json").out)["manifests"]
    assert document["attempted"] is None
    assert document["in_force"]["revision"] == read_sources(tree).revision


def test_valid_manifests_that_no_run_has_read_are_named(tree, stored, reconcile):
    ran(tree, stored)
    (file,) = tree.glob("*.yaml")
    file.write_text(file.read_text() + "# changed\n")
    first = reconcile("get", "endpoints", tree).out.partition("\n")[0]
    assert "no run has put it in force yet" in first


def test_runs_with_a_local_file_are_not_compared_with_the_tree_alone(tree, stored, reconcile, tmp_path):
    local = tmp_path / "local.yaml"
    local.write_text("# local\n")
    ran(tree, stored, local=local)
    assert not reconcile("get", "endpoints", tree).out.startswith("manifests: ")


def test_the_daemon_s_view_is_shown_without_a_path(tree, stored, reconcile):
    archive = ran(tree, stored)
    line = break_it(tree)
    sources = read_sources(tree)
    with pytest.raises(trees.ManifestErrors) as raised:
        trees.resolve(sources)
    archive.attempted(sources.revision, raised.value.problems)
    first = reconcile("get", "endpoints", "--instance-id", "small").out.partition("\n")[0]
    assert f".yaml:{line}:" in first
    assert " is invalid for " in first


def test_a_tree_that_never_ran_is_refused_with_its_problems(tree, home, reconcile):
    line = break_it(tree)
    done = reconcile("status", tree)
    assert done.code == 3
    assert f".yaml:{line}:" in done.err


def test_an_instance_without_a_record_is_found_by_its_id(tree, stored, reconcile):
    ran(tree, stored)
    for file in ("source.json", "manifests.json"):
        (stored / file).unlink()
    break_it(tree)
    assert reconcile("status", tree).code == 3  # its last decision was made for another source
    assert reconcile("status", tree, "--instance-id", "small").code == 0
