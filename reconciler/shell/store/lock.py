"""One writer per instance: a kernel lock on a file in the state directory, and beside it a record of who holds it.

The command line takes it before it opens the store. The kernel frees the lock when its holder dies in any way, so there is
nothing to clean up and no expiry. The record is only for people: it names the holder in the error of whoever comes second,
and it is believed only when the process in it still lives.
"""

import fcntl
import getpass
import json
import os
import socket
import weakref
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, Self

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now
from reconciler.shell.clock import Waiting
from reconciler.shell.store.directory import explain, make_state_dir, open_private, write_private

LOCK_FILE = "lock"
OWNER_FILE = "lock.owner"
TRY_EVERY = SECOND // 10
"""The kernel offers no lock call with a deadline, so the lock is tried again after this time (ns)."""


class Owner(NamedTuple):
    """Who holds the lock. `started` is the process's start time in kernel ticks since boot `boot`; `since` is wall ns."""

    pid: int
    operation: str
    user: str
    host: str
    version: str
    since: int
    started: int
    boot: str


class Locked(Exception):
    """Another process holds the lock. `owner` is None when the holder left no record that can be believed."""

    def __init__(self, state_dir: Path, holder: str, owner: Owner | None) -> None:
        super().__init__(state_dir, holder, owner)
        self.state_dir = state_dir
        self.holder = holder
        self.owner = owner

    def __str__(self) -> str:
        return f"{self.state_dir}: held by {self.holder}; wait for it to end or stop it, then try again"


class Lock:
    """The lock of one state directory, held from `acquire` to `release`. A context manager that releases itself."""

    def __init__(self, state_dir: Path, fd: int, owner: Owner) -> None:
        self.owner = owner
        self._state_dir = state_dir
        self._fd = fd
        _held.add(self)

    @classmethod
    def acquire(cls, state_dir: Path, operation: str, clock: Waiting, wait: float = 0.0) -> Self:
        """Take the lock, waiting for it at most `wait` seconds.

        Args:
            state_dir: the instance's state directory; created with mode 0700 where it is missing.
            operation: what the holder is doing, for people: `reconcile --watch manifests`. No secrets.
            clock: tells the time and waits.
            wait: in seconds; 0 tries once.

        Raises:
            Locked: another process holds it, still so after the wait.
            StoreError: the state directory or the lock file cannot be used.
        """
        make_state_dir(state_dir)
        deadline = clock.now().steady + int(wait * SECOND)
        while (fd := _try(state_dir / LOCK_FILE)) is None:
            now = clock.now()
            if now.steady >= deadline:
                raise _locked(state_dir, now)
            clock.pause(min(TRY_EVERY, deadline - now.steady))
        try:
            owner = _myself(operation, clock.now())
            write_private(state_dir / OWNER_FILE, json.dumps(owner._asdict()))
        except BaseException:
            os.close(fd)
            raise
        return cls(state_dir, fd, owner)

    def release(self) -> None:
        """Let others have the lock. May be called again. The lock file stays: removing it would make two locks of one."""
        if self._fd < 0:
            return
        try:
            (self._state_dir / OWNER_FILE).unlink(missing_ok=True)
        except OSError:
            pass  # a record that stays is not believed once this process is gone
        finally:
            # Closing alone would leave the lock with a child that was forked a moment ago and has not dropped it yet.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd >= 0:
            os.close(fd)


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    """The kernel's lock belongs to the open file, which a forked child shares: it would keep the lock after our death."""
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_drop_in_child)


def _try(path: Path) -> int | None:
    """The descriptor that holds the lock, or None while somebody else does."""
    fd = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as error:
        os.close(fd)
        raise explain(path, error) from error
    # Somebody may have removed the file after it was opened: then this is a lock on a file that nobody else will open.
    if not _same_file(fd, path):
        os.close(fd)
        return None
    return fd


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _myself(operation: str, now: Now) -> Owner:
    pid = os.getpid()
    return Owner(pid, operation, _user(), socket.gethostname(), _version(), now.wall, _started(pid) or 0, now.boot)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        return str(os.geteuid())


def _version() -> str:
    try:
        return metadata.version("reconciler")
    except metadata.PackageNotFoundError:  # run from a tree that was never installed
        return "unknown"


def _started(pid: int) -> int | None:
    """A process's start time in kernel ticks since boot: field 22 of /proc/PID/stat. None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def holder(state_dir: Path, clock: Waiting) -> Owner | None:
    """The living process that holds the instance's lock, as it wrote itself down; None when none does."""
    return _believable(state_dir / OWNER_FILE, clock.now())


def _locked(state_dir: Path, now: Now) -> Locked:
    owner = _believable(state_dir / OWNER_FILE, now)
    if owner is None:
        pid = _kernel_holder(state_dir / LOCK_FILE)
        return Locked(state_dir, f"pid {pid}" if pid else "another process", None)
    return Locked(
        state_dir, f"pid {owner.pid} ({owner.operation}, user {owner.user}) for {_age(now.wall - owner.since)}", owner
    )


def _believable(path: Path, now: Now) -> Owner | None:
    """The record, when it is whole and the very process in it still lives (pids are used again)."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        owner = Owner(**raw)
        if not isinstance(owner.pid, int) or not isinstance(owner.since, int):
            return None
        alive = owner.boot == now.boot and _started(owner.pid) == owner.started
    except (OSError, ValueError, TypeError):
        return None
    return owner if alive else None


def _kernel_holder(path: Path) -> int | None:
    """The pid that the kernel knows as the holder, from /proc/locks; None when it does not say.

    A line there is `ordinal: FLOCK ADVISORY WRITE pid major:minor:inode start end`, the device in hexadecimal.
    """
    try:
        found = path.stat(follow_symlinks=False)
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        words = line.split()
        if words[1:2] == ["FLOCK"] and wanted in words and words[4].isdigit() and int(words[4]) > 0:
            return int(words[4])
    return None


def _age(duration: int) -> str:
    """Nanoseconds in the largest unit that fits: 5m. A clock that was set back gives 0s."""
    seconds = max(0, duration) // SECOND
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
