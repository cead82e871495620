"""A real daemon with channels and a forge: what operators and commits are informed of, also when the daemon is killed."""

import json
import os
import signal
import subprocess

import pytest

from manifests.values.notices import ForgeType
from tests.e2e.quickstart_world import World, until
from tests.forge.fake_forge import PROJECT, TOKEN, serving
from tests.notify.servers import hook

pytestmark = pytest.mark.e2e


def confine(world: World, *fields: str) -> list[str]:
    """Make the world's Instance and Providers local documents with these fields. Returns the option."""
    file, local = world.manifests / "instance.yaml", world.home.parent / "local.yaml"
    text = file.read_text()
    file.unlink()
    lines = "".join(f"\n  {field}" for field in ("allowProcess: [web]", *fields))
    local.write_text(text.replace(f"  id: {world.id}", f"  id: {world.id}{lines}"))
    local.chmod(0o600)
    return ["--instance", str(local)]


def end(daemon: subprocess.Popen[str]) -> str:
    daemon.send_signal(signal.SIGTERM)
    out, err = daemon.communicate(timeout=60)
    return out + err


def test_a_message_under_way_at_a_kill_is_sent_again_with_its_id(world):
    with hook() as served:
        channel = f"notifications: [{{name: ops, type: webhook, url: '{served.url}', topics: [source]}}]"
        option = confine(world, channel)
        daemon = world.start("--watch", *option)
        until((world.state / "notices.json").exists)
        served.silent = True
        (world.manifests / "web.yaml").write_text("kind: Nothing\n")
        until(lambda: len(served.requests) == 1)
        daemon.kill()
        daemon.communicate(timeout=60)
        served.silent = False
        daemon = world.start("--watch", *option)
        until(lambda: len(served.requests) == 2)
        posts = lambda: json.loads((world.state / "notices.json").read_text())["queues"]["ops"]["posts"]  # noqa: E731
        until(lambda: posts() == [])
        end(daemon)
    first, again = served.documents
    assert first["title"] == "the manifests are refused"
    assert (first["id"], first["phase"]) == (again["id"], "began")
    assert (world.state / "notices.json").stat().st_mode & 0o777 == 0o600


def test_a_commit_is_applied_and_the_next_one_refused(world):
    world.env["FORGE_TOKEN"] = TOKEN

    def git(*words: str) -> str:
        identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
        command = ["git", *identity, "-C", str(world.manifests), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=os.environ)
        return done.stdout.strip()

    with serving(ForgeType.GITHUB) as forge:
        fields = f"forge: {{type: github, url: '{forge.url}', project: {PROJECT}, token: {{env: FORGE_TOKEN}}}}"
        option = confine(world, fields)
        git("init", "-q")
        git("add", "-A")
        git("commit", "-qm", "one")
        first = git("rev-parse", "HEAD")
        daemon = world.start("--watch", *option)
        until(lambda: any(row["state"] == "success" for row in forge.statuses))
        (world.manifests / "web.yaml").write_text("kind: Nothing\n")
        git("commit", "-qam", "two")
        second = git("rev-parse", "HEAD")
        until(lambda: any(row["commit"] == second for row in forge.statuses))
        output = end(daemon)
    states = [(row["commit"], row["state"]) for row in forge.statuses]
    assert states[-2:] == [(first, "success"), (second, "failure")]
    assert {row["context"] for row in forge.statuses} == {f"reconciler/{world.id}"}
    assert "refused: web.yaml:1" in forge.statuses[-1]["description"]
    assert TOKEN not in output
