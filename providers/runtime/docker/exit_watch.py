"""Exits of main processes, reported by the kernel at once; the engine reports them some 40 ms later.

An engine calls a container running until its network is taken down, and an inspection waits for that. Traffic must not wait: a
container whose main process has exited serves no requests. So the process is watched by a pidfd (see pidfd_open(2)), which refers
to this one process even when its pid is reused. Only a process in the container's own control group is watched; in another pid
namespace the engine's pid belongs to another process.

`DockerRuntime.watch` starts it, `observe.py` asks it. Where it cannot watch, the engine reports the exit later: that costs time,
never correctness.
"""

import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

MAX_WATCHED = 256
"""Containers watched at most: each takes a file descriptor, of which a process has 1,024 by default."""

CLOSE_SECONDS = 1.0
"""`close` returns after this time at the latest."""

Process = tuple[str, int]
"""A container's id and the pid of its main process on this host."""


class ExitWatch:
    """Watches main processes until it is closed. `changed` is called on a thread for each exit; it must not raise.

    Raises OSError when no descriptor is free.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._open: dict[Process, int] = {}
        self._exited: set[Process] = set()
        self._closed = False
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wakeup, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="exit watch", daemon=True)
        self._thread.start()

    def watch(self, processes: Iterable[Process]) -> None:
        """Watch exactly these processes from now on."""
        wanted = set(processes)
        with self._lock:
            self._exited &= wanted
            for process in self._open.keys() - wanted:
                os.close(self._open.pop(process))  # this removes it from the epoll set, too
            for process in sorted(wanted - self._open.keys() - self._exited):
                if len(self._open) < MAX_WATCHED and not self._closed and (fd := _pidfd(*process)) >= 0:
                    self._add(process, fd)

    def _add(self, process: Process, fd: int) -> None:
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except OSError:  # the user's limit on watches is reached
            os.close(fd)
            return
        self._open[process] = fd

    def has_exited(self, container: str, pid: int) -> bool:
        """Whether this process was watched and has exited. False proves nothing."""
        with self._lock:
            return (container, pid) in self._exited

    def close(self) -> None:
        """Stop watching and close all descriptors."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.eventfd_write(self._wakeup, 1)
        self._thread.join(CLOSE_SECONDS)
        with self._lock:
            for fd in (*self._open.values(), self._wakeup):
                os.close(fd)
            self._open.clear()
            self._epoll.close()

    def _run(self) -> None:
        while not self._closed:
            self._epoll.poll()
            if self._collect() and not self._closed:
                self._changed()

    def _collect(self) -> bool:
        """Record the exits. Each descriptor is polled again: one that the epoll named may be closed and its number reused."""
        with self._lock:
            exited = [(process, fd) for process, fd in self._open.items() if _has_exited(fd)]
            for process, fd in exited:
                self._exited.add(process)
                del self._open[process]
                os.close(fd)
            return bool(exited)


def _has_exited(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _pidfd(container: str, pid: int) -> int:
    """A pidfd of this process if it belongs to the container; else -1."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has exited, no descriptor is free, or the kernel is too old
        return -1
    with suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
        # Read after the descriptor was opened: as long as that process has not exited, the pid is its own.
        if container in file.read() and not _has_exited(fd):
            return fd
    os.close(fd)
    return -1
