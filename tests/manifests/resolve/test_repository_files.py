"""Volumes and variables from files of the repository: what a template gets, what changes its revision, and what is refused where."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.load import read_sources
from manifests.problems import Code, Problem
from manifests.values.desired import Desired, Workload
from manifests.values.files import OnFilesChange
from manifests.values.pod import Mount, VolumeKind
from tests.manifests.trees import ENGINE_PROVIDERS, INSTANCE, load_files, problems_of, write

FILES = {
    "conf/app.conf": "a: 1\n",
    "conf/run.sh": "#!/bin/sh\n",
    "one.conf": "x",
    "app.env": "A=1\nB=2\n",
    "more.env": "B=3\nC=4\n",
}


def tree(files: object = None, **container: object) -> dict[str, str]:
    mounts = [] if files is None else [{"name": "conf", "mountPath": "/conf"}]
    main = {"name": "app", "image": "shop/app:1", "volumeMounts": mounts, **container}
    spec: dict[str, object] = {"containers": [main]}
    if files is not None:
        spec["volumes"] = [{"name": "conf", "files": files}]
    web = {
        "apiVersion": "reconciler/v1",
        "kind": "Workload",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": spec}},
    }
    return {"all.yaml": f"{INSTANCE}---\n{ENGINE_PROVIDERS}", "sub/web.json": json.dumps(web), **FILES}


def web(root: Path, given: dict[str, str]) -> Workload:
    return desired(root, given).workloads[0]


def desired(root: Path, given: dict[str, str]) -> Desired:
    return load_files(root, given)


def warnings_of(root: Path, given: dict[str, str]) -> list[Problem]:
    problems = problems_of(root, given)
    assert all(item.is_warning for item in problems), problems
    return list(problems)


def problem(root: Path, given: dict[str, str]) -> Problem:
    (only,) = problems_of(root, given)
    return only


def test_a_volume_names_its_files_and_their_contents_are_kept(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    (tmp_path / "conf/run.sh").chmod(0o755)
    value = desired(tmp_path, tree({"from": "./conf"}))
    (volume,) = value.workloads[0].template.volumes
    assert [(entry.name, entry.executable) for entry in volume.files] == [("app.conf", False), ("run.sh", True)]
    assert (volume.name, volume.on_change, volume.signal, volume.single) == ("conf", OnFilesChange.ROLLOUT, "", False)
    assert {file.name: file.data for file in value.file_contents[volume.digest].files}["app.conf"] == b"a: 1\n"
    mount = Mount(VolumeKind.FILES, "conf", "/conf", read_only=True)
    assert value.workloads[0].template.container.engine.mounts == (mount,)


def test_items_choose_files_and_names_and_mode_is_for_all(tmp_path: Path) -> None:
    given = {"from": "conf", "items": [{"key": "app.conf", "path": "d/x.yaml"}, {"key": "run.sh"}], "mode": "0555"}
    (volume,) = web(tmp_path, tree(given)).template.volumes
    assert [(entry.name, entry.executable) for entry in volume.files] == [("d/x.yaml", True), ("run.sh", True)]


def test_one_file_is_a_volume_too(tmp_path: Path) -> None:
    (volume,) = web(tmp_path, tree({"from": "one.conf"})).template.volumes
    assert volume.single
    assert [entry.name for entry in volume.files] == ["one.conf"]


Change = Callable[[dict[str, str]], object]

SAME: list[tuple[str, object, Change]] = [
    ("another place", {"from": "conf"}, lambda t: t.update({"sub/web.json": t["sub/web.json"].replace('"conf"}', '"x/y"}'), "x/y/app.conf": "a: 1\n", "x/y/run.sh": "#!/bin/sh\n"})),
    ("another file beside it", {"from": "conf"}, lambda t: t.update({"confx": "1"})),
    ("all files as items", {"from": "conf"}, lambda t: t.update({"sub/web.json": t["sub/web.json"].replace('"conf"}', '"conf", "items": [{"key": "app.conf"}, {"key": "run.sh"}]}')})),
    ("content with signal", {"from": "conf", "onChange": "signal"}, lambda t: t.update({"conf/app.conf": "b: 2"})),
    ("the signal", {"from": "conf", "onChange": "signal"}, lambda t: t.update({"sub/web.json": t["sub/web.json"].replace('"signal"', '"signal", "signal": "SIGUSR1"')})),
    ("content without reaction", {"from": "conf", "onChange": "nothing"}, lambda t: t.update({"conf/app.conf": "b: 2"})),
]  # fmt: skip

OTHER: list[tuple[str, object, Change]] = [
    ("content", {"from": "conf"}, lambda t: t.update({"conf/app.conf": "b: 2"})),
    ("a new file", {"from": "conf"}, lambda t: t.update({"conf/new": ""})),
    ("the mode", {"from": "conf"}, lambda t: t.update({"sub/web.json": t["sub/web.json"].replace('"conf"}', '"conf", "mode": "0555"}')})),
    ("the reaction", {"from": "conf"}, lambda t: t.update({"sub/web.json": t["sub/web.json"].replace('"conf"}', '"conf", "onChange": "signal"}')})),
]  # fmt: skip


@pytest.mark.parametrize(("files", "change"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_what_needs_no_new_container_leaves_the_revision(tmp_path: Path, files: object, change: Change) -> None:
    before = web(tmp_path / "a", tree(files)).template
    other = tree(files)
    change(other)
    assert web(tmp_path / "b", other).template.revision == before.revision


@pytest.mark.parametrize(("files", "change"), [row[1:] for row in OTHER], ids=[row[0] for row in OTHER])
def test_what_needs_a_new_container_changes_the_revision(tmp_path: Path, files: object, change: Change) -> None:
    before = web(tmp_path / "a", tree(files)).template
    other = tree(files)
    change(other)
    assert web(tmp_path / "b", other).template.revision != before.revision


def test_variables_are_merged_in_order_and_env_wins(tmp_path: Path) -> None:
    files = ["app.env", {"path": "more.env"}, {"path": "no.env", "required": False}]
    workload = web(tmp_path, tree(envFile=files, env=[{"name": "C", "value": "own"}]))
    container = workload.template.container
    assert dict(container.env) == {"A": "1", "B": "3", "C": "own"}
    assert len(container.env) == 3
    assert set(workload.env_origins) == {("app", "A", "app.env:1"), ("app", "B", "more.env:1")}


def test_a_secret_in_env_overrides_a_variable_of_a_file(tmp_path: Path) -> None:
    env = [{"name": "A", "valueFrom": {"secret": {"env": "X"}}}]
    container = web(tmp_path, tree(envFile="app.env", env=env)).template.container
    assert [name for name, _ in container.env] == ["B"]
    assert [name for name, _ in container.engine.secret_env] == ["A"]


def test_only_values_of_variables_change_the_revision(tmp_path: Path) -> None:
    def revision(name: str, text: str) -> str:
        return web(tmp_path / name, {**tree(envFile="app.env"), "app.env": text}).template.revision

    assert revision("a", "A=1\nB=2\n") == revision("b", "# comment\nB='2'\n\nA=1 # x\n")
    assert revision("c", "A=1\nB=3\n") != revision("a", "A=1\nB=2\n")


def test_files_of_the_tree_are_a_part_of_its_revision(tmp_path: Path) -> None:
    write(tmp_path, tree({"from": "conf"}, envFile="app.env"))
    before = read_sources(tmp_path).state
    write(tmp_path, {"conf/app.conf": "b: 1"})
    assert read_sources(tmp_path).state != before


REFUSED: list[tuple[str, dict[str, str], Code, str, str]] = [
    ("missing", tree({"from": "nowhere"}), Code.UNUSABLE_FILES, "files.from", "no such file or directory"),
    ("up", tree({"from": "../x"}), Code.BAD_VALUE, "files.from", "not a path inside the tree"),
    ("absolute", tree({"from": "/etc"}), Code.BAD_VALUE, "files.from", "not a path inside the tree"),
    ("the tree itself", tree({"from": "."}), Code.UNUSABLE_FILES, "files.from", "holds a manifest: all.yaml"),
    ("no such item", tree({"from": "conf", "items": [{"key": "x"}]}), Code.UNUSABLE_FILES, "files.items[0].key", "no file 'x'"),
    ("item above", tree({"from": "conf", "items": [{"key": "app.conf", "path": "../x"}]}), Code.BAD_VALUE, "files.items[0].path", "not a path inside"),
    ("items of one file", tree({"from": "one.conf", "items": [{"key": "one.conf"}]}), Code.BAD_VALUE, "files.items", "does nothing"),
    ("two items at one path", tree({"from": "conf", "items": [{"key": "app.conf", "path": "a"}, {"key": "run.sh", "path": "a/b"}]}), Code.BAD_VALUE, "files.items[1]", "taken by another item"),
    ("signal for one file", tree({"from": "one.conf", "onChange": "signal"}), Code.BAD_VALUE, "files.onChange", "needs a directory"),
    ("signal without signal", tree({"from": "conf", "signal": "SIGHUP"}), Code.BAD_VALUE, "files.signal", "does nothing"),
    ("a signal that ends programs", tree({"from": "conf", "onChange": "signal", "signal": "SIGKILL"}), Code.BAD_VALUE, "files.signal", "no program can handle SIGKILL"),
    ("no signal", tree({"from": "conf", "onChange": "signal", "signal": "SIGFOO"}), Code.BAD_VALUE, "files.signal", "not the name of a signal"),
    ("a name of ours", tree({"from": "dots", "onChange": "signal"}) | {"dots/..data": "x"}, Code.UNUSABLE_FILES, "files.from", "'..data'"),
    ("a directory of ours", tree({"from": "dots", "onChange": "signal"}) | {"dots/..data/x": "x"}, Code.UNUSABLE_FILES, "files.from", "'..data/x'"),
    ("git's directory", tree({"from": ".git"}) | {".git/config": "token"}, Code.BAD_VALUE, "files.from", "git's own directory"),
    ("below git's directory", tree({"from": "conf/.GIT/config"}) | {"conf/.GIT/config": "token"}, Code.BAD_VALUE, "files.from", "git's own directory"),
    ("variables of git", tree(envFile=".git/config") | {".git/config": "token = x"}, Code.BAD_VALUE, "envFile[0].path", "git's own directory"),
    ("writable", tree({"from": "conf"}, volumeMounts=[{"name": "conf", "mountPath": "/c", "readOnly": False}]), Code.BAD_VALUE, "volumeMounts[0].readOnly", "read-only"),
    ("directory of variables", tree(envFile="conf"), Code.UNUSABLE_FILES, "envFile", "it is a directory"),
    ("missing variables", tree(envFile=["app.env", "no.env"]), Code.UNUSABLE_FILES, "envFile[1]", "no such file"),
    ("a file twice", tree(envFile=["app.env", "./app.env"]), Code.BAD_VALUE, "envFile[1]", "in the list twice"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "code", "path", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_cannot_be_mounted_is_refused_at_its_place(
    tmp_path: Path, given: dict[str, str], code: Code, path: str, text: str
) -> None:
    only = problem(tmp_path, given)
    assert only.code is code
    assert only.path.endswith(path)
    assert text in only.message
    assert only.file == "sub/web.json"


def test_a_path_beside_the_manifest_is_suggested(tmp_path: Path) -> None:
    only = problem(tmp_path, {**tree({"from": "conf2"}), "sub/conf2/a": ""})
    assert "write ./sub/conf2" in only.hint


def test_a_link_is_refused_at_the_volume(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    (tmp_path / "conf/link").symlink_to("/etc/passwd")
    only = problem(tmp_path, tree({"from": "conf"}))
    assert (only.code, "'link' is a link" in only.message) == (Code.UNUSABLE_FILES, True)


KEYS = {"private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nx", "age key": "AGE-SECRET-KEY-1ABC"}
ENCRYPTED = {
    "sops": "a: ENC[AES256_GCM,data:x]",
    "age": "age-encryption.org/v1\n-> X25519 x\n",
    "armored age": "-----BEGIN AGE ENCRYPTED FILE-----\nx",
    "pgp": "-----BEGIN PGP MESSAGE-----\nx",
    "eyaml": "password: ENC[PKCS7,MIIB]",
    "vault": "$ANSIBLE_VAULT;1.1;AES256\n00",
    "git-crypt": "\0GITCRYPT\0x",
    "placeholder": "***\n",
}


@pytest.mark.parametrize("content", ENCRYPTED.values(), ids=list(ENCRYPTED))
def test_ciphertext_in_a_mounted_file_is_an_error_unless_it_is_meant(tmp_path: Path, content: str) -> None:
    only = problem(tmp_path, {**tree({"from": "conf"}), "conf/app.conf": content})
    assert (only.code, only.path) == (Code.CIPHERTEXT, "spec.template.spec.volumes[0].files.from")
    assert "app.conf: it is " in only.message
    assert "allowCiphertext: true" in only.hint
    assert content.strip() not in only.render()
    meant = {**tree({"from": "conf", "allowCiphertext": True}), "conf/app.conf": content}
    assert warnings_of(tmp_path / "meant", meant) == []


@pytest.mark.parametrize("content", ENCRYPTED.values(), ids=list(ENCRYPTED))
def test_an_encrypted_file_of_variables_is_an_error(tmp_path: Path, content: str) -> None:
    only = problem(tmp_path, {**tree(envFile="app.env"), "app.env": content})
    assert only.code is Code.CIPHERTEXT


@pytest.mark.parametrize("value", ["ENC[AES256_GCM,data:x]", "'ENC[PKCS7,MIIB]'", "***", '"<redacted>"', "Bearer ****"])
def test_ciphertext_of_a_variable_is_an_error_with_its_line(tmp_path: Path, value: str) -> None:
    text = f"A=1\nB={value}\n"
    only = problem(tmp_path, {**tree(envFile="app.env"), "app.env": text})
    assert (only.file, only.line, only.code) == ("app.env", 2, Code.CIPHERTEXT)
    assert only.message.startswith("B: it is ")
    assert "valueFrom.secret" in only.hint
    assert value not in only.render()


@pytest.mark.parametrize("content", KEYS.values(), ids=list(KEYS))
def test_keys_in_files_are_a_warning(tmp_path: Path, content: str) -> None:
    given = {**tree({"from": "conf"}), "conf/app.conf": content}
    (warning,) = warnings_of(tmp_path, given)
    assert (warning.code, warning.path) == (Code.PLAIN_SECRET, "spec.template.spec.volumes[0].files.from")
    assert content not in warning.render()


def test_names_of_secrets_and_repeated_names_are_warnings_with_their_lines(tmp_path: Path) -> None:
    text = "KEYBOARD=us\nMONKEY=1\nDB_PASSWORD=hunter2\nAPI_TOKEN=\nA=1\nA=2\n"
    warnings = warnings_of(tmp_path, {**tree(envFile="app.env"), "app.env": text})
    assert [(item.file, item.line, item.code) for item in warnings] == [
        ("app.env", 3, Code.PLAIN_SECRET),
        ("app.env", 6, Code.REPEATED_VARIABLE),
    ]
    assert "hunter2" not in str(warnings)


def test_a_runtime_of_processes_takes_variables_and_no_files(tmp_path: Path) -> None:
    given = tree({"from": "conf"})
    given["all.yaml"] = given["all.yaml"].replace("type: engine", "type: process")
    messages = [item.message for item in problems_of(tmp_path, given)]
    assert any("do not support 'volumes'" in message for message in messages), messages
