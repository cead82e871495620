"""The nginx that runs here: its master process, its workers, and since when they have their configuration. Linux only.

nginx tells nothing of the configuration it has loaded. But each reload starts new workers, and then tells the old ones to shut
down; so a file that has not changed since the oldest worker that takes connections started is in effect. That is read from the
kernel at each look and never remembered.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable

TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""How exactly the kernel tells when a process started (proc(5), starttime), in ns."""

POLL = 0.01
"""Seconds between looks at the workers while a reload is under way."""

MASTER, WORKER = b"nginx: master process", b"nginx: worker process"


class Process(NamedTuple):
    """One process: its number and its start, in ticks since boot."""

    pid: int
    start: int


class Running(NamedTuple):
    """The master and those of its workers that take new connections."""

    master: Process
    workers: frozenset[Process]

    @property
    def epoch(self) -> str:
        """Names this life of nginx; a reload does not end it."""
        return f"{self.master.pid}@{self.master.start}"

    def has_loaded(self, changed: int) -> bool:
        """Whether a file that changed at that wall-clock instant (ns) is in effect, to the exactness of `TICK`."""
        oldest = min((worker.start for worker in self.workers), default=0)
        return (oldest + 1) * TICK + _wall_of_boot() > changed

    def settle(self) -> None:
        """Wait, for some ticks at most, until a file written from now on is surely newer than the newest worker."""
        newest = max((worker.start for worker in self.workers), default=0)
        missing = (newest + 2) * TICK - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if missing > 0:
            # Starts are told in ticks of the kernel's clock: what is compared must lie apart by more than one.
            time.sleep(min(missing, 3 * TICK) / 1e9)


def running(target: str, pid_file: str) -> Running:
    """The nginx whose master's number is in that file.

    Raises:
        Unreachable: there is none, or its processes cannot be seen.
    """
    hint = "start nginx, and compare the path with its `pid` directive"
    try:
        pid = int(Path(pid_file).read_bytes())
    except FileNotFoundError:
        raise Unreachable(target, f"nginx does not run: there is no {pid_file}", hint) from None
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else "does not hold a number"
        raise Unreachable(target, f"cannot read {pid_file}: {cause}", hint) from None
    start = _start(pid, 0)
    if start is None or not _title(pid).startswith(MASTER):
        raise Unreachable(
            target, f"nginx does not run: {pid_file} names process {pid}, which is no master of nginx", hint
        )
    return Running(Process(pid, start), frozenset(_workers(pid)))


def reload(target: str, found: Running, pid_file: str, deadline: float) -> Running:
    """Tell the master to load its configuration, and wait until all workers that take connections are new ones.

    Raises:
        Rejected: no right to signal the master; it was not told.
        OutcomeUnknown: that did not happen before `deadline` (monotonic seconds), or nginx is gone.
    """
    try:
        handle = os.pidfd_open(found.master.pid)
    except OSError as error:
        raise OutcomeUnknown(target, f"the master of nginx is gone: {error.strerror}", "start nginx") from error
    try:
        if _start(found.master.pid, 0) != found.master.start:
            raise OutcomeUnknown(target, "the master of nginx was replaced meanwhile", "retried automatically")
        signal.pidfd_send_signal(handle, signal.SIGHUP)
    except PermissionError:
        raise Rejected(target, "this user may not signal nginx's master", "run as the master's user") from None
    except ProcessLookupError:
        raise OutcomeUnknown(target, "the master of nginx is gone", "start nginx") from None
    finally:
        os.close(handle)
    while True:
        try:
            now = running(target, pid_file)
        except ProviderError as error:
            raise OutcomeUnknown(target, f"after the reload: {error.cause}", error.next_step) from error
        if now.workers and not now.workers & found.workers:
            return now
        if time.monotonic() >= deadline:
            old = "old workers go on" if now.workers - found.workers else "it started no new worker"
            cause = f"master {found.master.pid} was told to reload, but {old}"
            raise OutcomeUnknown(target, cause, "see nginx's error log")
        # nginx tells nobody when its new workers are up; the deadline bounds this.
        time.sleep(POLL)


def _wall_of_boot() -> int:
    """The wall-clock instant of the boot (ns), by the wall clock as it is now: steps of it move what was before.

    Of some readings the latest instant: a process that the kernel puts aside between the two clocks reads one that is too early.
    """
    return max(time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) for _ in range(3))


def _workers(master: int) -> Iterator[Process]:
    try:
        entries = Path(f"/proc/{master}/task/{master}/children").read_text(encoding="ascii").split()
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        entries = [entry for entry in os.listdir("/proc") if entry.isdecimal()]
    for entry in entries:
        start = _start(int(entry), master)
        # One that is shutting down says so in its title, and has an old configuration.
        if start is not None and _title(int(entry)).rstrip(b"\0 ") == WORKER:
            yield Process(int(entry), start)


def _start(pid: int, parent: int) -> int | None:
    """When a process started, in ticks; None when it is gone, or not a child of `parent` (0 = anybody's)."""
    with suppress(OSError, ValueError, IndexError):
        # The name in brackets may hold anything, so fields are counted from its end (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if not parent or int(fields[1]) == parent:
            return int(fields[19])
    return None


def _title(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
