"""The quickstart in a state directory of its own, driven by the real command: shared by the end-to-end stories."""

import http.client
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from reconciler.cli.app import run as command
from reconciler.shell.report.last_decision import last_decision

ROOT = Path(__file__).resolve().parents[2]
from tests.providers.runtime.docker.claims import Claim  # noqa: E402

PORT = 8080
PATIENCE = 120.0
"""Seconds that anything may take on a busy machine. Only a failure waits for so long."""

STARTUP = """\
          startupProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 0.5
            failureThreshold: 240
"""
"""A program that this machine starts slowly is no reason to restart it."""


class World:
    """One user's machine: manifests that may be edited, and where state is kept."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.manifests = base / "manifests"
        shutil.copytree(ROOT / "examples" / "quickstart", self.manifests)
        # An id of its own: replicas get their addresses by their names, and other worlds on this machine have some too.
        self.id = f"q{secrets.token_hex(4)}"
        self.claim = Claim(self.id, directory=str(base))
        for file in self.manifests.glob("*.yaml"):
            text = file.read_text().replace("ttl: 5s", "ttl: 1s").replace("  id: quickstart\n", f"  id: {self.id}\n")
            file.write_text(text.replace("          livenessProbe:", f"{STARTUP}          livenessProbe:"))
        self.state = self.home / "reconciler" / self.id
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.home)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "reconciler", *words, str(self.manifests)]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return process.returncode, out or err

    def status(self) -> dict:
        """What `reconcile status` prints; asked within this process, because it is asked often and a start takes long."""
        with redirect_stdout(StringIO()) as out:
            code = command(["status", "-o", "json", "--state-dir", str(self.state), str(self.manifests)])
        assert code == 0, out.getvalue()
        return json.loads(out.getvalue())["status"]

    def decision(self) -> dict:
        """The last decision as it is stored: the daemon is not asked for a new one."""
        return last_decision(self.state) or {}

    def replicas(self) -> dict[str, dict]:
        return {
            replica["replica"]: replica for workload in self.status()["workloads"] for replica in workload["replicas"]
        }

    def pool(self) -> dict[str, int]:
        file = self.state / "pools" / "web.json"
        return {member["address"]: member["weight"] for member in json.loads(file.read_text())["members"]}

    def records(self) -> set[str]:
        text = (self.state / "zones" / "example.test.zone").read_text()
        return set(re.findall(r"^app\.example\.test\. .* IN A (\S+)$", text, re.MULTILINE))

    def processes(self) -> set[int]:
        """Every process that was started for this world: its environment or arguments name the state directory."""
        found = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                directory = os.readlink(entry / "cwd")
            except OSError:
                continue
            mine = str(self.home).encode() in text or directory.startswith(str(self.manifests))
            if mine and state != "Z":
                found.add(int(entry.name))
        return found


def ask(address: str, path: str = "/", method: str = "GET") -> str:
    request = urllib.request.Request(f"http://{address}:{PORT}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()
    except http.client.HTTPException as error:  # who answers ended in the middle of it
        raise OSError(f"{path}: {type(error).__name__}: {error}") from None


def pid_of(address: str) -> int:
    return int(ask(address).rpartition("process ")[2])


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.1)
