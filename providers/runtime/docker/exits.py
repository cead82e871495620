"""Ends of containers, told by the kernel: it knows at once when a main process is gone, the engine some 40 ms later.

An engine goes on calling a container running until its network is taken down, and an inspection waits for that. Traffic
should not: a container whose main process has ended serves nobody. So the process is watched by a pidfd (see pidfd_open(2)),
which stands for this one process however often its number is used again. Only a process that is in the container's own control
group is watched; in another pid namespace the engine's number is somebody else's.

Made by `DockerRuntime.watch`, asked by `docker_look.py`. Where nothing can be watched, the engine's word comes later: that costs
time, never correctness.
"""

import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

MOST = 256
"""Containers that are watched, at most: each takes a file descriptor, of which a process has 1,024 by default."""

CLOSE_SECONDS = 1.0
"""`close` returns after this long, whatever hangs."""

Process = tuple[str, int]
"""A container's id and the pid of its main process on this host."""


class Ends:
    """The ends of main processes, until it is closed. `changed` is called on a thread for each; it must not raise.

    Raises OSError when no descriptor is free.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._open: dict[Process, int] = {}
        self._ended: set[Process] = set()
        self._closed = False
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="engine ends", daemon=True)
        self._thread.start()

    def watch(self, processes: Iterable[Process]) -> None:
        """Watch these processes from now on, and no others."""
        wanted = set(processes)
        with self._lock:
            self._ended &= wanted
            for one in self._open.keys() - wanted:
                os.close(self._open.pop(one))  # which takes it out of the epoll set, too
            for one in sorted(wanted - self._open.keys() - self._ended):
                if len(self._open) < MOST and not self._closed and (fd := _pidfd(*one)) >= 0:
                    self._add(one, fd)

    def _add(self, process: Process, fd: int) -> None:
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except OSError:  # the user may have no more watches
            os.close(fd)
            return
        self._open[process] = fd

    def has(self, container: str, pid: int) -> bool:
        """Whether this process was watched and has ended. False says nothing."""
        with self._lock:
            return (container, pid) in self._ended

    def close(self) -> None:
        """Stop watching, and let go of all descriptors."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.eventfd_write(self._bell, 1)
        self._thread.join(CLOSE_SECONDS)
        with self._lock:
            for fd in (*self._open.values(), self._bell):
                os.close(fd)
            self._open.clear()
            self._epoll.close()

    def _run(self) -> None:
        while not self._closed:
            self._epoll.poll()
            if self._take() and not self._closed:
                self._changed()

    def _take(self) -> bool:
        """Note who has ended. Each is asked anew: what the poll named may have been closed, and its number used again."""
        with self._lock:
            gone = [(one, fd) for one, fd in self._open.items() if _is_over(fd)]
            for one, fd in gone:
                self._ended.add(one)
                del self._open[one]
                os.close(fd)
            return bool(gone)


def _is_over(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _pidfd(container: str, pid: int) -> int:
    """A descriptor of the process with this number, if it is one of the container's; else -1."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has gone, no descriptor is free, or the kernel is too old
        return -1
    with suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
        # Read after the descriptor was opened: as long as that has not ended, the number is still its own.
        if container in file.read() and not _is_over(fd):
            return fd
    os.close(fd)
    return -1
