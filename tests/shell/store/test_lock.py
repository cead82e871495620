import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.shell.clock import SystemClock
from reconciler.shell.store import lock
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.lock import Lock, Locked
from reconciler.shell.store.lock import holder as holder_of
from tests.sim.clock import VirtualClock

HOLDER = """
import sys
from pathlib import Path
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock
with Lock.acquire(Path(sys.argv[1]), "reconcile --watch manifests", SystemClock()):
    print("held", flush=True)
    sys.stdin.read()
"""

RACER = """
import os, sys
from pathlib import Path
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock
state = Path(sys.argv[1])
for _ in range(15):
    with Lock.acquire(state, "race", SystemClock(), wait=20):
        fd = os.open(state / "inside", os.O_CREAT | os.O_EXCL)  # fails when two processes hold the lock
        count = int((state / "count").read_text())
        (state / "count").write_text(str(count + 1))
        os.close(fd)
        (state / "inside").unlink()
"""

ENV = dict(os.environ, PYTHONPATH=".")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@contextmanager
def holder(state: Path) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENV
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_the_error_of_a_second_process_names_holder_age_and_next_step(state):
    clock = SystemClock()
    with holder(state) as process:
        record = json.loads((state / "lock.owner").read_text())
        record["since"] -= 5 * 60 * SECOND
        (state / "lock.owner").write_text(json.dumps(record))
        with pytest.raises(Locked) as error:
            Lock.acquire(state, "reconcile --once manifests", clock)
        assert str(error.value) == (
            f"{state}: locked by pid {process.pid} (reconcile --watch manifests, user {record['user']}) for 5m;"
            " wait until it ends, or stop it, then try again"
        )
        assert error.value.owner.pid == process.pid


def test_a_killed_holder_frees_the_lock_and_its_record_is_ignored(state):
    with holder(state) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert (state / "lock.owner").exists()
        with Lock.acquire(state, "reconcile --once manifests", SystemClock()) as lock:
            assert json.loads((state / "lock.owner").read_text())["pid"] == os.getpid() == lock.owner.pid


@pytest.mark.parametrize(
    "stale",
    [
        pytest.param({"started": 1}, id="the pid was used again"),
        pytest.param({"boot": "an earlier boot"}, id="before a reboot"),
        pytest.param({"pid": 2**22 + 1}, id="no such process"),
        pytest.param({"surprise": 1}, id="of another shape"),
        pytest.param({"since": "yesterday"}, id="of other types"),
    ],
)
def test_a_stale_record_is_ignored_and_the_kernel_gives_the_holder(state, stale):
    with holder(state) as process:
        record = json.loads((state / "lock.owner").read_text()) | {"operation": "an old operation"} | stale
        (state / "lock.owner").write_text(json.dumps(record))
        with pytest.raises(Locked) as error:
            Lock.acquire(state, "second", SystemClock())
        assert error.value.owner is None
        assert "an old operation" not in str(error.value)
        assert f"locked by pid {process.pid};" in str(error.value)


def test_a_torn_record_does_not_hide_the_held_lock(state):
    with holder(state):
        (state / "lock.owner").write_bytes(b'{"pid": \xff')
        with pytest.raises(Locked, match="locked by pid"):
            Lock.acquire(state, "second", SystemClock())


LOOK = """
import sys
from pathlib import Path
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import holder
print(holder(Path(sys.argv[1]), SystemClock()))
"""


def test_a_holder_without_a_record_still_holds_the_instance(state):
    clock = SystemClock()
    assert holder_of(state, clock) is None
    with holder(state) as process:
        assert holder_of(state, clock).owner.operation == "reconcile --watch manifests"
        (state / "lock.owner").unlink()  # as on a full disk, where it cannot be written
        found = holder_of(state, clock)
        assert found.pid == process.pid
    assert holder_of(state, clock) is None
    with Lock.acquire(state, "after it", clock):
        pass


def test_a_holder_in_another_process_namespace_is_found(state):
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid():
        pytest.skip("a process namespace of its own needs root")
    command = [unshare, "--pid", "--fork", "--mount-proc", sys.executable, "-c", LOOK, str(state)]
    with holder(state):
        (state / "lock.owner").unlink()
        seen = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in seen.stderr:
        pytest.skip(f"no process namespace can be made: {seen.stderr.strip()}")
    assert seen.stdout == "pid unknown\n", seen.stderr
    after = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60, check=True)
    assert after.stdout == "None\n"


def test_waiting_for_the_lock_ends_at_its_deadline(state):
    clock = VirtualClock()
    with Lock.acquire(state, "first", clock):
        begin = clock.now().steady
        with pytest.raises(Locked):
            Lock.acquire(state, "second", clock, wait=2.55)
        assert clock.now().steady - begin == 2_550_000_000


def test_waiting_for_the_lock_ends_when_it_becomes_free(state):
    class Releasing(VirtualClock):
        def pause(self, duration: int) -> None:
            super().pause(duration)
            if self.now().steady >= begin + SECOND:
                first.release()

    clock = Releasing()
    begin = clock.now().steady
    first = Lock.acquire(state, "first", clock)
    with Lock.acquire(state, "second", clock, wait=60):
        assert clock.now().steady - begin == SECOND


def test_two_racing_processes_never_hold_the_lock_at_once(state):
    state.mkdir(0o700)
    (state / "count").write_text("0")
    (state / "lock").touch()
    racers = [subprocess.Popen([sys.executable, "-c", RACER, str(state)], env=ENV) for _ in range(2)]
    assert [racer.wait(120) for racer in racers] == [0, 0]
    assert (state / "count").read_text() == "30"


def test_a_released_lock_leaves_no_record_and_can_be_taken_again(state):
    clock = VirtualClock()
    lock = Lock.acquire(state, "first", clock)
    lock.release()
    lock.release()
    assert not (state / "lock.owner").exists()
    Lock.acquire(state, "second", clock).release()


def test_releasing_twice_does_not_free_the_lock_of_the_next_holder(state):
    clock = VirtualClock()
    first = Lock.acquire(state, "first", clock)
    first.release()
    with Lock.acquire(state, "second", clock):
        first.release()
        with pytest.raises(Locked):
            Lock.acquire(state, "third", clock)


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_removed_or_replaced_lock_file_gives_no_second_lock(state, again):
    clock = VirtualClock()
    with Lock.acquire(state, "first", clock) as lock:
        (state / "lock").unlink()
        (state / "lock.owner").unlink()
        if again:
            (state / "lock").touch()
        with pytest.raises(Locked, match=f"locked by pid {os.getpid()};"):
            Lock.acquire(state, "second", clock)
        assert lock.held()


def test_without_its_record_the_kernel_names_the_holder(state):
    with holder(state) as process:
        (state / "lock").unlink()
        (state / "lock.owner").unlink()
        found = lock.holder(state, SystemClock())
        assert found is not None
        assert found.pid == process.pid
        assert found.owner is not None
        assert 0 <= SystemClock().now().wall - found.owner.since < 300 * SECOND
    assert lock.holder(state, SystemClock()) is None


def test_a_removed_record_is_written_again(state):
    with Lock.acquire(state, "first", SystemClock()) as held:
        (state / "lock.owner").unlink()
        held.keep_record()
        assert lock.holder(state, SystemClock()) == lock.Holder(os.getpid(), held.owner)


def test_the_holder_notices_another_directory_at_its_path(state):
    clock = VirtualClock()
    with Lock.acquire(state, "first", clock) as first:
        state.rename(state.with_name("away"))
        assert not first.held()
        with Lock.acquire(state, "second", clock) as second:
            assert not first.held()
            assert second.held()


def test_the_file_of_an_earlier_version_keeps_the_lock(state):
    """Earlier versions locked only the file."""
    state.mkdir(0o700)
    (state / "lock").touch(0o600)
    with (state / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Locked):
            Lock.acquire(state, "second", VirtualClock())
    Lock.acquire(state, "second", VirtualClock()).release()


def test_a_program_started_meanwhile_does_not_keep_the_lock(state):
    clock = VirtualClock()
    with Lock.acquire(state, "first", clock):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    try:
        Lock.acquire(state, "second", clock).release()
    finally:
        child.communicate(timeout=60)


def test_a_forked_child_does_not_keep_the_lock_and_cannot_release_it(state):
    clock = VirtualClock()
    lock = Lock.acquire(state, "first", clock)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(write)
            lock.release()
            os.read(read, 1)  # wait until the parent is done
        finally:
            os._exit(0)
    os.close(read)
    with pytest.raises(Locked):
        Lock.acquire(state, "second", clock)
    lock.release()
    Lock.acquire(state, "third", clock).release()
    os.close(write)
    os.waitpid(pid, 0)


def test_lock_and_record_are_private(state):
    with Lock.acquire(state, "first", VirtualClock()):
        assert {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in state.iterdir()} == {
            "lock": 0o600,
            "lock.owner": 0o600,
        }


def test_a_link_in_place_of_the_lock_file_is_refused(state, tmp_path):
    state.mkdir(0o700)
    (state / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        Lock.acquire(state, "first", VirtualClock())
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(("age", "shown"), [(-5, "0s"), (59, "59s"), (3599, "59m"), (7200, "2h"), (400_000, "4d")])
def test_the_age_of_a_lock_is_shown_in_one_unit(state, age, shown):
    clock = VirtualClock()
    with Lock.acquire(state, "first", clock):
        clock.step_wall(age * SECOND)
        with pytest.raises(Locked, match=f"for {shown};"):
            Lock.acquire(state, "second", clock)
