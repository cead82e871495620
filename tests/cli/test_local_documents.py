"""Commands with local documents beside a tree: `--instance FILE|DIR`."""

import os

import pytest

from reconciler.cli.app import run
from tests.cli.conftest import TREE

HOST, _, OF_TREE = TREE.partition("---\napiVersion: reconciler/v1\nkind: Workload")
OF_TREE = "apiVersion: reconciler/v1\nkind: Workload" + OF_TREE
ALLOWED = HOST.replace("{id: small}", "{id: small, allowProcess: [web]}")


@pytest.fixture
def local(tree, tmp_path):
    """A directory of local documents; the tree declares the rest."""
    directory = tmp_path / "etc"
    directory.mkdir(mode=0o700)
    for number, document in enumerate(ALLOWED.split("---\n")):
        (directory / f"{number}.yaml").write_text(document)
    (tree / "all.yaml").write_text(OF_TREE)
    return directory


def test_a_directory_and_a_file_of_local_documents_are_the_same(tree, local, tmp_path, reconcile):
    one = tmp_path / "one.yaml"
    one.write_text(ALLOWED)
    with_directory = reconcile("validate", tree, "--instance", local)
    assert (with_directory.code, with_directory.out) == (0, reconcile("validate", tree, "--instance", one).out)
    assert "instance 'small' with 3 providers, 1 workload" in with_directory.out


def test_a_relative_directory_and_a_link_to_it_work(tree, local, reconcile, monkeypatch):
    monkeypatch.chdir(local.parent)
    (local.parent / "link").symlink_to(local)
    assert reconcile("validate", tree, "--instance", "etc").code == 0
    assert reconcile("validate", tree, "--instance", "link").code == 0


def test_what_the_tree_must_give_up_is_named_with_its_place_and_next_step(tree, local, reconcile):
    (tree / "all.yaml").write_text(TREE)
    done = reconcile("validate", tree, "--instance", local)
    assert done.code == 3
    places = [line.partition(" ")[0] for line in done.out.splitlines() if "local-only" in line]
    assert places == ["all.yaml:2:7:", "all.yaml:7:7:", "all.yaml:12:7:", "all.yaml:17:7:"]
    assert done.out.count("move this document to the file or directory of --instance, or remove it") == 4


def test_local_documents_that_others_can_write_are_not_used(tree, local, reconcile):
    (local / "0.yaml").chmod(0o664)
    done = reconcile("plan", tree, "--instance", local)
    assert done.code == 3
    assert f"chmod go-w {local}/0.yaml" in done.err


def test_an_empty_path_of_local_documents_is_refused(tree, reconcile, monkeypatch):
    monkeypatch.chdir("/")
    done = reconcile("validate", tree, "--instance", "")
    assert done.code == 64
    assert "the path of the local documents is empty" in done.err


def test_commands_find_the_instance_by_its_tree_alone(tree, local, reconcile):
    assert reconcile("--once", tree, "--instance", local, "--no-wait").code in (0, 6)
    try:
        for words in (("status",), ("get", "endpoints"), ("explain", "workload/web")):
            done = reconcile(*words, tree)
            assert (done.code, done.err) == (0, ""), words
            assert not done.out.startswith("manifests: "), words
            assert reconcile(*words, tree, "--instance", f"{local}/../etc").code == 0
        (tree / "bad.yaml").write_text("a: [\n")
        first = reconcile("status", tree, "--instance", local).out.partition("\n")[0]
        assert first.startswith("manifests: bad.yaml:1:4: yaml-syntax")
        (tree / "bad.yaml").unlink()
    finally:
        assert reconcile("destroy", tree, "--instance", local, "--yes", "--timeout", "60s").code == 0


def test_deploy_does_not_edit_a_local_document(tree, local, reconcile):
    name = local / "9.yaml"
    name.write_text(OF_TREE.partition("---\n")[0])
    done = reconcile("deploy", "workload/web", tree, "--image", "x:2", "--instance", local)
    assert done.code != 0
    assert f"is declared in the local document {name}" in done.err


def test_doctor_and_schema_know_local_documents(tree, local, reconcile):
    assert reconcile("doctor", tree, "--instance", local).code == 0
    assert "allowProcess" in reconcile("schema").out
    assert run(["doctor", str(tree), "--instance", os.fspath(local / "0.yaml")]) == 3
