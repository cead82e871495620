"""The quickstart as a user runs it: real command, real processes, real files, in a state directory of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PORT = 8080


class World:
    """One user's machine: manifests that may be edited, and where state is kept."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.manifests = base / "manifests"
        shutil.copytree(ROOT / "examples" / "quickstart", self.manifests)
        for file in self.manifests.glob("*.yaml"):
            file.write_text(file.read_text().replace("ttl: 5s", "ttl: 1s"))
        self.state = self.home / "reconciler" / "quickstart"
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
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return process.returncode, out or err

    def status(self) -> dict:
        code, out = self.run("status", "-o", "json")
        assert code == 0, out
        return json.loads(out)["status"]

    def replicas(self) -> dict[str, dict]:
        return {one["replica"]: one for workload in self.status()["workloads"] for one in workload["replicas"]}

    def pool(self) -> dict[str, int]:
        file = self.state / "pools" / "web.json"
        return {one["address"]: one["weight"] for one in json.loads(file.read_text())["members"]}

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
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                directory = os.readlink(entry / "cwd")
            except OSError:
                continue
            mine = str(self.home).encode() in told or directory.startswith(str(self.manifests))
            if mine and state != "Z":
                found.add(int(entry.name))
        return found


def ask(address: str, path: str = "/", method: str = "GET") -> str:
    request = urllib.request.Request(f"http://{address}:{PORT}{path}", method=method)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode()


def pid_of(address: str) -> int:
    return int(ask(address).rpartition("process ")[2])


def until(what: Callable[[], bool], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for pid in made.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_the_main_job_from_nothing_through_faults_to_nothing(world):
    code, out = world.run("--once")
    assert code == 0, out
    assert out.splitlines()[-1] == "result: as wanted (exit 0)"
    before = world.replicas()
    addresses = {one["address"] for one in before.values()}
    assert len(addresses) == 3
    assert world.pool() == dict.fromkeys(addresses, 100)
    assert world.records() == addresses
    pids = {name: pid_of(one["address"]) for name, one in before.items()}

    # Again: nothing to do, and nothing was done.
    code, out = world.run("--once")
    assert (code, out.splitlines()[0]) == (0, "nothing to do")
    assert {name: pid_of(one["address"]) for name, one in before.items()} == pids
    code, out = world.run("plan", "--detailed-exitcode")
    assert code == 0, out

    # One breaks, another is killed by somebody else.
    broken, killed, untouched = "workload/web/0", "workload/web/1", "workload/web/2"
    ask(before[broken]["address"], "/break", "POST")
    os.kill(pids[killed], signal.SIGKILL)
    code, out = world.run("--once", "--timeout", "40s")
    assert code == 0, out
    after = world.replicas()
    assert {name: one["state"] for name, one in after.items()} == dict.fromkeys(before, "Ready")
    assert pid_of(after[broken]["address"]) != pids[broken]
    assert pid_of(after[killed]["address"]) != pids[killed]
    assert pid_of(after[untouched]["address"]) == pids[untouched]
    assert world.pool() == {one["address"]: 100 for one in after.values()}
    assert world.records() == {one["address"] for one in after.values()}
    stop = out.index(f": stop {before[broken]['container']}")
    assert out.index(f"weight 100 -> 0 {before[broken]['address']}") < stop
    assert out.count(f": stop {before[broken]['container']}") == 1
    assert f": stop {before[killed]['container']}" not in out

    code, out = world.run("destroy", "--yes", "-o", "json")
    assert (code, json.loads(out)["exit_code"]) == (0, 0)
    assert {step["outcome"] for step in json.loads(out)["done"]} == {"done"}
    assert world.pool() == {}
    assert world.records() == set()
    assert world.processes() == set()
    assert world.replicas() == {}


def test_a_daemon_heals_obeys_and_leaves_everything_running_when_it_is_told_to_stop(world):
    daemon = world.start("--watch")
    try:
        until(lambda: (world.state / "pools" / "web.json").exists() and len(world.pool()) == 3)
        until(lambda: all(one["state"] == "Ready" for one in world.replicas().values()))
        first = world.replicas()
        victim = first["workload/web/1"]["address"]
        old = pid_of(victim)

        second = world.start("--once")  # it waits for the lock for a while
        os.kill(old, signal.SIGKILL)

        def healed() -> bool:
            try:
                return pid_of(victim) != old and world.pool()[victim] == 100
            except OSError:
                return False

        until(healed)

        code, out = world.run("suspend", "workload/web", "--reason", "looking into it", "-o", "json")
        assert (code, json.loads(out)["exit_code"]) == (0, 0)
        until(lambda: world.status()["workloads"][0]["condition"] == "Suspended")

        _, err = second.communicate(timeout=20)
        assert second.returncode == 5, err
        assert "reconcile --watch" in err

        daemon.send_signal(signal.SIGTERM)
        _, err = daemon.communicate(timeout=10)
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.communicate()
    assert daemon.returncode == 143
    assert "result: terminated (exit 143)" in err
    assert pid_of(victim) != old

    code, out = world.run("destroy", "--yes")
    assert code == 0, out
    assert world.processes() == set()
