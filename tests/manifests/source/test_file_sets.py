"""Which files beside the manifests are read, and which are refused."""

import json
import os
import socket
from hashlib import sha256
from pathlib import Path

import pytest

from manifests.source.directory import read_tree, with_contents, with_sets
from manifests.source.file_sets import ALL_SIZE, SET_FILES, SET_SIZE, needed_paths, read_sets
from manifests.values.files import FileSet
from tests.manifests.trees import write

TEMPLATE = {"volumes": [{"name": "c", "files": {"from": "./conf/"}}], "containers": [{"name": "a", "envFile": "a.env"}]}


def manifest(template: dict | None = None, kind: str = "Workload") -> str:
    spec = {"template": {"spec": TEMPLATE if template is None else template}}
    return json.dumps({"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec})


def only(root: Path, path: str) -> FileSet:
    (read,) = read_sets(str(root), [path])
    return read


def refused(root: Path, path: str, text: str) -> FileSet:
    read = only(root, path)
    assert text in read.problem, read
    assert read.files == ()
    return read


def test_volumes_and_variables_name_the_paths_that_a_set_needs(tmp_path: Path) -> None:
    (tmp_path / "web.json").write_text(manifest())
    more = {
        "containers": [
            {"envFile": ["b.env", {"path": "x/../up"}, {"path": "sub//c.env", "required": False}, 7, None]},
            3,
        ]
    }
    (tmp_path / "two.json").write_text(manifest(more))
    (tmp_path / "other.json").write_text(manifest(kind="Service"))
    (tmp_path / "no-manifest.json").write_text(manifest().replace("reconciler/v1", "v1"))
    tree = read_tree(tmp_path)
    assert needed_paths(tree.files) == ("a.env", "b.env", "conf", "sub/c.env")
    assert [item.path for item in tree.sets] == ["a.env", "b.env", "conf", "sub/c.env"]
    assert all(item.missing for item in tree.sets)


@pytest.mark.parametrize("written", ['"fil\\u0065s"', '"\\x66iles"', "? files\n          "], ids=["u", "x", "question"])
def test_a_field_in_another_spelling_is_found_too(written: str, tmp_path: Path) -> None:
    text = (
        "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      volumes:\n"
        f"        - name: c\n          {written}: {{from: conf}}\n"
    )
    write(tmp_path, {"web.yaml": text})
    assert [item.path for item in read_tree(tmp_path).sets] == ["conf"]


def test_mounted_files_are_no_manifests_and_manifests_are_no_mounted_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"web.json": manifest(), "conf/prometheus.yml": "global: {}", "conf/sub/a.json": "{", "confx.yaml": "x: 1"},
    )
    assert [file.name for file in read_tree(tmp_path).files] == ["confx.yaml", "web.json"]
    write(tmp_path, {"conf/service.yaml": "apiVersion: reconciler/v1\nkind: Service\n"})
    assert "conf/service.yaml" in [file.name for file in read_tree(tmp_path).files], "it does not vanish"


def test_a_source_that_has_only_the_manifests_is_asked_for_the_files(tmp_path: Path) -> None:
    write(tmp_path, {"web.json": manifest()})
    asked: list[str] = []

    def provide(path: str) -> str:
        asked.append(path)
        write(tmp_path, {"conf/a": "1"})
        return "the mirror is damaged" if path == "a.env" else ""

    before = read_tree(tmp_path)
    env, conf = with_sets(before, provide).sets
    assert asked == ["a.env", "conf"]
    assert (env.problem, [file.name for file in conf.files]) == ("the mirror is damaged", ["a"])
    assert with_sets(before, provide).revision != before.revision


def test_content_modes_and_absence_are_part_of_the_revision(tmp_path: Path) -> None:
    write(tmp_path, {"web.json": manifest(), "other.txt": "x"})
    revisions = [read_tree(tmp_path).revision]
    changes = (
        lambda: write(tmp_path, {"conf/a": "1"}),
        lambda: write(tmp_path, {"conf/a": "2"}),
        lambda: (tmp_path / "conf/a").chmod(0o755),
        lambda: (tmp_path / "conf/a").rename(tmp_path / "conf/b"),
        lambda: write(tmp_path, {"a.env": "A=1"}),
        lambda: (tmp_path / "conf/link").symlink_to("b"),
    )
    for change in changes:
        change()
        revisions.append(read_tree(tmp_path).revision)
    assert len(set(revisions)) == len(revisions)
    write(tmp_path, {"other.txt": "y"})
    assert read_tree(tmp_path).revision == revisions[-1], "a file that nothing refers to is none of our business"
    edited = with_contents(read_tree(tmp_path), {"web.json": manifest().encode() + b" "})
    assert edited.sets
    assert edited.revision == edited.digest() != revisions[-1]


def test_a_tree_without_such_files_has_the_revision_of_earlier_versions(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": "1"})
    assert read_tree(tmp_path).revision == sha256(sha256(b"a.yaml").digest() + sha256(b"1").digest()).hexdigest()


def test_a_directory_is_read_with_its_modes_and_without_temporary_files(tmp_path: Path) -> None:
    write(
        tmp_path, {"c/b": "1", "c/.hidden": "2", "c/d/a.yaml": "3", "c/.git/config": "4", "c/b~": "5", "c/.b.swp": "6"}
    )
    (tmp_path / "c/d/a.yaml").chmod(0o700)
    assert [(file.name, file.data, file.executable) for file in only(tmp_path, "c").files] == [
        (".hidden", b"2", False),
        ("b", b"1", False),
        ("d/a.yaml", b"3", True),
    ]
    assert only(tmp_path, "c/b").is_file
    assert not only(tmp_path, "c/d").is_file


def test_links_are_refused_wherever_they_lead(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, {"real/a": "1", "c/keep": "1"})
    (tmp_path / "secret").write_text("s")
    for name, target in (
        ("c/inside", "keep"),
        ("c/outside", "../../secret"),
        ("c/dangling", "nowhere"),
        ("c/dir", "../real"),
    ):
        link = root / name
        link.symlink_to(target)
        assert refused(root, "c", f"'{link.name}' is a link").hint
        assert refused(root, name, f"'{link.name}' is a link")
        link.unlink()
    (root / "linked").symlink_to("real")
    assert refused(root, "linked/a", "'linked' is a link")
    assert only(root, "c").problem == ""


def test_devices_pipes_and_sockets_are_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c/pipe")
    refused(tmp_path, "c", "'pipe' is neither a file nor a directory")
    (tmp_path / "c/pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "c/sock"))
        refused(tmp_path, "c", "'sock' is neither")


def test_a_set_is_bounded_in_files_bytes_depth_and_names(tmp_path: Path) -> None:
    write(tmp_path, {"big": b"x" * SET_SIZE, "bigger": b"x" * (SET_SIZE + 1), "empty/.git/x": ""})
    assert only(tmp_path, "big").problem == ""
    refused(tmp_path, "bigger", "more than 1 MiB")
    write(tmp_path, {f"many/{number}": "" for number in range(SET_FILES)})
    assert only(tmp_path, "many").problem == ""
    write(tmp_path, {"many/one-more": ""})
    refused(tmp_path, "many", f"more than {SET_FILES} files")
    write(tmp_path, {"deep/" + "d/" * 16 + "a": ""})
    refused(tmp_path, "deep", "nested more than 16 deep")
    write(tmp_path, {"named/a\nb": ""})
    refused(tmp_path, "named", "characters that cannot be shown")
    refused(tmp_path, "empty", "has no files")
    assert only(tmp_path, "x" * 300).problem, "a name that no file system allows"


def test_all_sets_of_a_tree_together_are_bounded(tmp_path: Path) -> None:
    number = (ALL_SIZE >> 20) + 1
    write(tmp_path, {f"big-{index}": b"x" * SET_SIZE for index in range(number)})
    *read, last = read_sets(str(tmp_path), [f"big-{index}" for index in range(number)])
    assert [item.problem for item in read] == [""] * len(read)
    assert "more than 32 MiB together" in last.problem


def test_an_unreadable_file_is_a_problem_and_never_a_gap(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    write(tmp_path, {"c/a": "1"})
    (tmp_path / "c/a").chmod(0)
    refused(tmp_path, "c", "'a' cannot be read")
