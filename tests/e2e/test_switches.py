"""New commits and healing held apart, with the real program: over restarts of the daemon, with `--once`, plan, status and explain."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from reconciler.shell.clock import SystemClock, utc
from tests.e2e.quickstart_world import PATIENCE, until
from tests.e2e.test_invalid_manifests import TREE, World

NEXT = TREE.replace("exec sleep", "exec  sleep")
"""Another template: the replica is created again."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for daemon in made.daemons:
        if daemon.poll() is None:
            daemon.kill()
        daemon.wait(timeout=PATIENCE)
    for pid in made.replicas():
        os.kill(pid, signal.SIGKILL)


def guard(spec: str) -> str:
    return f"---\napiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: g}}\nspec: {spec}\n"


def document(world: World, command: str, *words: str, code: int = 0) -> dict:
    text = world.run(command, *words, "-o", "json", code=code)
    return dict(json.JSONDecoder().raw_decode(text)[0])  # notes follow it, from the other stream


def held(world: World) -> list[dict]:
    holds = document(world, "status", "--instance-id", world.id)["holds"]
    return [hold for hold in holds if hold["object"] == "source/manifests"]


def in_force(world: World) -> str:
    return str(document(world, "status", "--instance-id", world.id)["revision"])


def test_a_held_commit_waits_over_kills(world):
    world.run("--once", world.manifests)
    first = in_force(world)
    daemon = world.watch()
    world.run("suspend", "--commits", world.manifests, "--reason", "release freeze", "--for", "2h")
    world.write(NEXT)
    until(lambda: bool(held(world)))
    [hold] = held(world)
    assert f"revision {first[:12]}" in hold["message"]
    assert "release freeze" in hold["message"]
    assert hold["until"]
    daemon.kill()
    daemon.wait(timeout=PATIENCE)
    document(world, "status", "--instance-id", world.id, "--exit-code", code=7)
    world.watch()
    document(world, "status", "--instance-id", world.id, "--exit-code", code=7)
    world.healed()
    assert in_force(world) == first, "a restart takes no new commit"


def test_a_held_commit_is_shown_and_comes_when_resumed(world):
    world.run("--once", world.manifests)
    first = in_force(world)
    world.watch()
    world.run("suspend", "--commits", world.manifests, "--reason", "release freeze", "--for", "2h")
    world.write(NEXT)
    until(lambda: bool(held(world)))
    said = world.run("explain", "workload/w", "--instance-id", world.id)
    assert "release freeze" in said
    said = world.run("status", "--instance-id", world.id)
    assert "suspended: new commits by" in said
    # A plan of what waits is for review; it says that a run would not do it now.
    plan = document(world, "plan", str(world.manifests))
    assert plan["steps"]
    assert [hold for hold in plan["holds"] if hold["object"] == "source/manifests"]
    (old,) = world.replicas()
    answer = world.run("resume", "--commits", "--instance-id", world.id)
    assert "new commits: resumed; in effect now" in answer
    until(lambda: in_force(world) != first)
    until(lambda: world.replicas() not in ([], [old]))


def test_a_single_run_keeps_what_is_in_force_and_exits_manual(world):
    world.run("--once", world.manifests)
    first = in_force(world)
    world.run("suspend", "--commits", "--instance-id", world.id, "--reason", "freeze")
    world.write(NEXT)
    (old,) = world.replicas()
    os.kill(old, signal.SIGKILL)
    said = world.run("--once", world.manifests, code=7)
    assert "suspended new commits: freeze; revision" in said, said
    assert in_force(world) == first
    assert world.replicas() not in ([], [old]), "it heals"
    world.run("resume", "--commits", "--instance-id", world.id)
    world.run("--once", world.manifests)
    assert in_force(world) != first


def test_a_commit_in_a_window_is_taken_at_its_end_by_a_new_daemon(world):
    world.run("--once", world.manifests)
    first = in_force(world)
    daemon = world.watch()
    now = utc(SystemClock().now().wall)
    begin, seconds = now.replace(second=0, microsecond=0), now.second + 12
    end = begin + timedelta(seconds=seconds)
    window = f'{{name: freeze, holds: [commits], schedule: "{begin.minute} {begin.hour} * * *", duration: {seconds}s}}'
    world.write(NEXT + guard(f"{{windows: [{window}]}}"))
    until(lambda: bool(held(world)) or in_force(world) != first)
    assert in_force(world) == first or utc(SystemClock().now().wall) >= end
    daemon.kill()
    daemon.wait(timeout=PATIENCE)
    world.watch()
    before = in_force(world)
    assert before == first or utc(SystemClock().now().wall) >= end
    until(lambda: in_force(world) != first)
    assert utc(SystemClock().now().wall) >= end - timedelta(seconds=1), "no new push is needed, and none came too early"
    assert held(world) == []


def test_drift_is_listed_with_its_exit_code_and_a_new_commit_is_none(world):
    world.run("--once", world.manifests)
    assert "no drift" in world.run("drift", world.manifests, "--detailed-exitcode")
    world.write(NEXT)
    said = world.run("drift", world.manifests, "--detailed-exitcode")
    assert "no drift" in said
    assert "the manifests at PATH are not in force yet" in said
    assert document(world, "plan", str(world.manifests), "--detailed-exitcode", code=2)["steps"]
    (old,) = world.replicas()
    os.kill(old, signal.SIGKILL)
    until(lambda: world.replicas() == [])
    listed = document(world, "drift", str(world.manifests), "--detailed-exitcode", code=2)
    [row] = listed["drift"]
    assert (row["object"], row["field"], row["declared"], row["answer"]) == (
        "workload/w/0",
        "state",
        "running",
        "corrected",
    )
    world.run("suspend", "--healing", "workload/w", "--instance-id", world.id, "--reason", "debugging")
    [row] = document(world, "drift", "--instance-id", world.id, code=0)["drift"]
    assert row["answer"].startswith("held (Suspended: ")
    assert row["next_step"] == "reconcile resume --healing workload/w"
    world.run("--once", world.manifests)
    assert len(world.replicas()) == 1, "the commit is taken"
    steps = [event for event in world.events() if event["kind"] == "step"]
    assert any(event["message"].endswith("; change") for event in steps)
