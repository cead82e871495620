"""Two hosts run one instance in turn over one state directory: each has its own boot id and uptime, as far as the kernel can pretend that.

A time namespace shifts CLOCK_BOOTTIME, a mount shows another boot id, see time_namespaces(7).
"""

import json
import os
import secrets
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.providers.runtime.docker.claims import Claim

DAY = 86_400
RECONCILE = Path(sys.executable).with_name("reconcile")
BOOT_ID = "/proc/sys/kernel/random/boot_id"

MANIFESTS = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: here}}
spec: {{id: "{id}"}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: local}}
spec: {{type: process}}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: 1
  restarts: {{limit: 1, window: 30m, backoff: {{initial: 1s}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          command: [sleep, "600"]
          livenessProbe: {{exec: {{command: ["false"]}}, periodSeconds: 1, failureThreshold: 1}}
"""


class Instance:
    """An instance whose only replica always fails its liveness probe."""

    def __init__(self, base: Path) -> None:
        self.base, self.id = base, f"h{secrets.token_hex(4)}"
        self.claim = Claim(self.id, directory=str(base))
        (base / "manifests").mkdir()
        (base / "manifests" / "all.yaml").write_text(MANIFESTS.format(id=self.id))

    def run_on(self, host: str, uptime: int) -> dict:
        """One run on a host that has been up for so many seconds more than this one; its result."""
        boot = self.base / f"boot-of-{host}"
        boot.write_text(f"{host * 8}-0000-4000-8000-000000000000\n")
        arguments = [str(self.base / "manifests"), "--state-dir", str(self.base / "state"), "--timeout", "15s"]
        script = f'mount --bind "$1" {BOOT_ID} && shift && exec "$@"'
        shifted = ["unshare", "--time", "--mount", f"--boottime={uptime}", "--", "sh", "-c", script, "sh", str(boot)]
        command = [*shifted, str(RECONCILE), "--once", *arguments, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert done.stdout, done.stderr
        self.end_replicas()  # no other host has processes of this one
        return json.loads(done.stdout)

    def end_replicas(self) -> None:
        for entry in Path("/proc").iterdir():
            try:
                mine = entry.name.isdigit() and str(self.base).encode() in (entry / "environ").read_bytes()
                mine = mine or (entry.name.isdigit() and self.id.encode() in (entry / "cmdline").read_bytes())
                if mine:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


def can_pretend(base: Path) -> str:
    """Why this machine cannot pretend to be another host; empty when it can."""
    command = ["unshare", "--time", "--mount", "--boottime=99", "--", "mount", "--bind", str(base), str(base)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


@pytest.fixture
def instance(tmp_path: Path):
    problem = can_pretend(tmp_path)
    if problem:
        pytest.skip(f"no time and mount namespaces: {problem}")
    made = Instance(tmp_path)
    yield made
    made.end_replicas()
    made.claim.drop()


def limit_ends(result: dict) -> float:
    """When the replica may be restarted next."""
    [hold] = [hold for hold in result["holds"] if hold["rule"] == "RestartLimit"]
    return datetime.fromisoformat(hold["until"]).astimezone(UTC).timestamp()


def restarts(result: dict) -> int:
    return sum(step["kind"] == "StopContainer" and step["cause"] == "LivenessFailed" for step in result["done"])


@pytest.mark.parametrize("uptime", [30 * DAY, 20])
def test_a_host_that_has_been_up_for_longer_refills_no_restart_limit(instance, uptime):
    first = instance.run_on("a", 10 * DAY)
    assert restarts(first) == 1
    ends = limit_ends(first)
    second = instance.run_on("b", uptime)
    assert restarts(second) == 0
    assert abs(limit_ends(second) - ends) < 2
    back = instance.run_on("a", 11 * DAY)
    assert restarts(back) == 0
    assert abs(limit_ends(back) - ends) < 2
