"""Limits of the kernel for the command of an exec probe, so that a mistaken or hostile probe does not take the host. Used by `exec.py`.

The command has the rights of the probing process: no limit here is about what it may read or change. The number of processes has no
limit here, because the kernel counts them by user, together with the replicas; a service manager limits it (`TasksMax=`). The
values leave room for every honest probe: a JVM reserves a quarter of the memory at most, and reserved memory does not count.
"""

import math
import os
import resource
from contextlib import suppress

FILE_OCTETS = 1 << 30
"""Size of one file that a command writes."""

DESCRIPTORS = (1024, 4096)
"""Soft and hard limit of open files: the usual soft limit, whatever the probing process has for its own sockets."""

LEAST_MEMORY = 1 << 30
"""Octets of private memory that each process may have at least; on larger hosts it is half of the host's memory."""

CPU_RESERVE = 10
"""Seconds of processor time above the time-out on all processors: a limit for what outlives its prober, not for the probe itself."""


def memory() -> int:
    """Octets of private writable memory that one process of a command may have."""
    return max(LEAST_MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def confine(pid: int, timeout: int) -> None:
    """Limit a command that was just started, and all processes that it starts; `timeout` in ns.

    A program that changes its user at once (`sudo`) may only be limited by root, and keeps the limits of this process.
    """
    seconds = math.ceil(timeout / 1e9) * (os.cpu_count() or 1) + CPU_RESERVE
    for name, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, seconds, seconds + CPU_RESERVE),
        (resource.RLIMIT_DATA, memory(), memory()),
        (resource.RLIMIT_FSIZE, FILE_OCTETS, FILE_OCTETS),
        (resource.RLIMIT_NOFILE, *DESCRIPTORS),
    ):
        with suppress(OSError):  # it has ended already, or is another user's
            present = resource.prlimit(pid, name)
            resource.prlimit(pid, name, (_lower(soft, present[0]), _lower(hard, present[1])))


def _lower(wanted: int, present: int) -> int:
    return wanted if present == resource.RLIM_INFINITY else min(wanted, present)
