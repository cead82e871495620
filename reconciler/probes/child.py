"""Entry point of the engine's child process: prepares the process and runs the loop until the parent ends. Started by `engine.py`.

Probes run in a process of their own because a thread beside one busy Python thread waits about five milliseconds for the
interpreter at every socket call: a large plan would look like a mass failure. The child imports little (no pydantic, no
asyncio), starts in tens of milliseconds, and holds no state that must survive: the parent can start another.
"""

import gc
import os
import resource
import signal
import socket
import sys
import time

from reconciler.probes.link import Link
from reconciler.probes.loop import Loop

_RESERVED = 64
"""Descriptors reserved for everything but network probes: the loop's own, and two for each running command."""

_MAX_SOCKETS = 8192
"""Most network probes at a time, however many descriptors are allowed."""


def main(fd: int) -> None:
    """Run the loop on the inherited socket `fd`."""
    # A terminal or service manager signals the whole group or unit, but the parent decides when this process ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(
        signal.SIGCHLD, lambda _number, _frame: None
    )  # only a handled signal writes to the wake-up descriptor
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    gc.disable()  # the loop creates no reference cycles, and a collection would delay probes
    os.chdir("/")
    link = Link(socket.socket(fileno=fd))
    loop = Loop(link, wake_read, _max_sockets(), _steady)
    gc.freeze()
    loop.run()
    link.sock.close()
    sys.exit(0)


def _steady() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _max_sockets() -> int:
    """How many sockets may be open at a time. Raises the soft limit of descriptors as far as that is useful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_SOCKETS + _RESERVED
    top = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < top:
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
        soft = top
    limit = wanted if soft == resource.RLIM_INFINITY else soft
    return max(1, min(_MAX_SOCKETS, limit - _RESERVED))
