"""A disk of the state directory that hangs, for real: the daemon answers and follows health meanwhile, and records everything afterwards."""

import signal
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.core.model.reasons import Rule
from tests.e2e.faults_world import PATIENCE, FrozenDisk, World
from tests.free_ports import free_port

ALL = [100] * 5


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FrozenDisk]:
    made = FrozenDisk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def on_disk(tmp_path: Path, disk: FrozenDisk) -> Iterator[World]:
    """The state directory is on a disk that can hang."""
    made = World(tmp_path, disk.state)
    made.declare(replicas=5)
    yield made
    disk.thaw()  # a process that hangs in a write cannot be killed
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.declare(replicas=5)
    yield made
    made.close()


def listening(world: World) -> str:
    """Switch the health endpoints on. Returns their address."""
    port = free_port()
    manifests = world.manifests / "all.yaml"
    text = manifests.read_text().replace(
        f'spec: {{id: "{world.id}"}}', f'spec: {{id: "{world.id}", metrics: {{listen: "127.0.0.1:{port}"}}}}'
    )
    manifests.write_text(text)
    return f"http://127.0.0.1:{port}"


def healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def steps(world: World) -> int:
    """The steps in the audit."""
    with closing(sqlite3.connect(world.state / "state.db")) as db:
        return int(db.execute("SELECT count(*) FROM audit WHERE kind = 'step'").fetchone()[0])


def test_weights_and_health_endpoints_go_on_while_the_disk_hangs(on_disk, disk):
    world = on_disk
    address = listening(world)
    world.start()
    world.until(lambda: healthy(address))
    sick, dead, *_ = sorted(world.weights())
    before = steps(world)
    disk.freeze()
    try:
        world.kill_replica(dead)  # its end is news for the ledger: a write begins and hangs
        world.until(lambda: world.weights()[dead] == 0)
        switch = world.switches / f"ready.{sick}"
        switch.touch()
        world.until(lambda: world.weights()[sick] == 0)
        assert healthy(address)
        world.until(lambda: "has not answered for" in world.logged())
        switch.unlink()
        world.until(lambda: world.weights()[sick] == 100)
        assert world.service(dead) == 0, "a start must be remembered"
        assert healthy(address)
    finally:
        disk.thaw()
    world.until(lambda: sorted(world.weights().values()) == ALL)
    world.until(lambda: "can be written again" in world.logged())
    assert not world.holds(Rule.LEDGER_UNWRITABLE)
    world.until(lambda: steps(world) >= before + 4)  # three weights and a start
    assert world.stop() == 143


def test_a_daemon_that_is_killed_in_a_write_that_hangs_goes_on_after_it(on_disk, disk):
    world = on_disk.start()
    victim = min(world.weights())
    disk.freeze()
    try:
        world.kill_replica(victim)
        world.until(lambda: "has not answered for" in world.logged())
        world.daemon.send_signal(signal.SIGKILL)
        time.sleep(0.5)
    finally:
        disk.thaw()
    world.daemon.wait(PATIENCE)
    world.start()
    world.until(lambda: sorted(world.weights().values()) == ALL)
    assert world.service(victim) != 0
    assert world.stop() == 143


def test_another_process_that_keeps_the_file_locked_holds_all_but_weights(world):
    world.start()
    sick = min(world.weights())
    with closing(sqlite3.connect(world.state / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        world.kill_replica(max(world.weights()))
        (world.switches / f"ready.{sick}").touch()
        world.until(lambda: world.weights()[sick] == 0)
        world.until(lambda: "has not answered for" in world.logged() or "keeps it locked" in world.logged())
        code, out = world.run("status")
        assert code == 0, out
        began = time.monotonic()
        (world.switches / f"ready.{sick}").unlink()
        world.until(lambda: world.weights()[sick] == 100)
        assert time.monotonic() - began < 15, "no weight waits for the next try"
        other.execute("ROLLBACK")
    world.until(lambda: sorted(world.weights().values()) == ALL)
    world.until(lambda: "can be written again" in world.logged())
    assert world.run("suspend", "workload/web", "--reason", "a test")[0] == 0
    assert world.stop() == 143
