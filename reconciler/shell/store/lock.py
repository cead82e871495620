"""One writer per instance: a kernel lock on the state directory, and a record of its holder in it.

The command line takes the lock before it opens the store. The kernel frees the lock when its holder dies in any way, so there
is no cleanup and no expiry. The directory itself is locked, so no file can be removed to get a second lock. A file in it is locked
too, for earlier versions, and for file systems that lock no directories (NFS). Before the holder acts, it calls `held`: it
notices when the path leads to another directory.

The record is only shown: it names the holder in the error of the second process. It is used only while the process in it is alive.
"""

import errno
import fcntl
import getpass
import json
import os
import pwd
import socket
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now
from reconciler.shell.clock import BlockingClock
from reconciler.shell.store.directory import StoreError, explain, make_state_dir, open_private, write_private
from reconciler.version import version

LOCK_FILE = "lock"
OWNER_FILE = "lock.owner"
TRY_EVERY = SECOND // 10
"""Time (ns) between two tries: the kernel has no lock call with a deadline."""


class Owner(NamedTuple):
    """The holder of the lock. `started` is the process's start time in kernel ticks since boot `boot`; `since` is wall ns."""

    pid: int
    operation: str
    user: str
    host: str
    version: str
    since: int
    started: int
    boot: str


class Holder(NamedTuple):
    """The process that holds the lock: its id, 0 when only the lock itself shows it, and its record if there is a valid one."""

    pid: int
    owner: Owner | None

    def __str__(self) -> str:
        return f"pid {self.pid}" if self.pid else "pid unknown"


class Locked(Exception):
    """Another process holds the lock. `owner` is None when there is no valid record of the holder."""

    def __init__(self, state_dir: Path, holder: str, owner: Owner | None) -> None:
        super().__init__(state_dir, holder, owner)
        self.state_dir = state_dir
        self.holder = holder
        self.owner = owner

    def __str__(self) -> str:
        return f"{self.state_dir}: locked by {self.holder}; wait until it ends, or stop it, then try again"


class Lock:
    """The lock of one state directory, held from `acquire` to `release`. A context manager that releases itself."""

    def __init__(self, state_dir: Path, descriptors: tuple[int, ...], owner: Owner) -> None:
        """`descriptors`: of the locked directory, if its file system can lock it, and of the locked file."""
        self.owner = owner
        self._state_dir = state_dir
        self._descriptors = descriptors
        _held.add(self)

    @classmethod
    def acquire(cls, state_dir: Path, operation: str, clock: BlockingClock, wait: float = 0.0) -> Self:
        """Take the lock; wait for it at most `wait` seconds.

        Args:
            state_dir: the instance's state directory; created with mode 0700 when it is missing.
            operation: the holder's command as it is shown to others: `reconcile --watch manifests`. No secrets.
            clock: gives the time and waits.
            wait: in seconds; 0 tries once.

        Raises:
            Locked: another process still holds it after the wait.
            StoreError: the state directory or the lock file cannot be used.
        """
        make_state_dir(state_dir)
        deadline = clock.now().steady + int(wait * SECOND)
        while (descriptors := _try(state_dir)) is None:
            now = clock.now()
            if now.steady >= deadline:
                raise _locked(state_dir, now)
            clock.pause(min(TRY_EVERY, deadline - now.steady))
        try:
            lock = cls(state_dir, descriptors, _myself(operation, clock.now()))
        except BaseException:
            _close_all(descriptors)
            raise
        lock.record()
        return lock

    def record(self) -> None:
        """Write the record of the holder. Without one, as on a full disk, the lock holds all the same, and others see less."""
        with suppress(StoreError):
            write_private(self._state_dir / OWNER_FILE, json.dumps(self.owner._asdict()))

    def release(self) -> None:
        """Release the lock; idempotent. The lock file stays: removing it would allow two locks at once."""
        if not self._descriptors:
            return
        try:
            (self._state_dir / OWNER_FILE).unlink(missing_ok=True)
        except OSError:
            pass  # a record that stays is ignored once this process is gone
        finally:
            # Closing alone is not enough: a child that was just forked may still have the lock.
            for fd in self._descriptors:
                fcntl.flock(fd, fcntl.LOCK_UN)
            self._close()

    def held(self) -> bool:
        """Whether another process would find the lock taken: the path leads to the directory that is locked."""
        if not self._descriptors:
            return False
        locked = self._state_dir if len(self._descriptors) > 1 else self._state_dir / LOCK_FILE
        return _same_file(self._descriptors[0], locked)

    def keep_record(self) -> None:
        """Write the record again when its file was removed."""
        if not (self._state_dir / OWNER_FILE).exists():
            self.record()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _close(self) -> None:
        descriptors, self._descriptors = self._descriptors, ()
        _held.discard(self)
        _close_all(descriptors)


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    """Close the lock in a forked child: it shares the open file, and would keep the lock after this process died."""
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_drop_in_child)


_NO_DIRECTORIES = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of flock(2) of file systems that lock no directories: NFS needs a descriptor for writing, which no directory has."""


def _try(state_dir: Path) -> tuple[int, ...] | None:
    """The descriptors that hold the lock; None while another process holds it."""
    held: list[int] = []
    path = state_dir
    try:
        held.append(_open_directory(state_dir))
        try:
            fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_DIRECTORIES:
                raise
            os.close(held.pop())
        path = state_dir / LOCK_FILE
        held.append(open_private(path, os.O_RDWR))
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _close_all(held)
        return None
    except OSError as error:
        _close_all(held)
        raise explain(path, error) from error
    except BaseException:
        _close_all(held)
        raise
    # If one was replaced after it was opened, no other process will ever open what is locked here.
    if not _same_file(held[0], state_dir if len(held) > 1 else path) or not _same_file(held[-1], path):
        _close_all(held)
        return None
    return tuple(held)


def _open_directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _close_all(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except OSError:
        return False


def _myself(operation: str, now: Now) -> Owner:
    pid = os.getpid()
    return Owner(pid, operation, _user(), socket.gethostname(), version(), now.wall, _started(pid) or 0, now.lineage)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in many containers
        return str(os.geteuid())


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _started(pid: int) -> int | None:
    """A process's start time in kernel ticks since boot (field 22 of /proc/PID/stat); None when it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def holder(state_dir: Path, clock: BlockingClock) -> Holder | None:
    """The process that holds the instance's lock; None when none does.

    The record alone does not decide: a process that started on a full disk holds the lock without one, and a record may be removed. Then
    the kernel names the process, if it is visible from here.
    """
    now = clock.now()
    owner = _live_owner(state_dir / OWNER_FILE, now) or _from_kernel(state_dir, now)
    if owner is not None:
        return Holder(owner.pid, owner)
    pid = _kernel_holder(state_dir)
    taken = pid is not None or _taken(state_dir) or _taken(state_dir / LOCK_FILE)
    return Holder(pid or 0, None) if taken else None


def _from_kernel(state_dir: Path, now: Now) -> Owner | None:
    pid = _kernel_holder(state_dir)
    started = None if pid is None else _started(pid)
    if pid is None or started is None:
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
    # Behind an interpreter: `python /usr/bin/reconcile --watch manifests` is `reconcile --watch manifests`.
    begin = next((number for number, word in enumerate(words) if Path(word).name == "reconcile"), None)
    operation = "unknown" if begin is None else " ".join(["reconcile", *words[begin + 1 :]])
    since = now.wall - now.steady + started * SECOND // os.sysconf("SC_CLK_TCK")
    return Owner(pid, operation, _user_name(uid), socket.gethostname(), "unknown", since, started, now.lineage)


def _locked(state_dir: Path, now: Now) -> Locked:
    owner = _live_owner(state_dir / OWNER_FILE, now)
    if owner is None:
        pid = _kernel_holder(state_dir)
        return Locked(state_dir, f"pid {pid}" if pid else "another process", None)
    return Locked(
        state_dir, f"pid {owner.pid} ({owner.operation}, user {owner.user}) for {_age(now.wall - owner.since)}", owner
    )


def _live_owner(path: Path, now: Now) -> Owner | None:
    """The record, when it is complete and its very process is still alive (pids are reused)."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        owner = Owner(**raw)
        if not isinstance(owner.pid, int) or not isinstance(owner.since, int):
            return None
        alive = owner.boot == now.lineage and _started(owner.pid) == owner.started
    except (OSError, ValueError, TypeError):
        return None
    return owner if alive else None


def _kernel_holder(state_dir: Path) -> int | None:
    """The pid of the holder in /proc/locks; None when the kernel does not list it.

    A line is `ordinal: FLOCK ADVISORY WRITE pid major:minor:inode start end`, the device in hexadecimal.
    """
    try:
        statuses = [state_dir.stat(follow_symlinks=False)]
        with suppress(FileNotFoundError):
            statuses.append((state_dir / LOCK_FILE).stat(follow_symlinks=False))
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    wanted = {f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}" for status in statuses}
    for line in lines:
        words = line.split()
        if words[1:2] == ["FLOCK"] and not wanted.isdisjoint(words) and words[4].isdigit() and int(words[4]) > 0:
            return int(words[4])
    return None


def _taken(path: Path) -> bool:
    """Whether another process holds the lock, by a try: /proc/locks does not list a holder in another process namespace.

    The lock that a successful try takes for an instant is shared: two tries at once do not take each other for a holder.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False
    finally:
        os.close(fd)


def _age(duration: int) -> str:
    """Nanoseconds in the largest unit that fits: 5m. 0s when the clock was set back."""
    seconds = max(0, duration) // SECOND
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
