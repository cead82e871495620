"""A small installation on this machine whose surroundings can be broken: its disk, its limits, its probe engine, its files.

Two replicas as processes, a pool in a file. Files in `switches` change how replicas answer. Shared by the tests of faults.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.core.model.reasons import Rule
from tests.providers.runtime.docker.claims import Claim

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0
"""Seconds that anything may take on a busy machine. Only a failure waits for so long."""

SERVICE = """
import os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

switches, me = sys.argv[1], os.environ["ADDRESS"]
slow = len(sys.argv) > 2

class Page(BaseHTTPRequestHandler):
    timeout = 3

    def do_GET(self):
        name = self.path.strip("/")
        bad = any(os.path.exists(f"{switches}/{name}{tail}") for tail in ("", f".{me}"))
        self.send_response(500 if bad else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass

signal.signal(signal.SIGTERM, signal.SIG_IGN if slow else lambda *_: os._exit(0))
HTTPServer((me, int(os.environ["PORT"])), Page).serve_forever()
"""

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
kind: Provider
metadata: {{name: pool}}
spec: {{type: file, settings: {{directory: "{pools}"}}}}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: {replicas}
  drain: {{min: 0s, max: 1s}}
  restarts: {{backoff: {{initial: 1s}}, limit: 50}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: {grace}
      containers:
        - name: web
          command: {command}
          env: [{{name: VERSION, value: "{version}"}}]
          ports: [{{name: http, containerPort: 8080}}]
          startupProbe: {{httpGet: {{path: /live, port: http}}, periodSeconds: 0.5, failureThreshold: 100}}
          readinessProbe: {{httpGet: {{path: /ready, port: http}}, periodSeconds: 1, failureThreshold: 2}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, port: http, balancers: [{{provider: pool, pool: web}}]}}
"""

AMBIENT = ("--inh-caps", "+dac_read_search,+dac_override", "--ambient-caps", "+dac_read_search,+dac_override")


class World:
    """One installation.

    Args:
        base: its directory.
        state: the state directory, when it is on a file system of its own.
        user: the user of the daemon: limits of processes do not bind root.
    """

    def __init__(self, base: Path, state: Path | None = None, user: int = 0) -> None:
        self.base, self.user = base, user
        self.state = state or base / "state"
        self.manifests, self.pools, self.switches = base / "manifests", base / "pools", base / "switches"
        for directory in (self.manifests, self.pools, self.switches):
            directory.mkdir(mode=0o700)
        self.id = f"f{secrets.token_hex(4)}"
        self.claim = Claim(self.id, directory=str(base))
        (base / "service.py").write_text(SERVICE)
        self.fields: dict[str, object] = {"replicas": 2, "grace": 1, "version": 1}
        self.declare()
        if user:
            for path in (base, *base.rglob("*")):
                os.chown(path, user, user)
        self.daemon: subprocess.Popen[bytes] | None = None
        self.log = base / "log"

    def declare(self, **fields: object) -> None:
        """Write the manifests with these fields changed."""
        self.fields |= fields
        slow = ', "slow"' if int(str(self.fields["grace"])) > 10 else ""
        words = (
            f'["{"python3" if self.user else sys.executable}", "-S", "{self.base}/service.py", "{self.switches}"{slow}]'
        )
        pools = f"{self.pools}{self.fields.get('tail', '')}"
        text = MANIFESTS.format(id=self.id, pools=pools, command=words, **self.fields)
        (self.manifests / "all.yaml").write_text(text)

    # --- the program ------------------------------------------------------------------------------------------------

    def _command(self, *words: str) -> list[str]:
        command = [sys.executable, "-m", "reconciler", *words, str(self.manifests), "--state-dir", str(self.state)]
        if not self.user:
            return command
        who = (f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", *AMBIENT)
        return ["setpriv", *who, *command]

    def start(self) -> "World":
        """Start the daemon, and wait until both replicas serve."""
        env = {**os.environ, "XDG_STATE_HOME": str(self.base / "home")}
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                self._command("--watch"), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.until(lambda: sorted(self.weights().values()) == [100] * int(str(self.fields["replicas"])))
        return self

    def run(self, *words: str) -> tuple[int, str]:
        """Another command. Returns its exit code and output."""
        env = {**os.environ, "XDG_STATE_HOME": str(self.base / "home")}
        done = subprocess.run(
            self._command(*words), cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.pid

    def alive(self) -> bool:
        return self.daemon is not None and self.daemon.poll() is None

    def logged(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the condition is true; the daemon must run all the time."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.alive(), f"the daemon ended:\n{self.logged()[-3000:]}"
            assert time.monotonic() < end, f"the condition did not become true in time:\n{self.logged()[-3000:]}"
            time.sleep(0.1)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        code = self.daemon.wait(PATIENCE)
        self.daemon = None
        return code

    def engine(self) -> int:
        """The process id of the probe engine; 0 when there is none."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            if b"reconciler.probes.child" in _read(Path(f"/proc/{child}/cmdline")):
                return int(child)
        return 0

    def limit(self, name: str, value: int) -> None:
        """Set a soft limit of the daemon now: `nproc`, `nofile`."""
        who = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if self.user else []
        subprocess.run([*who, "prlimit", "--pid", str(self.pid), f"--{name}={value}:"], check=True)

    # --- the world --------------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, int]:
        """The weights by address."""
        try:
            members = json.loads((self.pools / "web.json").read_text())["members"]
        except FileNotFoundError:
            return {}
        return {member["address"]: member["weight"] for member in members}

    def holds(self, rule: Rule) -> list[dict[str, str]]:
        """The holds of this rule in the stored decision."""
        code, out = self.run("status", "-o", "json")
        assert code == 0, out
        return [hold for hold in json.loads(out)["holds"] if hold["rule"] == rule.value]

    def service(self, address: str) -> int:
        """The process id of the replica at an address; 0 when there is none."""
        for entry in Path("/proc").iterdir():
            words = _read(entry / "cmdline") if entry.name.isdigit() else b""
            ours = str(self.base / "service.py").encode() in words and words.split(b"\0")[1] == b"-S"
            if ours and f"ADDRESS={address}".encode() in _read(entry / "environ").split(b"\0"):
                return int(entry.name)
        return 0

    def kill_replica(self, address: str) -> None:
        os.kill(self.service(address), signal.SIGKILL)

    def close(self) -> None:
        """End everything that was started here."""
        if self.alive():
            assert self.daemon is not None
            self.daemon.kill()
            self.daemon.wait()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            if str(self.base).encode() in _read(entry / "cmdline") + _read(entry / "environ"):
                try:
                    os.kill(int(entry.name), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.claim.drop()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Disk:
    """A small file system of its own: it can be filled and freed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        options = f"size=3m,mode=700,uid={os.geteuid()}"
        try:
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("a full or read-only disk needs the right to mount a tmpfs (root)")

    @property
    def state(self) -> Path:
        return self.path / "state"

    def fill(self) -> None:
        """Take all space."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 16, 1 << 12, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=False)
        shutil.rmtree(self.path, ignore_errors=True)


class FrozenDisk:
    """A file system of its own that can be frozen: then every write to it hangs, like on a network file system without its server."""

    def __init__(self, path: Path) -> None:
        self.path, self._image = path, path.with_name("disk.img")
        self._image.touch()
        os.truncate(self._image, 32 << 20)
        path.mkdir()
        try:
            for words in (["mkfs.ext4", "-q", "-F", self._image], ["mount", "-o", "loop", self._image, path]):
                subprocess.run(words, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("a disk that hangs needs loop devices, ext4 and the right to mount (root)")
        self._frozen = False

    @property
    def state(self) -> Path:
        return self.path / "state"

    def freeze(self) -> None:
        """Let every write hang."""
        subprocess.run(["fsfreeze", "-f", self.path], check=True)
        self._frozen = True

    def thaw(self) -> None:
        """Let them go on."""
        if self._frozen:
            subprocess.run(["fsfreeze", "-u", self.path], check=True)
        self._frozen = False

    def close(self) -> None:
        self.thaw()
        subprocess.run(["umount", "-l", self.path], check=False)
        shutil.rmtree(self.path, ignore_errors=True)
        self._image.unlink(missing_ok=True)
