"""A plan as a review, on a real engine: the fields that it shows are those that change, and a second plan has none."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.quickstart_world import ROOT
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker

pytestmark = pytest.mark.server("dockerd")

NEW, IN_PLACE, NONE = "new-container", "in-place", "no-container"
SENTINEL = "s3cr3t-sentinel"
WEB = "containers[web]."

CONTAINER: dict[str, Any] = {
    "name": "web",
    "image": IMAGE,
    "imagePullPolicy": "Never",
    "command": ["/bin/sleep", "300"],
    "env": [
        {"name": "LEVEL", "value": "info"},
        {"name": "OLD", "value": "x"},
        {"name": "TOKEN", "valueFrom": {"secret": {"env": "TOKEN_A"}}},
    ],
    "ports": [{"name": "http", "containerPort": 8080}],
    "resources": {"limits": {"memory": "16Mi"}},
    "readinessProbe": {"exec": {"command": ["/bin/true"]}, "periodSeconds": 2},
}


class Host:
    """One workload in a git work tree, and an instance on the engine."""

    def __init__(self, bench: Bench, base: Path) -> None:
        self.bench, self.base, self.tree = bench, base, base / "tree"
        self.tree.mkdir()
        self.workload: dict[str, Any] = {
            "apiVersion": "reconciler/v1",
            "kind": "Workload",
            "metadata": {"name": "web"},
            "spec": {
                "drain": {"min": "0s", "max": "1s"},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "networks": [NETWORK],
                        "containers": [deepcopy(CONTAINER)],
                    },
                },
            },
        }
        instance = {
            "apiVersion": "reconciler/v1",
            "kind": "Instance",
            "metadata": {"name": "here"},
            "spec": {"id": bench.instance},
        }
        settings = {"type": "docker", "settings": {"socket": bench.socket}}
        provider = {"apiVersion": "reconciler/v1", "kind": "Provider", "metadata": {"name": "local"}, "spec": settings}
        (self.tree / "host.yaml").write_text(f"{json.dumps(instance)}\n---\n{json.dumps(provider)}\n")
        self.git("init", "-q", "-b", "main")
        self.commit()

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.workload["spec"]["template"]["spec"]
        return pod

    @property
    def container(self) -> dict[str, Any]:
        container: dict[str, Any] = self.pod["containers"][0]
        return container

    def git(self, *words: str) -> str:
        named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", "-C", str(self.tree), *named, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip()

    def commit(self) -> str:
        """Write the workload as the tree's newest commit."""
        (self.tree / "web.yaml").write_text(json.dumps(self.workload, indent=1))
        self.git("add", "-A")
        self.git("commit", "-qm", "a change")
        return self.git("rev-parse", "HEAD")

    def run(self, *words: str, code: int = 0) -> str:
        env = {
            **os.environ,
            "XDG_STATE_HOME": str(self.base / "state"),
            "TOKEN_A": SENTINEL,
            "TOKEN_B": f"{SENTINEL}-2",
        }
        done = subprocess.run(
            [sys.executable, "-m", "reconciler", *words, str(self.tree)],
            cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert SENTINEL not in done.stdout + done.stderr
        return done.stdout

    def plan(self, *words: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run("plan", "-o", "json", *words))
        return document

    def once(self) -> None:
        self.run("--once", "--timeout", "60s")

    def settled(self) -> None:
        """A second plan has neither a step nor a changed field."""
        again = self.plan("--detailed-exitcode")
        assert (again["steps"], again["changed"], again["exit_code"]) == ([], [], 0)

    def ids(self) -> list[str]:
        names = self.bench.api.names(f"reconciler.instance={self.bench.instance}")
        return [self.bench.api.inspect(name)["Id"] for name in names]


@pytest.fixture
def host(tmp_path: Path, shared: Path) -> Iterator[Host]:
    (tmp_path / "bench").mkdir()
    bench = Bench(ensure_docker(shared), tmp_path / "bench")
    try:
        yield Host(bench, tmp_path)
    finally:
        bench.close()


def fields(document: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """The changed fields of the only object that changes: before, after and effect by name."""
    (changed,) = document["changed"]
    return {row["field"]: (row["before"], row["after"], row["effect"]) for row in changed["fields"]}


def test_fields_that_force_a_container_are_those_that_changed(host: Host) -> None:
    host.once()
    container, before = host.container, host.ids()
    container["env"] = [
        {"name": "LEVEL", "value": "debug"},
        {"name": "NEW", "value": "y"},
        {"name": "TOKEN", "valueFrom": {"secret": {"env": "TOKEN_B"}}},
    ]
    container["command"] = ["/bin/sleep", "301"]
    container["ports"][0]["containerPort"] = 9090
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/scratch", "readOnly": True}]
    container["securityContext"] = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    host.pod["volumes"] = [{"name": "tmp", "tmpfs": {}}]
    host.workload["spec"]["template"]["metadata"]["labels"]["tier"] = "front"
    commit = host.commit()
    document = host.plan()
    assert fields(document) == {
        f"{WEB}command": ('["/bin/sleep", "300"]', '["/bin/sleep", "301"]', NEW),
        f"{WEB}env[LEVEL]": ("info", "debug", NEW),
        f"{WEB}env[NEW]": ("(none)", "y", NEW),
        f"{WEB}env[OLD]": ("x", "(none)", NEW),
        f"{WEB}env[TOKEN]": ("(secret)", "another (secret)", NEW),
        f"{WEB}ports[http].containerPort": ("8080", "9090", NEW),
        f"{WEB}securityContext.capabilities.drop": ("(none)", '["ALL"]', NEW),
        f"{WEB}securityContext.readOnlyRootFilesystem": ("false", "true", NEW),
        f"{WEB}volumeMounts[/scratch]": ("(none)", "tmpfs read-only", NEW),
        "labels[tier]": ("(none)", "front", NEW),
    }
    assert document["planned"]["commit"] == commit
    created = next(step for step in document["steps"] if step["kind"] == "CreateContainer")
    assert f"{WEB}env[LEVEL]" in {row["field"] for row in created["fields"]}
    text = host.run("plan")
    line = next(
        number for number, line in enumerate((host.tree / "web.yaml").read_text().splitlines(), 1) if '"debug"' in line
    )
    assert f"~ {WEB}env[LEVEL]: info -> debug (forces a new container) at web.yaml:{line}:" in text
    host.once()
    assert not set(before) & set(host.ids())
    host.settled()

    events = json.loads(host.run("events", "-o", "json"))["events"]
    steps = [row for row in events if row["kind"] == "step" and row["commit"] == commit]
    made = next(row for row in steps if row["step"].startswith("create "))
    stopped = next(row for row in steps if row["step"].startswith("stop "))
    for row in (made, stopped):
        assert row["where"].startswith("web.yaml:1:")
        by_name = {field["field"]: field["where"] for field in row["fields"]}
        assert by_name[f"{WEB}env[LEVEL]"].startswith(f"web.yaml:{line}:")
    explained = json.loads(host.run("explain", "workload/web", "-o", "json"))
    assert any(entry["commit"] == commit and entry["fields"] for entry in explained["journal"])


def test_limits_and_restart_policy_are_updated_in_place(host: Host) -> None:
    host.once()
    before = host.ids()
    host.container["resources"] = {"limits": {"memory": "32Mi", "cpu": "500m"}}
    host.workload["spec"]["runtimeRestart"] = "no"
    host.commit()
    document = host.plan()
    expected = {
        f"{WEB}resources.limits.memory": ("16Mi", "32Mi", IN_PLACE),
        f"{WEB}resources.limits.cpu": ("(none)", "500m", IN_PLACE),
        "runtimeRestart": ("unless-stopped", "no", IN_PLACE),
    }
    assert fields(document) == expected
    (step,) = document["steps"]
    assert {row["field"] for row in step["fields"]} == set(expected)
    host.once()
    assert host.ids() == before
    host.settled()


def test_probes_and_rollout_settings_need_no_new_container(host: Host) -> None:
    host.once()
    before = host.ids()
    host.container["readinessProbe"]["periodSeconds"] = 3
    host.pod["terminationGracePeriodSeconds"] = 2
    host.workload["spec"]["drain"]["max"] = "2s"
    host.workload["spec"]["restarts"] = {"limit": 7}
    host.commit()
    document = host.plan()
    assert fields(document) == {
        f"{WEB}readinessProbe.periodSeconds": ("2s", "3s", NONE),
        "terminationGracePeriodSeconds": ("1s", "2s", NONE),
        "drain.max": ("1s", "2s", NONE),
        "restarts.limit": ("5", "7", NONE),
    }
    assert document["steps"] == []
    assert "(no new container)" in host.run("plan")
    host.once()
    assert host.ids() == before
    host.settled()


def test_an_image_is_shown_with_the_digest_of_what_runs(host: Host) -> None:
    host.once()
    tag = f"{host.bench.instance}/other:1"
    name, _, version = tag.partition(":")
    host.bench.api.link.post(f"/images/{IMAGE}/tag?repo={name}&tag={version}", tag)
    try:
        host.container["image"] = tag
        host.commit()
        before, after, effect = fields(host.plan())[f"{WEB}image"]
        digest = host.bench.api.inspect(host.bench.api.names(f"reconciler.instance={host.bench.instance}")[0])["Image"]
        assert before == f"{IMAGE} ({digest[:19]})"
        assert (after, effect) == (tag, NEW)
        host.once()
        host.settled()
    finally:
        host.run("destroy", "--yes")
        host.bench.api.link.delete(f"/images/{tag}", tag)


def test_a_lost_ledger_is_replaced_by_what_the_runtime_shows(host: Host) -> None:
    host.once()
    for file in (host.base / "state").rglob("*"):
        if file.is_file():
            file.unlink()
    host.container["env"][0]["value"] = "debug"
    host.container["command"] = ["/bin/sleep", "301"]
    host.commit()
    document = host.plan()
    (changed,) = document["changed"]
    assert changed["basis"] == "runtime"
    assert fields(document) == {
        f"{WEB}command": ("/bin/sleep …", '["/bin/sleep", "301"]', NEW),
        f"{WEB}env[LEVEL]": ("(not known)", "debug", NEW),
    }
    assert "the ledger does not have the earlier template; compared with what the runtime shows" in host.run("plan")
