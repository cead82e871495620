"""Invalid manifests and the real program: it heals, starts and answers with the last good ones, and says what is wrong."""

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.program import Program, processes
from tests.e2e.quickstart_world import PATIENCE, until

HOST = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: here}
spec: {id: "@ID@", intervals: {runtime: 1s}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: local}
spec: {type: process}
---
"""
WORKLOAD = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: w}
spec:
  restarts: {backoff: {initial: 1s}}
  template:
    metadata: {labels: {app: w}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: a, command: [sh, -c, "exec sleep 86399"], env: [{name: WORLD, value: "@WORLD@"}]}]
"""
TREE = HOST + WORKLOAD
BROKEN = "spec2: [\n"
NEWLINE = "\n"
LINE = TREE.count(NEWLINE) + 1


class World(Program):
    """One user's machine with one workload of one process."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, f"v{secrets.token_hex(4)}")
        self.manifests = base / "manifests"
        self.manifests.mkdir()
        self.write(TREE)

    def write(self, text: str, name: str = "all.yaml") -> None:
        """Replace a file of the manifests, as a checkout does."""
        new = self.manifests / f".{name}.new"
        new.write_text(text.replace("@ID@", self.id).replace("@WORLD@", str(self.base)))
        new.replace(self.manifests / name)

    def write_local(self, guard: str) -> Path:
        """Write local documents with the Instance, the Provider and a Guard with this spec."""
        local = self.base / "local"
        local.mkdir(mode=0o700, exist_ok=True)
        allowing = HOST.replace('"@ID@"', f'"{self.id}", allowProcess: [w]')
        (local / "host.yaml").write_text(allowing)
        (local / "guard.yaml").write_text(
            f"apiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: g}}\nspec: {guard}\n"
        )
        return local

    def watch(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start a daemon, and wait until it has decided."""
        return super().watch(*(words or (self.manifests,)))

    def replicas(self) -> list[int]:
        """The processes of the workload."""
        return [pid for pid, _ in processes(b"sleep\x0086399\x00", self.base)]

    def healed(self) -> None:
        """Kill the replica with -9, and see another one run."""
        (old,) = self.replicas()
        os.kill(old, signal.SIGKILL)
        until(lambda: len(new := self.replicas()) == 1 and new != [old])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.kill()
    for pid in made.replicas():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("bad", ["broken", "empty", "missing"])
def test_a_daemon_that_starts_on_bad_manifests_heals_with_stored_ones(world, bad):
    world.run("--once", world.manifests)
    if bad == "broken":
        world.write(TREE + BROKEN)
    elif bad == "empty":
        (world.manifests / "all.yaml").unlink()
    else:
        shutil.rmtree(world.manifests)
    daemon = world.watch()
    world.healed()
    out = world.run("status", world.manifests)
    first = out.partition("\n")[0]
    assert first.startswith("manifests: ")
    assert "has been in force for" in first
    if bad == "broken":
        assert f"all.yaml:{LINE}:" in first
    assert "SourceInvalid" in out
    # A single run does nothing with them, and says so with its exit code.
    world.run("--once", world.manifests, code=7 if bad == "empty" else 3)
    # Good again: at once, and the hold ends.
    world.manifests.mkdir(exist_ok=True)
    world.write(TREE.replace("exec sleep", "exec  sleep"))
    until(lambda: not any(hold["rule"] == "SourceInvalid" for hold in holds(world)))
    assert daemon.poll() is None
    until(
        lambda: any(event["kind"] == "released" and event["object"] == "source/manifests" for event in world.events())
    )


def holds(world: World) -> list[dict]:
    return list(json.loads(world.run("status", "--instance-id", world.id, "-o", "json"))["holds"])


def test_kill_9_of_the_daemon_on_broken_manifests_changes_nothing_of_that(world):
    world.run("--once", world.manifests)
    daemon = world.watch()
    world.write(TREE + BROKEN)
    until(lambda: bool(holds(world)))
    for _ in range(2):
        daemon.kill()
        daemon.wait(timeout=PATIENCE)
        daemon = world.watch()
        world.healed()
    attempted = json.loads(world.run("status", world.manifests, "-o", "json"))["manifests"]["attempted"]
    assert attempted["since"] is not None
    assert attempted["problems"][0]["line"] == LINE


@pytest.fixture
def broken(world: World) -> World:
    """A daemon whose manifests have become invalid."""
    world.run("--once", world.manifests)
    world.watch()
    world.write(TREE + BROKEN)
    until(lambda: bool(holds(world)))
    return world


LOOKS = (["status"], ["explain", "workload/w"], ["events"], ["get", "revisions"], ["plan"], ["doctor"])
ORDERS = (
    ["suspend", "workload/w", "--reason", "looking"],
    ["resume", "workload/w"],
    ["drain", "workload/w/0", "--reason", "looking"],
    ["release", "workload/w/0"],
    ["restart", "workload/w", "--wait", "--deadline", "60s"],
)


def test_every_look_says_first_that_the_manifests_are_broken(broken: World) -> None:
    for words in LOOKS:
        named = ["--instance-id", broken.id] if words[0] in {"plan", "doctor"} else []
        out = broken.run(*words, broken.manifests, *named)
        assert f"all.yaml:{LINE}:" in out.partition("\n")[0], out
    out = broken.run("status", "--instance-id", broken.id)
    assert f"all.yaml:{LINE}:" in out.partition("\n")[0], out
    broken.run("plan", broken.manifests, code=3)


def test_every_order_works_while_the_manifests_are_broken(broken: World) -> None:
    for words in ORDERS:
        out = broken.run(*words, broken.manifests)
        assert f"all.yaml:{LINE}:" in out.partition("\n")[0], out


def test_every_document_names_both_revisions_of_broken_manifests(broken: World) -> None:
    for words in (["get", "endpoints"], ["explain", "workload/w"], ["status"], ["get", "requests"]):
        document = json.loads(broken.run(*words, broken.manifests, "-o", "json"))
        assert document["manifests"]["attempted"]["problems"][0]["line"] == LINE
        assert document["manifests"]["in_force"]["revision"] != document["manifests"]["attempted"]["revision"]


def test_destroy_on_broken_manifests_needs_the_id_and_stays_done(world):
    world.run("--once", world.manifests)
    world.write(TREE + BROKEN)
    out = world.run("destroy", world.manifests, "--yes", code=3)
    assert "--instance-id" in out
    assert len(world.replicas()) == 1
    out = world.run("destroy", world.manifests, "--yes", "--instance-id", world.id)
    assert f"all.yaml:{LINE}:" in out
    assert world.replicas() == []
    world.run("--watch", world.manifests, code=3)  # it would create again what was removed
    assert world.replicas() == []


def test_several_instances_of_a_path_are_listed_and_the_id_chooses(world):
    world.run("--once", world.manifests)
    first = world.id
    world.id = f"w{secrets.token_hex(4)}"
    world.write(TREE.replace('"exec sleep 86399"', "exit"))
    assert world.ask("--once", "--no-wait", world.manifests)[0] in {0, 6}  # whether it still runs when it is looked at
    world.write(TREE + BROKEN)
    out = world.run("status", world.manifests, code=3)
    assert out.partition("\n")[0].startswith(f"error: all.yaml:{LINE}:")
    assert first in out
    assert world.id in out
    assert "--instance-id" in out
    assert "w/0" in world.run("status", world.manifests, "--instance-id", first)


def test_stored_manifests_that_this_version_refuses_are_named(world):
    world.run("--once", world.manifests)
    world.write(TREE + BROKEN)
    stored = world.state / "manifests.json"
    stored.write_text(stored.read_text().replace("template", "tomplate"))
    out = world.run("--watch", world.manifests, code=3)
    assert f"all.yaml:{LINE}:" in out
    assert "manifests.json" in out
    assert "damaged" in out


def test_local_documents_judge_the_stored_manifests_as_they_are_now(world):
    local = world.write_local("{suspend: false}")
    world.write(WORKLOAD)
    world.run("--once", world.manifests, "--instance", local)
    world.write(WORKLOAD + BROKEN)
    world.write_local("{suspend: true}")
    world.watch(world.manifests, "--instance", local)
    (old,) = world.replicas()
    os.kill(old, signal.SIGKILL)
    until(lambda: any(hold["rule"] == "Suspended" for hold in holds(world)))
    assert world.replicas() == []


def test_stored_manifests_that_local_documents_refuse_are_not_used(world):
    probed = WORKLOAD.replace(
        "{name: a, ", "{name: a, livenessProbe: {exec: {command: [/bin/true]}, periodSeconds: 60}, "
    )
    local = world.write_local("{execCommands: [[/bin/true]]}")
    world.write(probed)
    world.run("--once", world.manifests, "--instance", local)
    world.write(probed + BROKEN)
    world.write_local("{execCommands: [[/bin/false]]}")  # it judges what is stored
    out = world.run("--watch", world.manifests, "--instance", local, code=3)
    assert f"all.yaml:{WORKLOAD.count(NEWLINE) + 1}:" in out
    assert "stored revision" in out
    assert "not-allowed" in out
    world.write_local("{execCommands: maybe}")  # it is invalid itself, and judges nothing
    world.watch(world.manifests, "--instance", local)
    world.healed()


def test_manifests_that_others_now_may_judge_are_those_of_before(world):
    local = world.write_local("{suspend: false}")
    world.write(WORKLOAD)
    world.run("--once", world.manifests, "--instance", local)
    world.write_local("{suspend: true}")
    (local / "guard.yaml").chmod(0o666)
    assert "unsafe-local" in world.run("--once", world.manifests, "--instance", local, code=3)
    world.watch(world.manifests, "--instance", local)
    world.healed()


def test_a_daemon_does_not_use_local_documents_that_others_can_write(world):
    local = world.write_local("{suspend: false}")
    world.write(WORKLOAD)
    world.watch(world.manifests, "--instance", local)
    (local / "guard.yaml").chmod(0o666)
    world.write_local("{suspend: true}")
    until(lambda: any("unsafe-local" in hold["message"] for hold in holds(world)))
    assert {hold["rule"] for hold in holds(world)} == {"SourceInvalid"}


def test_a_tree_that_ran_alone_ends_when_local_documents_confine_it(world):
    world.run("--once", world.manifests)
    local = world.write_local("{}")
    out = world.run("--watch", world.manifests, "--instance", local, code=3)
    assert "all.yaml:2:7: local-only: instance/here" in out
    (local / "host.yaml").chmod(0o666)
    assert "unsafe-local" in world.run("--watch", world.manifests, "--instance", local, code=3)


def test_an_upgrade_keeps_what_was_in_force_before_trees_were_confined(world):
    local = world.write_local("{}")
    world.write(WORKLOAD)
    world.run("--once", world.manifests, "--instance", local)
    as_an_earlier_program(world, local, TREE)
    out = world.run("--once", world.manifests, "--instance", local, code=3)
    assert "move this document to the file or directory of --instance" in out
    world.watch(world.manifests, "--instance", local)
    world.healed()
    (hold,) = [hold for hold in holds(world) if hold["rule"] == "SourceInvalid"]
    assert "local-only" in hold["message"]
    world.write(WORKLOAD)
    until(lambda: not [hold for hold in holds(world) if hold["rule"] == "SourceInvalid"])


def as_an_earlier_program(world: World, local: Path, tree: str) -> None:
    """Store a tree with its Provider and one local document, as a program did that let the tree declare both."""
    world.write(tree)
    path = world.state / "manifests.json"
    body = json.loads(path.read_text().partition(NEWLINE)[2])
    del body["confined"]
    body["files"] = [["all.yaml", (world.manifests / "all.yaml").read_text()]]
    body["local"] = [str(local / "host.yaml"), (local / "host.yaml").read_text().partition("---")[0]]
    text = json.dumps(body)
    head = json.dumps({"format": 1, "sha256": sha256(text.encode()).hexdigest()})
    path.write_text(f"{head}{NEWLINE}{text}{NEWLINE}")
