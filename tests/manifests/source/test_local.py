"""Local documents: which files are read, and who may be able to write them."""

import os
from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.source.local import LocalDocuments, read_local
from tests.manifests.trees import write

TEXT = "kind: Instance\n"


def read(base: Path, given: Path | str = "local") -> LocalDocuments:
    tree = base / "tree"
    tree.mkdir(exist_ok=True)
    return read_local(base / given, tree)


def only_problem(base: Path, given: Path | str = "local") -> tuple[Code, str]:
    found = read(base, given)
    (problem,) = found.problems
    assert found.files == ()
    assert problem.hint
    return problem.code, f"{problem.file}: {problem.message} {problem.hint}"


def test_all_files_of_a_directory_are_read_in_order(tmp_path: Path) -> None:
    names = ["b.yaml", "a.yml", "c/d.JSON", "c/a.yaml"]
    skipped = [".hidden.yaml", ".git/x.yaml", "#a.yaml", "notes.txt", "e.yaml~"]
    write(tmp_path / "local", {name: f"# {name}\n" for name in (*names, *skipped)})

    found = read(tmp_path)

    assert [os.path.relpath(file.name, tmp_path / "local") for file in found.files] == sorted(names)
    assert found.problems == ()


def test_a_file_may_be_given_by_a_link(tmp_path: Path) -> None:
    write(tmp_path, {"real/instance.yaml": TEXT})
    (tmp_path / "link.yaml").symlink_to("real/instance.yaml")
    (tmp_path / "local").mkdir()
    (tmp_path / "local/linked.yaml").symlink_to("../real/instance.yaml")

    assert [file.data for file in read(tmp_path, "link.yaml").files] == [TEXT.encode()]
    assert [file.data for file in read(tmp_path).files] == [TEXT.encode()]


def test_local_documents_have_absolute_names_unlike_any_of_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"local/a.yaml": TEXT, "tree/b.yaml": ""})
    monkeypatch.chdir(tmp_path)

    assert [file.name for file in read_local("local", "tree").files] == [str(tmp_path / "local/a.yaml")]
    assert read_local("local/../tree", "tree").problems[0].code is Code.UNSAFE_LOCAL


def test_a_directory_without_documents_is_a_problem_not_trust(tmp_path: Path) -> None:
    write(tmp_path / "local", {".hidden.yaml": TEXT, "notes.txt": ""})

    assert only_problem(tmp_path)[0] is Code.UNREADABLE_FILE
    assert only_problem(tmp_path, "missing")[0] is Code.UNREADABLE_FILE


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.parametrize("which", ["a.yaml", "sub/b.yaml"])
def test_a_document_that_others_may_write_is_refused(which: str, mode: int, tmp_path: Path) -> None:
    write(tmp_path / "local", {"a.yaml": TEXT, "sub/b.yaml": TEXT})
    (tmp_path / "local" / which).chmod(mode)

    code, text = only_problem(tmp_path)
    assert code is Code.UNSAFE_LOCAL
    assert f"chmod go-w {os.path.realpath(tmp_path)}/local/{which}" in text


@pytest.mark.parametrize("which", [".", "local", "local/sub"])
def test_a_directory_in_which_others_may_replace_a_document_is_refused(which: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    write(base / "local", {"sub/b.yaml": TEXT})
    (base / which).chmod(0o777)

    assert read_local(base / "local", tmp_path / "tree").problems[0].code is Code.UNSAFE_LOCAL
    # With the sticky bit others may add files, and not replace ours: above the directory, but not in it.
    (base / which).chmod(0o1777)
    assert bool(read_local(base / "local", tmp_path / "tree").problems) == (which != ".")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("which", [".", "local", "local/a.yaml"])
def test_a_document_of_another_user_is_refused(which: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    write(base / "local", {"a.yaml": TEXT})
    os.chown(base / which, 65_534, -1)

    (problem,) = read_local(base / "local", tmp_path / "tree").problems
    assert problem.code is Code.UNSAFE_LOCAL
    assert "user 65534" in problem.message
    assert "chown 0" in problem.hint


def test_local_documents_in_the_tree_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"tree/local/a.yaml": TEXT, "tree/web.yaml": "", "sub/b.yaml": TEXT})

    for given in ("tree/local", "tree/local/a.yaml", "tree", ".", "tree/../tree/local"):
        found = read(tmp_path, given)
        assert {problem.code for problem in found.problems} == {Code.UNSAFE_LOCAL}, given
        assert found.files == ()


def test_a_link_that_leads_into_the_tree_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"tree/a.yaml": TEXT, "local/b.yaml": TEXT})
    (tmp_path / "to-dir").symlink_to("tree")
    (tmp_path / "local/a.yaml").symlink_to("../tree/a.yaml")
    (tmp_path / "to-tree").symlink_to("tree")

    assert only_problem(tmp_path)[0] is Code.UNSAFE_LOCAL
    assert only_problem(tmp_path, "to-dir")[0] is Code.UNSAFE_LOCAL
    assert read_local(tmp_path / "tree", tmp_path / "to-tree").problems[0].code is Code.UNSAFE_LOCAL


def test_a_linked_directory_is_named_not_skipped(tmp_path: Path) -> None:
    write(tmp_path, {"other/guard.yaml": TEXT, "local/a.yaml": TEXT})
    (tmp_path / "local/more").symlink_to("../other")

    code, text = only_problem(tmp_path)
    assert (code, "local/more: a link to a directory" in text) == (Code.UNREADABLE_FILE, True)


def test_the_git_work_tree_of_the_manifests_holds_no_local_documents(tmp_path: Path) -> None:
    write(tmp_path, {"repo/.git/HEAD": "", "repo/manifests/w.yaml": "", "repo/local/a.yaml": TEXT, "etc/a.yaml": TEXT})

    (problem,) = read_local(tmp_path / "repo/local", tmp_path / "repo/manifests").problems
    assert problem.code is Code.UNSAFE_LOCAL
    assert "git work tree" in problem.message
    assert read_local(tmp_path / "etc", tmp_path / "repo/manifests").problems == ()


def test_a_pipe_and_a_device_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    os.mkfifo(tmp_path / "local/a.yaml")

    assert only_problem(tmp_path)[0] is Code.UNREADABLE_FILE
    assert read(tmp_path, "/dev/zero").problems[0].code is Code.UNREADABLE_FILE


def test_the_revision_depends_on_every_file(tmp_path: Path) -> None:
    write(tmp_path / "local", {"a.yaml": TEXT, "b.yaml": TEXT})
    before = read(tmp_path).revision

    write(tmp_path / "local", {"b.yaml": TEXT + "# changed\n"})
    assert read(tmp_path).revision != before
