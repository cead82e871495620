"""The nginx that runs here: its master process, its workers, and when they loaded their configuration. Linux only.

nginx does not say which configuration it has loaded. But each reload starts new workers and then shuts the old ones down. So a
file is loaded if it has not changed since the oldest worker that accepts connections started. Each look reads that from the kernel
again.

A file that changes while nginx reads a slow configuration is older than the workers that start then, but not loaded. For our own
files `Signal` is exact: a master that loads blocks the signal to reload, and the kernel shows that it is still pending. Used by
`provider.py`.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable

TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""The resolution of a process's start time in the kernel (proc(5), starttime), in ns."""

POLL = 0.01
"""Seconds between looks at the workers during a reload."""

LONGEST_LOAD = 60_000_000_000
"""How long (ns) nginx may take to load a configuration before it counts as one that it did not load, and gets the signal again."""

MASTER, WORKER = b"nginx: master process", b"nginx: worker process"


class Process(NamedTuple):
    """One process: its number and its start, in ticks since boot."""

    pid: int
    start: int


class Running(NamedTuple):
    """The master and its workers that accept new connections."""

    master: Process
    workers: frozenset[Process]

    @property
    def epoch(self) -> str:
        """Identifies this master process; a reload does not change it."""
        return f"{self.master.pid}@{self.master.start}"

    def has_loaded(self, changed: int) -> bool:
        """Whether a file that changed at that wall-clock instant (ns) is loaded, with the resolution of `TICK`."""
        oldest = min((worker.start for worker in self.workers), default=0)
        return (oldest + 1) * TICK + _wall_of_boot() > changed

    def settle(self) -> None:
        """Wait, for some ticks at most, until a file written from now on is newer than the newest worker."""
        newest = max((worker.start for worker in self.workers), default=0)
        missing = (newest + 2) * TICK - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if missing > 0:
            # Start times are in ticks of the kernel's clock: instants to compare must differ by more than one.
            time.sleep(min(missing, 3 * TICK) / 1e9)


def running(target: str, pid_file: str) -> Running:
    """The nginx whose master's process id is in that file.

    Raises:
        Unreachable: it does not run, or its processes cannot be read.
    """
    hint = "start nginx, or set pidFile to the path of its `pid` directive"
    try:
        pid = int(Path(pid_file).read_bytes())
    except FileNotFoundError:
        raise Unreachable(target, f"nginx does not run: there is no {pid_file}", hint) from None
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it holds no number"
        raise Unreachable(target, f"cannot read {pid_file}: {cause}", hint) from None
    start = _start(pid, 0)
    if start is None or not _title(pid).startswith(MASTER):
        raise Unreachable(target, f"nginx does not run: process {pid} of {pid_file} is not a master of nginx", hint)
    return Running(Process(pid, start), frozenset(_workers(pid)))


@dataclass(slots=True)
class Signal:
    """A signal to reload, from before the files are written until the workers that it brings have taken over.

    Attributes:
        pools: the pools whose files are loaded by it.
        before: the master and workers before the signal.
        pending: the latest instant (CLOCK_BOOTTIME, ns) at which the master had not begun to load; 0 = the signal was not sent yet.
        taken: the master has begun to load. What it loads is at least as new as the signal.
    """

    pools: frozenset[str]
    before: Running
    pending: int = 0
    taken: bool = False

    def is_fresh(self) -> bool:
        """Whether it was sent, and nginx may still be loading: the signal was pending less than `LONGEST_LOAD` ago."""
        return self.pending > 0 and time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self.pending < LONGEST_LOAD

    def is_over(self, now: Running) -> bool:
        """Whether only workers that started after this signal accept connections, or another master has replaced this one.

        The workers of a reload that was under way when the signal was sent are too old: nginx starts workers 100 ms before it looks
        at signals again, which is much more than `POLL`.
        """
        if now.master != self.before.master:
            return True
        if not self.pending:
            return False
        if not self.taken:
            at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            if _is_pending(self.before.master.pid):
                self.pending = at
                return False
            self.taken = True
        return bool(now.workers - self.before.workers) and all(
            worker not in self.before.workers and (worker.start + 2) * TICK > self.pending for worker in now.workers
        )


def send(target: str, signal_: Signal) -> None:
    """Signal the master to load its configuration.

    Raises:
        Rejected: no permission to signal the master; no signal was sent.
        OutcomeUnknown: nginx is gone.
    """
    master = signal_.before.master
    try:
        handle = os.pidfd_open(master.pid)
    except OSError as error:
        raise OutcomeUnknown(target, f"the master of nginx is gone: {error.strerror}", "start nginx") from error
    try:
        if _start(master.pid, 0) != master.start:
            raise OutcomeUnknown(target, "another process has replaced the master of nginx", "retried automatically")
        signal_.pending = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        signal.pidfd_send_signal(handle, signal.SIGHUP)
    except PermissionError:
        raise Rejected(target, "this user may not signal nginx's master", "run as the master's user") from None
    except ProcessLookupError:
        raise OutcomeUnknown(target, "the master of nginx is gone", "start nginx") from None
    finally:
        os.close(handle)


def await_workers(target: str, signal_: Signal, pid_file: str, deadline: float) -> Running:
    """Wait until all workers that accept connections were started after the signal.

    Raises:
        OutcomeUnknown: it did not happen before `deadline` (monotonic seconds), or nginx is gone.
    """
    while True:
        try:
            now = running(target, pid_file)
        except ProviderError as error:
            raise OutcomeUnknown(target, f"after the reload: {error.cause}", error.next_step) from error
        if signal_.is_over(now):
            return now
        if time.monotonic() >= deadline:
            old = "old workers go on" if now.workers - signal_.before.workers else "it started no new worker"
            cause = f"master {now.master.pid} got the signal to reload, but {old}"
            raise OutcomeUnknown(target, cause, "check nginx's error log")
        # nginx does not announce new workers; the deadline limits the loop.
        time.sleep(POLL)


def _is_pending(pid: int) -> bool:
    """Whether the signal to reload waits for this process to look at it (proc(5), status). False when it cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith((b"SigPnd:", b"ShdPnd:")) and int(line.split()[1], 16) >> (signal.SIGHUP - 1) & 1:
                return True
    return False


def _wall_of_boot() -> int:
    """The wall-clock instant of the boot (ns), by the present wall clock: its steps move earlier instants.

    The latest of some readings: when the kernel suspends the process between the two clocks, the result is too early.
    """
    return max(time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) for _ in range(3))


def _workers(master: int) -> Iterator[Process]:
    try:
        entries = Path(f"/proc/{master}/task/{master}/children").read_text(encoding="ascii").split()
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        entries = [entry for entry in os.listdir("/proc") if entry.isdecimal()]
    for entry in entries:
        start = _start(int(entry), master)
        # The title of a worker that shuts down says so; it has an old configuration.
        if start is not None and _title(int(entry)).rstrip(b"\0 ") == WORKER:
            yield Process(int(entry), start)


def _start(pid: int, parent: int) -> int | None:
    """When a process started, in ticks; None when it is gone, or not a child of `parent` (0 = any parent)."""
    with suppress(OSError, ValueError, IndexError):
        # The name in parentheses may contain anything, so fields are counted from its end (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if not parent or int(fields[1]) == parent:
            return int(fields[19])
    return None


def _title(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
