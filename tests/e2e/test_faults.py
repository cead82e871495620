"""Real faults of a daemon's surroundings, with replicas as processes: it stays, says why it holds, and goes on when they are over."""

import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reconciler.core.model.reasons import Rule
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock
from tests.e2e.faults_world import Disk, World

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "12"))
"""How long random faults are made; `make soak` makes them for ten minutes."""


USUAL = 1_000
"""A limit of processes or files that nothing here reaches."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def on_disk(tmp_path: Path, disk: Disk) -> Iterator[World]:
    """The state directory is on a small file system of its own."""
    made = World(tmp_path, disk.state)
    yield made
    made.close()


@pytest.fixture
def limited() -> Iterator[World]:
    """The daemon has a user of its own, whom limits of processes bind."""
    if os.geteuid():
        pytest.skip("a daemon of another user needs root")
    with TemporaryDirectory(
        prefix="reconciler-limits-", ignore_cleanup_errors=True
    ) as base:  # pytest's directories are closed to other users
        made = World(Path(base), user=61_000 + os.getpid() % 4_000)
        yield made
        made.close()


# --- the disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_holds_all_but_weights_until_there_is_space(on_disk, disk):
    world = on_disk.start()
    sick, dead = sorted(world.weights())
    disk.fill()
    switch = world.switches / f"ready.{sick}"
    switch.touch()
    world.until(lambda: world.weights()[sick] == 0)
    world.until(lambda: "no space left" in world.logged())
    code, out = world.run("suspend", "workload/web", "--reason", "a test")
    assert code == 1, out
    assert "no space left" in out or "has not recorded" in out
    waits = "stays in the inbox" in out  # the files of the store may have free pages: then the order is taken later
    world.kill_replica(dead)
    time.sleep(3)
    assert world.service(dead) == 0, "a start must be remembered"
    disk.free()
    switch.unlink()
    if waits:
        world.until(lambda: "suspended workload/web" in world.logged())
        assert world.run("resume", "workload/web")[0] == 0
    world.until(lambda: sorted(world.weights().values()) == [100, 100])
    assert "can be written again" in world.logged()
    assert not world.holds(Rule.LEDGER_UNWRITABLE)
    assert world.stop() == 143


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_daemon_that_starts_on_a_full_disk_follows_health_and_waits(on_disk, disk, ending):
    world = on_disk.start()
    sick = min(world.weights())
    code, out = world.run("suspend", "workload/web", "--reason", "a test")
    assert code == 0, out
    world.daemon.send_signal(ending)  # a process that stops removes SQLite's side files
    world.daemon.wait(10)
    disk.fill()
    switch = world.switches / f"ready.{sick}"
    switch.touch()
    world.start()
    world.until(lambda: world.weights()[sick] == 0)
    assert "no space left" in world.logged() or "cannot be opened for writing" in world.logged()
    code, out = world.run("resume", "workload/web")
    assert code == 1, out
    assert "no reconcile process" not in out
    waits = "stays in the inbox" in out  # the files of the store may have free pages: then the order is taken later
    disk.free()
    switch.unlink()
    world.until(lambda: sorted(world.weights().values()) == [100, 100])
    world.until(lambda: "can be written again" in world.logged())
    world.until(
        lambda: "resumed workload/web" in world.logged() if waits else world.run("resume", "workload/web")[0] == 0
    )
    world.kill_replica(sick)
    world.until(lambda: world.service(sick) != 0)
    assert world.stop() == 143


def test_a_state_directory_that_vanishes_and_returns_is_used_again(world):
    world.start()
    sick = min(world.weights())
    away = world.state.with_name("away")
    world.state.rename(away)
    switch = world.switches / f"ready.{sick}"
    switch.touch()
    world.until(lambda: world.weights()[sick] == 0)
    world.until(lambda: "it was removed or replaced" in world.logged())
    time.sleep(6)  # at least one further try
    assert not world.state.exists(), "a directory in its place would hide it"
    away.rename(world.state)
    switch.unlink()
    world.until(lambda: sorted(world.weights().values()) == [100, 100])
    world.until(lambda: "can be written again" in world.logged())
    assert not list(world.state.glob("state.db.corrupt*"))
    assert world.stop() == 143


def test_a_removed_ledger_is_written_again_under_the_same_lock(world):
    world.start()
    code, out = world.run("suspend", "workload/web", "--reason", "a test")
    assert code == 0, out
    for file in world.state.glob("state.db*"):
        file.unlink()
    world.kill_replica(min(world.weights()))
    world.until(lambda: "can be written again" in world.logged())
    with closing(sqlite3.connect(world.state / "state.db")) as db:
        assert db.execute("SELECT key FROM ledger WHERE section = 'suspensions'").fetchall() == [("workload/web",)]
    code, out = world.run("resume", "workload/web")
    assert code == 0, out
    world.until(lambda: sorted(world.weights().values()) == [100, 100])


# --- processes, threads, descriptors ------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["nproc", "nofile"])
def test_no_more_processes_or_descriptors_hold_until_there_are_some(limit, limited):
    world = limited.start()
    engine = world.engine()
    world.limit(limit, 1 if limit == "nproc" else len(os.listdir(f"/proc/{world.pid}/fd")) - 4)
    os.kill(engine, signal.SIGKILL)
    world.until(
        lambda: "the probe engine cannot be started" in world.logged() or "no thread can be started" in world.logged()
    )
    time.sleep(6)  # at least one further try
    assert world.alive()
    assert sorted(world.weights().values()) == [100, 100]
    world.limit(limit, USUAL)
    world.until(lambda: world.engine() not in (0, engine))
    switch = world.switches / f"ready.{min(world.weights())}"
    switch.touch()
    world.until(lambda: 0 in world.weights().values())
    switch.unlink()
    world.until(lambda: sorted(world.weights().values()) == [100, 100])
    assert not world.holds(Rule.PROBE_ENGINE)
    assert world.stop() == 143


def test_a_killed_probe_engine_is_started_again_at_once(world):
    world.start()
    for _ in range(3):
        engine = world.engine()
        os.kill(engine, signal.SIGKILL)
        world.until(lambda engine=engine: world.engine() not in (0, engine))
    switch = world.switches / f"ready.{min(world.weights())}"
    switch.touch()
    world.until(lambda: 0 in world.weights().values())


# --- the ledger ---------------------------------------------------------------------------------------------------


def test_a_damaged_row_is_set_aside_and_its_suspension_stays(world):
    world.start()
    assert world.run("suspend", "workload/web", "--reason", "a test")[0] == 0
    assert world.stop() == 143
    with closing(sqlite3.connect(world.state / "state.db")) as db, db:
        db.execute("UPDATE ledger SET value = '[[7]]' WHERE section IN ('suspensions', 'ready')")
    world.start()
    world.until(lambda: "suspensions 'workload/web' is damaged" in world.logged())
    world.kill_replica(min(world.weights()))
    world.until(lambda: bool(world.holds(Rule.SUSPENDED)))
    with closing(sqlite3.connect(world.state / "state.db")) as db:
        kept = db.execute("SELECT CAST(section AS TEXT), CAST(value AS TEXT) FROM quarantine").fetchall()
    assert ("suspensions", "[[7]]") in kept
    assert world.run("resume", "workload/web")[0] == 0
    world.until(lambda: sorted(world.weights().values()) == [100, 100])


# --- never deaf ---------------------------------------------------------------------------------------------------


def test_orders_and_manifests_are_read_while_a_stop_takes_a_minute(world):
    world.declare(grace=60)
    world.start()
    old = set(world.weights())
    world.declare(version=2)
    world.until(lambda: any(weight == 0 for address, weight in world.weights().items() if address in old), 30)
    time.sleep(2)  # its drain is over, and the stop is under way
    began = time.monotonic()
    world.declare(tail="/.")  # another provider of the pool
    world.until(lambda: world.logged().count("the manifests changed") == 2, 10)
    code, out = world.run("suspend", "workload/web", "--reason", "a test")
    assert code == 0, out
    assert "in effect now" in out
    (serving, *_) = [address for address, weight in world.weights().items() if weight == 100]
    (world.switches / f"ready.{serving}").touch()
    world.until(lambda: world.weights()[serving] == 0, 15)
    assert time.monotonic() - began < 40, "the stop is still under way"


# --- many faults --------------------------------------------------------------------------------------------------


def test_random_faults_end_nothing_and_are_overcome(on_disk, disk):
    world = on_disk.start()
    rng = random.Random(os.environ.get("SOAK_SEED", "7"))
    end = time.monotonic() + SOAK_SECONDS
    pid = world.pid
    while time.monotonic() < end:
        assert world.alive(), world.logged()[-3000:]
        fault = rng.choice(("full", "engine", "replica", "unready", "broken", "unreadable", "files", "new"))
        if fault == "full":
            disk.fill()
        elif fault == "engine" and world.engine():
            os.kill(world.engine(), signal.SIGKILL)
        elif fault == "replica" and world.weights():
            with suppress(ProcessLookupError):
                victim = world.service(rng.choice(sorted(world.weights())))
                if victim:
                    os.kill(victim, signal.SIGKILL)
        elif fault == "unready" and world.weights():
            (world.switches / f"ready.{rng.choice(sorted(world.weights()))}").touch()
        elif fault == "broken":
            (world.manifests / "all.yaml").write_text("a: [b\n")
        elif fault == "unreadable":
            (world.manifests / "all.yaml").unlink()
        elif fault == "files":
            world.limit("nofile", len(os.listdir(f"/proc/{pid}/fd")) - rng.randrange(5))
        elif fault == "new":
            world.declare(version=rng.randrange(100))
        time.sleep(rng.choice((0.2, 1.0, 2.5)))
        if rng.random() < 0.7:
            mend(world, disk)
            time.sleep(rng.choice((0.2, 1.0)))
    mend(world, disk)
    world.declare(version="last")
    world.until(lambda: sorted(world.weights().values()) == [100, 100] and "revision" in world.logged())
    world.until(lambda: not world.holds(Rule.LEDGER_UNWRITABLE) and not world.holds(Rule.PROBE_ENGINE))
    assert world.pid == pid
    assert world.stop() == 143


def mend(world: World, disk: Disk) -> None:
    """End all faults."""
    disk.free()
    for switch in world.switches.iterdir():
        switch.unlink()
    world.limit("nofile", USUAL)
    world.declare()


# --- another state directory at the same path -----------------------------------------------------------------------


def replaced(world: World) -> None:
    """The state directory is renamed, and an empty one is in its place."""
    new = world.state.with_name("new")
    new.mkdir(0o700)
    world.state.rename(world.state.with_name("away"))
    new.rename(world.state)


def test_a_daemon_takes_the_lock_of_a_directory_in_place_of_its_own(world):
    world.start()
    replaced(world)
    world.until((world.state / "lock").exists)
    code, out = world.run("--once")
    assert code == 5, out
    assert f"locked by pid {world.pid}" in out


def test_a_daemon_ends_when_another_process_holds_the_new_directory(world):
    world.start()
    new = world.state.with_name("new")
    with Lock.acquire(new, "reconcile --once", SystemClock()):
        world.state.rename(world.state.with_name("away"))
        new.rename(world.state)
        world.kill_replica(min(world.weights()))
        assert world.daemon.wait(60) == 5
    assert f"locked by pid {os.getpid()}" in world.logged()


def test_removed_lock_files_let_no_second_process_in_and_are_written_again(world):
    world.start()
    for file in world.state.glob("lock*"):
        file.unlink()
    code, out = world.run("--once")
    assert code == 5, out
    assert f"locked by pid {world.pid}" in out
    world.until((world.state / "lock.owner").exists)
