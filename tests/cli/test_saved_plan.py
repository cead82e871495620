"""Saved plans from the command line: what is planned is done, and whatever moved in between is named, with exit 4 and no action."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.saved_plan import LARGEST, PlanFileError, StalePlan, _checksum, read
from tests.cli.test_approve import call

INSTANCE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: here}
spec: {id: saving, prune: true}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: zone}
spec: {type: zonefile, settings: {directory: "DIRECTORY"}}
---
apiVersion: reconciler/v1
kind: Guard
metadata: {name: limits}
spec: {approve: [delete]}
"""
RECORD = """\
apiVersion: reconciler/v1
kind: Record
metadata: {name: NAME}
spec: {host: NAME.a.test, zone: a.test, type: A, values: [VALUE]}
"""
LIST = """\
apiVersion: reconciler/v1
kind: RecordList
metadata: {name: names}
spec: {zone: a.test, names: {ROWS}}
"""
ZONE = """$TTL 300
@ IN SOA ns1 h 7 1h 1h 1h 1h
@ NS ns1
ns1 A 192.0.2.5
"""


def record(world: Path, name: str, value: str) -> None:
    (world / "tree" / f"{name}.yaml").write_text(RECORD.replace("NAME", name).replace("VALUE", value))


def zone(world: Path) -> str:
    return "\n".join(
        line for line in (world / "zones" / "a.test.zone").read_text().splitlines() if not line.startswith(";")
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One record is published, and its next value is in the manifests."""
    (tmp_path / "zones").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "zones" / "a.test.zone").write_text(ZONE)
    (tmp_path / "tree" / "here.yaml").write_text(INSTANCE.replace("DIRECTORY", str(tmp_path / "zones")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record(tmp_path, "www", "192.0.2.1")
    assert call(tmp_path, "--once", "tree", "--timeout", "10s")[0] == 0
    record(tmp_path, "www", "192.0.2.2")
    return tmp_path


def saved(world: Path, *words: str) -> str:
    code, text = call(world, "plan", "tree", "--out", "a.plan", *words)
    assert code == 0, text
    return text


def apply(world: Path, *words: str) -> tuple[int, str]:
    return call(world, "apply", "tree", "--plan", "a.plan", "--timeout", "20s", *words)


def test_a_saved_plan_is_shown_and_applied_without_a_question(world: Path) -> None:
    text = saved(world)
    assert "to apply it, run: reconcile apply tree --plan a.plan" in text
    assert (world / "a.plan").stat().st_mode & 0o777 == 0o600
    code, shown = call(world, "show", "a.plan")
    assert code == 0
    for line in text.splitlines():
        if "192.0.2.2" in line:
            assert line in shown
    code, document = call(world, "show", "a.plan", "-o", "json")
    assert (code, json.loads(document)["changes"][0]["object"]) == (0, "record/www")
    code, text = apply(world)
    assert code == 0, text
    assert "192.0.2.2" in zone(world)
    code, text = apply(world)
    assert code == 4
    assert "planned, and not due any more" in text


def _later_value(world: Path) -> None:
    record(world, "www", "192.0.2.3")


def _more(world: Path) -> None:
    record(world, "more", "192.0.2.7")


def _less(world: Path) -> None:
    (world / "tree" / "www.yaml").unlink()


def _guard(world: Path) -> None:
    file = world / "tree" / "here.yaml"
    file.write_text(file.read_text().replace("[delete]", "[delete, downtime]"))


def _zone(world: Path) -> None:
    file = world / "zones" / "a.test.zone"
    file.write_text(file.read_text().replace("192.0.2.1\n", "192.0.2.66\n").replace(" 1h 1h", " 2h 1h"))


def _instance(world: Path) -> None:
    file = world / "tree" / "here.yaml"
    file.write_text(file.read_text().replace("id: saving", "id: another"))


def _ledger(world: Path) -> None:
    (world / "state" / "reconciler" / "saving" / "state.db").unlink()


def _later(world: Path) -> None:
    _forge(world, lambda body: body["content"].update(expires_wall=body["content"]["made_wall"] + 1))


def _newer_format(world: Path) -> None:
    file = world / "a.plan"
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))


def _forge(world: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    """Change a plan with a checksum that fits, as another version of the program could."""
    body = json.loads((world / "a.plan").read_text())
    change(body)
    body["checksum"] = _checksum(body["content"])
    (world / "a.plan").write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("move", "named"),
    [
        (_later_value, "manifest www.yaml changed"),
        (_more, "manifest more.yaml is new"),
        (_less, "manifest www.yaml is gone"),
        (_guard, "the limits of the Guard changed"),
        (_zone, "www.a.test. A: 192.0.2.66 ttl 300 -> 192.0.2.2 ttl 300"),
        (_instance, "the plan is for instance 'saving', and the manifests declare 'another'"),
        (_ledger, "another state directory"),
        (_later, "the plan expired"),
        (_newer_format, "the file has format 2"),
    ],
)
def test_what_moved_is_named_and_nothing_is_done(world: Path, move: Callable[[Path], None], named: str) -> None:
    saved(world)
    move(world)
    before = zone(world)
    code, text = apply(world)
    assert code == 4, text
    assert named in text
    assert "the plan is stale; nothing was changed (exit 4)" in text
    assert zone(world) == before


def test_a_commit_that_moved_is_named(world: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.test", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=world / "tree", check=True, capture_output=True, timeout=30)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    assert call(world, "--once", "tree", "--timeout", "10s", "--take-over")[0] == 0
    record(world, "www", "192.0.2.4")
    git("commit", "-qam", "second")
    saved(world)
    git("commit", "-q", "--allow-empty", "-m", "third")
    code, text = apply(world)
    assert code == 4
    assert "the commit moved from" in text


def test_another_record_of_another_writer_makes_no_plan_stale(world: Path) -> None:
    saved(world)
    file = world / "zones" / "a.test.zone"
    file.write_text(file.read_text() + "other 300 IN A 192.0.2.99\n")
    code, text = apply(world)
    assert code == 0, text


def listed(world: Path, *names: str) -> None:
    """A list of records; those that leave it are deleted without a proof that they are absent."""
    rows = ", ".join(f"{name}.a.test: {{A: 192.0.2.8}}" for name in names)
    (world / "tree" / "names.yaml").write_text(LIST.replace("ROWS", rows))


def test_a_plan_is_an_approval_of_what_it_deletes_and_of_nothing_else(world: Path) -> None:
    listed(world, "new", "old", "older")
    assert call(world, "--once", "tree", "--timeout", "10s")[0] == 0
    listed(world, "new", "older")
    code, held = call(world, "--once", "tree", "--timeout", "10s")
    assert code == 7, held
    assert "ApprovalRequired" in held
    code, waiting = call(world, "approve", "--instance-id", "saving")
    assert code == 7
    assert "recordlist/names: delete old.a.test. A" in waiting
    text = saved(world)
    assert "approve delete recordlist/names: delete old.a.test. A: 192.0.2.8 ttl 300" in text
    code, text = apply(world)
    assert code == 0, text
    assert "old " not in zone(world).replace("older ", "")
    events = json.loads(call(world, "events", "--instance-id", "saving", "-o", "json")[1])["events"]
    (ordered,) = [event for event in events if event["kind"] == "command"]
    assert "delete recordlist/names: delete old.a.test. A" in ordered["message"]
    assert call(world, "approve", "--instance-id", "saving")[0] == 0
    listed(world, "new")
    assert call(world, "--once", "tree", "--timeout", "10s")[0] == 7
    assert "older" in zone(world)


def test_an_approval_by_hash_says_who_and_what(world: Path) -> None:
    listed(world, "new", "old", "older")
    assert call(world, "--once", "tree", "--timeout", "10s")[0] == 0
    listed(world, "new")
    assert call(world, "--once", "tree", "--timeout", "10s")[0] == 7
    document = json.loads(call(world, "approve", "tree", "-o", "json")[1])
    words = (document["hash"], "--instance-id", "saving", "--by", "ada", "--reason", "shut down")
    code, text = call(world, "approve", *words)
    assert code == 0, text
    code, text = call(world, "--once", "tree", "--timeout", "20s")
    assert code == 0, text
    assert "old" not in zone(world)
    events = json.loads(call(world, "events", "--instance-id", "saving", "-o", "json")[1])["events"]
    (ordered,) = [event for event in events if event["kind"] == "command"]
    assert document["hash"] in json.dumps(ordered)
    assert "by ada (user " in ordered["outcome"]
    assert "shut down" in ordered["message"]


# --- files that are refused -------------------------------------------------------------------------------------------


def test_files_that_cannot_be_trusted_are_refused(world: Path) -> None:
    saved(world)
    file, text = world / "a.plan", (world / "a.plan").read_text()

    def refused(named: str) -> None:
        code, output = apply(world)
        assert code == 1, output
        assert named in output
        assert "192.0.2.2" not in zone(world)

    file.write_text(text.replace("192.0.2.2", "192.0.2.3", 1))
    refused("its checksum does not fit")
    file.write_text(text[: len(text) // 2])
    refused("it is no saved plan, or a part of one")
    file.write_text(text)
    file.chmod(0o666)
    refused("other users may write to it")
    file.chmod(0o600)
    file.rename(world / "real")
    file.symlink_to(world / "real")
    refused("it is a symbolic link")
    file.unlink()
    os.mkfifo(file)
    refused("it is no regular file")
    file.unlink()
    file.mkdir()
    refused("a.plan: it is no regular file")
    file.rmdir()
    refused("no such file or directory")
    with file.open("wb") as opened:
        opened.truncate(1 << 30)
    file.chmod(0o600)
    refused("it has 1024 MiB")
    if os.geteuid() == 0:
        file.write_text(text)
        os.chown(file, 65534, -1)
        refused("it belongs to user 65534")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", '{"kind": "reconcile-plan"}', "[" * 100_000, '{"kind": "reconcile-plan", "format": 1}'],
)
def test_other_texts_are_no_plans(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(PlanFileError):
        read(file)


def test_every_damaged_byte_is_found(world: Path) -> None:
    saved(world)
    file, text = world / "a.plan", (world / "a.plan").read_bytes()
    assert len(text) < LARGEST
    for index in range(0, len(text), 7):
        if text[index : index + 1].isspace():
            continue
        file.write_bytes(text[:index] + bytes([text[index] ^ 1]) + text[index + 1 :])
        with pytest.raises((PlanFileError, StalePlan)):
            read(file)


def test_a_plan_replaces_only_a_plan(world: Path) -> None:
    (world / "notes.txt").write_text("keep me")
    code, text = call(world, "plan", "tree", "--out", "notes.txt")
    assert code == 1
    assert "it exists and is no saved plan" in text
    assert (world / "notes.txt").read_text() == "keep me"
    code, text = call(world, "plan", "tree", "--out", "tree/new.json")
    assert code == 1
    assert "would be read as a manifest" in text
    saved(world)
    saved(world)
    assert call(world, "plan", "tree", "--expires", "1h")[0] == 64
    assert call(world, "plan", "tree", "--out", "a.plan", "--expires", "0s")[0] == 64
    assert not [name for name in os.listdir(world) if name.endswith(".tmp")]


def test_an_incomplete_plan_is_not_saved(world: Path) -> None:
    (world / "zones" / "a.test.zone").write_text("$ORIGIN (((\n")
    code, text = call(world, "plan", "tree", "--out", "a.plan")
    assert code == 6
    assert "the plan is incomplete, so a.plan was not written" in text
    assert not (world / "a.plan").exists()
