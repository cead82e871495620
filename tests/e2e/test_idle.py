"""An idle daemon on real processes writes nothing at all: no file, no log line."""

import json
import os
import signal
import time
from pathlib import Path

from reconciler.shell.clock import SystemClock, utc
from tests.e2e.quickstart_world import World, until

IDLE = float(os.environ.get("IDLE_SECONDS", "18"))
"""Seconds without a write: more than a read of the manifests. `make soak` takes a minute: two of the longest sleeps of the loop."""

MARKS = 4096
"""The page in which SQLite's readers mark what they read. It is memory, but of a file, so the kernel counts it once after this test
has read the store."""


def written(pid: int) -> dict[str, int]:
    """What a process has written so far: bytes that it passed to the kernel, and bytes that went to the disk."""
    values = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return {name: int(values[name]) for name in ("wchar", "write_bytes")}


def files(world: World) -> dict[str, tuple[int, int]]:
    """The size and the time of every file in the state directory."""
    stats = {str(path): path.stat() for path in world.state.rglob("*") if path.is_file() and path.suffix != ".db-shm"}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def stamp() -> str:
    """The time as in the log."""
    return utc(SystemClock().now().wall).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_an_idle_daemon_writes_nothing(world):
    daemon = world.start("--watch", "--log-format", "json")
    try:
        until(lambda: (world.state / "pools" / "web.json").exists() and list(world.pool().values()) == [100] * 3)
        until(lambda: {replica["state"] for replica in world.replicas().values()} == {"Ready"})
        for _ in range(4):
            time.sleep(5)
            decision, before, begin = world.decision(), (files(world), written(daemon.pid)), stamp()
            time.sleep(IDLE)
            after, end = (files(world), written(daemon.pid)), stamp()
            assert daemon.poll() is None
            if decision == world.decision():
                break
            # On a busy machine a probe may come late, which is a change: then the time begins again.
        assert decision == world.decision()
        assert after[0] == before[0]
        assert after[1]["wchar"] == before[1]["wchar"]
        assert after[1]["write_bytes"] <= before[1]["write_bytes"] + MARKS
        daemon.send_signal(signal.SIGTERM)
        _, err = daemon.communicate(timeout=120)
        assert world.decision() != decision  # the ages of the checks, written once at the end
        log = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
        assert not [record for record in log if begin <= record["time"] <= end]
        assert {record["action"] for record in log if record.get("kind") == "probe"} >= {
            f"{probe} of {replica['container']}"
            for replica in decision["status"]["workloads"][0]["replicas"]
            for probe in ("startup", "liveness", "readiness")
        }
        steps = [record for record in log if record.get("kind") == "step"]
        assert {record["outcome"] for record in steps} == {"done"}
        assert all(record["duration_seconds"] >= 0 and record["reconcile_id"] for record in steps)
        assert {record["revision"] for record in steps} == {decision["revision"]}
    finally:
        daemon.kill()
        daemon.communicate()
