"""What the daemon writes to the disk: per change of one replica's readiness, and in an idle minute.

    python -m bench.state_writes [WORKLOADS ...]

The daemon is the real program with its real store and probes, over in-memory containers, pools and zones, so that nothing else of it
touches the disk. Every workload has one replica and a Service, the first ones a DNSPolicy too. One HTTP server answers all probes; every 2 s it changes its
answer to those of one replica. Bytes are from /proc/PID/io of the daemon: `wchar` is what it wrote, `write_bytes` what went to the disk.
WAL is what SQLite appended to its log, from the log's index. The idle minute comes last, with all replicas ready.
"""

import asyncio
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from reconciler.shell.clock import SystemClock
from reconciler.shell.report.last_decision import last_decision
from reconciler.shell.store.state_db import Store

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = (10, 100, 1000)
REPLICAS = 3
FLIPS = 40
EVERY = 2.0
IDLE = 60.0
PATIENCE = 600.0
"""Seconds that the daemon may take to converge on a busy machine."""

PER_NODE, NAMES = 20, 10
"""Replicas of a node, and workloads with a name: both only shorten the start."""

HEAD = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: writes}
spec: {id: writes}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: pools}
spec: {type: memory-endpoints}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: names}
spec: {type: memory-dns}
"""

NODE = """\
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: node-@N}
spec: {type: memory-runtime}
"""

WORKLOAD = """\
---
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web-@N}
spec:
  nodes: [node-@HOST]
  replicas: @REPLICAS
  template:
    metadata: {labels: {app: web-@N}}
    spec:
      containers:
        - name: web
          command: [serve]
          ports: [{name: http, containerPort: @PORT}]
          readinessProbe:
            {httpGet: {path: /web-@N, port: http}, periodSeconds: @PERIOD, timeoutSeconds: 5, failureThreshold: @FAILURES}
---
apiVersion: reconciler/v1
kind: Service
metadata: {name: web-@N}
spec:
  selector: {app: web-@N}
  port: http
  balancers: [{provider: pools, pool: web-@N}]
"""

NAME = """\
---
apiVersion: reconciler/v1
kind: DNSPolicy
metadata: {name: web-@N}
spec:
  host: web-@N.example.test
  zone: example.test
  targets: [{name: local, service: {name: web-@N, publish: endpoints}}]
"""


class Answers:
    """The server of all replicas, in a thread. The replica of the first workload answers with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.port = 0
        self.victim = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _serve(self) -> None:
        async def run() -> None:
            server = await asyncio.start_server(self._answer, "0.0.0.0", 0, backlog=1000)
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()

        self._loop.run_until_complete(run())
        self._loop.run_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status = 200
            if head.startswith(b"GET /web-0 "):
                address = writer.get_extra_info("sockname")[0]
                self.victim = min(address, self.victim or address)
                status = self.status if address == self.victim else 200
            writer.write(b"HTTP/1.1 %d Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class Written(NamedTuple):
    """Bytes that were written so far."""

    wchar: int
    disk: int
    wal: int

    def since(self, before: "Written") -> "Written":
        """The bytes written since."""
        return Written(self.wchar - before.wchar, self.disk - before.disk, self.wal - before.wal)


class Daemon:
    """One daemon with its state directory. `written` counts its bytes; the log's index is sampled, because it wraps."""

    def __init__(self, base: Path, workloads: int, port: int) -> None:
        manifests, self.state = base / "manifests", base / "state"
        manifests.mkdir()
        nodes = -(-workloads // PER_NODE)  # only so many containers start at a time on a node
        text = HEAD + "".join(NODE.replace("@N", str(number)) for number in range(nodes))
        for number in range(workloads):
            period, failures = ("0.5", "1") if number == 0 else ("10", "3")
            replicas = REPLICAS if number == 0 else 1
            text += (
                (WORKLOAD + (NAME if number < NAMES else ""))
                .replace("@HOST", str(number // PER_NODE))
                .replace("@N", str(number))
                .replace("@PORT", str(port))
                .replace("@PERIOD", period)
                .replace("@FAILURES", failures)
                .replace("@REPLICAS", str(replicas))
            )
        (manifests / "all.yaml").write_text(text)
        self.log = (base / "log").open("wb")
        command = [sys.executable, "-m", "reconciler", "--watch", "--state-dir", str(self.state), str(manifests)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log)
        self._wal = self._frames = 0
        self._mutex = threading.Lock()

    def converged(self, workloads: int) -> bool:
        """Whether every replica is ready, has its weight and is published, and nothing is left to do."""
        stored = last_decision(self.state) if (self.state / "state.db").exists() else None
        if stored is None or stored["steps"] or stored["waits"]:
            return False
        status = stored["status"]
        return sum(row["available"] for row in status["workloads"]) == workloads + REPLICAS - 1 and all(
            name["published"] for name in status["names"]
        )

    def _sample(self) -> int:
        """Bytes in the log so far, over all its wraps: frames of one page and 24 bytes each (https://sqlite.org/walformat.html)."""
        with self._mutex:
            try:
                with (self.state / "state.db-shm").open("rb") as index:
                    header = index.read(48)
            except OSError:
                return self._wal
            if len(header) < 48:
                return self._wal
            (size,) = struct.unpack_from("=H", header, 14)
            frames = struct.unpack_from("=I", header, 16)[0]
            self._wal += (frames - self._frames if frames >= self._frames else frames) * (size + 24)
            self._frames = frames
            return self._wal

    def written(self) -> Written:
        """What was written so far."""
        values = dict(line.split(": ") for line in Path(f"/proc/{self.process.pid}/io").read_text().splitlines())
        return Written(int(values["wchar"]), int(values["write_bytes"]), self._sample())

    def pass_time(self, seconds: float) -> None:
        """Wait, and sample the log meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._sample()
            time.sleep(0.05)

    def close(self) -> None:
        """End the daemon."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


@contextmanager
def running(workloads: int, answers: Answers) -> Iterator[Daemon]:
    """A daemon that has converged."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:  # on a disk, where /tmp may be memory
        daemon = Daemon(Path(base), workloads, answers.port)
        try:
            end = time.monotonic() + PATIENCE
            while not daemon.converged(workloads):
                if daemon.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the daemon did not converge: {(Path(base) / 'log').read_text()[-2000:]}")
                time.sleep(0.5)
            daemon.pass_time(5)
            yield daemon
        finally:
            daemon.close()


def measure(workloads: int, answers: Answers) -> tuple[list[Written], Written]:
    """Bytes of each flip, and of the idle time after them."""
    answers.status, answers.victim = 200, ""
    with running(workloads, answers) as daemon:
        # What the start wrote goes from the log to the file now, by this process: it is no part of a flip.
        with closing(sqlite3.connect(daemon.state / "state.db")) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        flips, before = [], daemon.written()
        for _ in range(FLIPS):
            answers.status = 503 if answers.status == 200 else 200
            daemon.pass_time(EVERY)
            after = daemon.written()
            flips.append(after.since(before))
            before = after
        answers.status = 200
        daemon.pass_time(10)
        before = daemon.written()
        daemon.pass_time(IDLE)
        idle = daemon.written().since(before)
        with Store.join(daemon.state, SystemClock()) as store:
            verdicts = [row for _, row in store.audit_since() if row.kind == "verdict"]
        assert len(verdicts) >= FLIPS // 2, len(verdicts)  # a busy machine misses some
        return flips, idle


def main() -> None:
    """Print the report."""
    sizes = [int(word) for word in sys.argv[1:]] or WORKLOADS
    answers = Answers()
    print("## What is written to the disk\n")
    print(
        f"One replica of three changes its readiness every {EVERY:.0f} s, {FLIPS} times: median per flip. The mean has more: now and "
        "then the whole decision is written in place of its changes, once they are as long.\n"
    )
    print(
        "| workloads | KB written | KB to the disk | KB of SQLite's log | mean KB written | bytes in an idle minute |"
    )
    print("|---|---|---|---|---|---|")
    for workloads in sizes:
        flips, idle = measure(workloads, answers)
        medians = [f"{median(values) / 1000:.1f}" for values in zip(*flips, strict=True)]
        mean = sum(flip.wchar for flip in flips) / FLIPS / 1000
        print(f"| {workloads:,} | {' | '.join(medians)} | {mean:.1f} | {idle.wchar} |", flush=True)


if __name__ == "__main__":
    main()
