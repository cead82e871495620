"""The program as processes of one world: with state directories of its own, driven by its command. For the worlds of end-to-end tests.

A world is a `Program` with manifests and servers. What is the same in all of them is here: how a command and a daemon are started,
and that none of them may end with a traceback.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.quickstart_world import PATIENCE, ROOT, until

ENGINE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: here}}
spec: {{id: {id}}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: local}}
spec: {{type: docker, settings: {{socket: {socket}}}}}
---
"""
"""The documents of a host whose containers are on one Docker Engine. Fields: `id` of the instance, `socket` of the engine."""


class Program:
    """The program on one user's machine.

    Args:
        base: directory of the world; the state directories and the log of daemons are in it.
        instance: id of the instance.
        env: variables beside those of this process.
    """

    def __init__(self, base: Path, instance: str, **env: str) -> None:
        self.base, self.home, self.id = base, base / "home", instance
        self.state = self.home / "reconciler" / instance
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.home), "NO_COLOR": "1", **env}
        self.directory = ROOT
        """Where commands are given."""
        self.daemons: list[subprocess.Popen[str]] = []

    def ask(self, *words: str | Path) -> tuple[int, str, str]:
        """One command, whatever its exit code: the code and both of its streams."""
        done = subprocess.run(
            [sys.executable, "-m", "reconciler", *map(str, words)],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def run(self, *words: str | Path, code: int = 0) -> str:
        """One command, which must end with this exit code; both of its streams."""
        ended, out, err = self.ask(*words)
        assert ended == code, out + err
        return out + err

    def document(self, *words: str | Path) -> dict[str, Any]:
        """What a command about the instance prints as JSON."""
        found: dict[str, Any] = json.loads(self.run(*words, "--instance-id", self.id, "-o", "json"))
        return found

    def live(self) -> bool:
        """Whether a daemon answers."""
        return bool(self.document("status")["live"])

    def rules(self) -> set[str]:
        """The rules that hold something now."""
        return {hold["rule"] for hold in self.document("status")["holds"]}

    def events(self) -> list[dict[str, Any]]:
        return list(self.document("events")["events"])

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start a daemon. Its output is added to the log."""
        with (self.base / "watch.log").open("a") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "reconciler", "--watch", *map(str, words)],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        self.daemons.append(daemon)
        return daemon

    def watch(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start a daemon, and wait until it answers."""
        daemon = self.start(*words)
        until(lambda: (self.state / "lock.owner").exists() and self.live(), PATIENCE)
        return daemon

    def log(self) -> str:
        return (self.base / "watch.log").read_text()

    def stop(self) -> None:
        """End the daemons as an operator does."""
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait(PATIENCE)

    def kill(self) -> None:
        """End the daemons that still run with -9."""
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.kill()
            daemon.wait(PATIENCE)


def processes(words: bytes, base: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Running replicas with this command line and with WORLD=`base` in their environment: the number and the variables of each."""
    for entry in Path("/proc").iterdir():
        try:
            command, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if command == words and f"WORLD={base}".encode() in variables:
            yield int(entry.name), variables
