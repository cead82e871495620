"""The files of a directory that are read, and the identity of the set."""

import os
import subprocess
from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.source.directory import read_tree
from manifests.source.identity import commit_of, without_credentials
from tests.manifests.trees import GOOD, INSTANCE, problems_at, write


def names(root: Path) -> list[str]:
    tree = read_tree(root)
    assert tree.problems == ()
    return [file.name for file in tree.files]


def git(root: Path, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, env=environment)


def test_manifests_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    write(tmp_path, {"b.yaml": "1", "a/z.yml": "2", "a/b/c.json": "3", "B.YAML": "4"})

    assert names(tmp_path) == ["B.YAML", "a/b/c.json", "a/z.yml", "b.yaml"]


def test_hidden_files_editor_backups_and_other_files_are_skipped(tmp_path: Path) -> None:
    skipped = [
        ".hidden.yaml",
        ".git/a.yaml",
        ".#a.yaml",
        "#a.yaml#",
        "a.yaml~",
        "a.yaml.swp",
        "a.yaml.tmp",
        ".a.yaml.swp",
    ]
    write(tmp_path, {"a.yaml": "1", "server.py": "x", "README.md": "x", "yaml": "x"} | dict.fromkeys(skipped, "x"))

    assert names(tmp_path) == ["a.yaml"]


def test_a_link_inside_the_directory_is_followed_once(tmp_path: Path) -> None:
    """Like in a mounted volume: links to a hidden directory that is replaced as a whole."""
    write(tmp_path, {"..2026/web.yaml": "1", "..2026/conf/b.yaml": "2", "plain/c.yaml": "3"})
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "web.yaml").symlink_to("..data/web.yaml")
    (tmp_path / "conf").symlink_to("..data/conf")
    (tmp_path / "conf2").symlink_to("..data/conf")
    (tmp_path / "twice").symlink_to("plain")
    (tmp_path / "loop").symlink_to(".")

    assert names(tmp_path) == ["conf/b.yaml", "plain/c.yaml", "web.yaml"]


@pytest.mark.parametrize("target", ["../outside", "../outside/a.yaml", "/etc", "../tree2"])
def test_a_link_out_of_the_directory_is_refused(target: str, tmp_path: Path) -> None:
    write(tmp_path / "outside", {"a.yaml": "1"})
    write(tmp_path / "tree2", {"a.yaml": "1"})
    root = write(tmp_path / "tree", {"b.yaml": "1"})
    (root / "link.yaml").symlink_to(target)

    assert [(problem.code, problem.file) for problem in read_tree(root).problems] == [
        (Code.LINK_LEAVES_TREE, "link.yaml")
    ]


def test_a_link_that_is_not_a_manifest_may_lead_anywhere(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": "1"})
    (tmp_path / "python").symlink_to("/bin/sh")

    assert names(tmp_path) == ["a.yaml"]


def test_a_working_directory_cannot_leave_by_a_link(tmp_path: Path) -> None:
    workload = str(GOOD["web.yaml"]).replace("          args:", "          workingDir: app/x\n          args:")
    root = write(tmp_path / "tree", GOOD | {"web.yaml": workload})
    (root / "app").symlink_to("/", target_is_directory=True)

    problems = problems_at(root)

    assert {problem.code for problem in problems} == {Code.LINK_LEAVES_TREE}


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("nowhere.yaml"),
        lambda path: path.symlink_to("x.yaml"),
    ],
)
def test_a_pipe_or_broken_link_is_a_problem_and_never_blocks(make: object, tmp_path: Path) -> None:
    make(tmp_path / "x.yaml")  # type: ignore[operator]

    problems = read_tree(tmp_path).problems

    assert [(problem.code, problem.file) for problem in problems] == [(Code.UNREADABLE_FILE, "x.yaml")]


def test_a_name_that_cannot_be_printed_is_escaped(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff\n.yaml")).write_text("1")

    assert names(tmp_path) == ["a\\xff\\n.yaml"]


def test_the_revision_follows_names_and_contents_and_nothing_else(tmp_path: Path) -> None:
    one = read_tree(write(tmp_path / "1", {"a.yaml": "x", "code.py": "1"})).revision

    assert read_tree(write(tmp_path / "2", {"a.yaml": "x", "code.py": "2"})).revision == one
    assert read_tree(write(tmp_path / "3", {"b.yaml": "x"})).revision != one
    assert read_tree(write(tmp_path / "4", {"a.yaml": "y"})).revision != one


def test_outside_of_git_the_identity_is_the_path(tmp_path: Path) -> None:
    tree = read_tree(write(tmp_path, {"a.yaml": INSTANCE}))

    assert (tree.identity, tree.root, tree.is_git) == (str(tmp_path), str(tmp_path), False)


def test_inside_a_work_tree_the_identity_is_remote_and_path(tmp_path: Path) -> None:
    root = write(tmp_path / "hosts" / "a", {"a.yaml": INSTANCE})
    git(tmp_path, "init", "-q")

    assert read_tree(root).identity == f"{tmp_path}//hosts/a"

    git(tmp_path, "remote", "add", "origin", "https://user:secret@example.com/team/repo.git?token=t")
    tree = read_tree(root)

    assert tree.is_git
    assert tree.identity == "https://example.com/team/repo//hosts/a"
    assert read_tree(tmp_path).identity == "https://example.com/team/repo//"


def test_a_broken_work_tree_falls_back_to_the_path(tmp_path: Path) -> None:
    write(tmp_path, {".git": "nonsense", "a.yaml": INSTANCE})

    assert read_tree(tmp_path).identity == str(tmp_path)


def test_a_repository_among_the_manifests_runs_no_program(tmp_path: Path) -> None:
    tree = write(tmp_path / "repo" / "manifests", {"a.yaml": INSTANCE, ".gitattributes": "*.yaml filter=theirs\n"})
    git(tree.parent, "init", "-q")
    # A bare repository is a few files that a commit may hold. Its filter would run for each changed file.
    git(tree, "init", "-q", "--bare", ".")
    theirs = ("--git-dir=.", "--work-tree=.", "-c", "user.name=x", "-c", "user.email=x@example.com")
    git(tree, *theirs, "add", "a.yaml", ".gitattributes")
    git(tree, *theirs, "commit", "-qm", "x")
    git(tree, *theirs, "config", "core.bare", "false")
    git(tree, *theirs, "config", "core.worktree", str(tree))
    git(tree, *theirs, "config", "filter.theirs.clean", f"touch {tmp_path}/ran; cat")
    write(tree, {"a.yaml": INSTANCE.replace("demo", "domo")})

    commit, identity = commit_of(tree), read_tree(tree).identity

    assert not (tmp_path / "ran").exists()
    assert commit == ""  # that of the work tree, which has none
    assert identity == f"{tree.parent}//manifests"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://token@example.com/r", "https://example.com/r"),
        ("https://u:p@example.com/r.git#x", "https://example.com/r"),
        ("ssh://git:p@example.com:22/r/", "ssh://example.com:22/r"),
        ("git@example.com:team/r.git", "git@example.com:team/r"),
        ("/srv/git/r.git", "/srv/git/r"),
    ],
)
def test_an_identity_holds_no_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
