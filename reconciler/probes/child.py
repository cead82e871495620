"""Entry point of the engine's child process: sets the process up and runs the loop until the parent is gone.

A process of its own because a probe thread beside one busy Python thread waits about five milliseconds for the
interpreter at every socket call: a large plan would look like a mass failure. It imports as little as it can (no
pydantic, no asyncio), starts in tens of milliseconds, and holds nothing that must survive: the parent starts another.
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
"""Descriptors kept for everything but network probes: the loop's own, and two for each running command."""

_MOST_SOCKETS = 8192
"""Network probes in flight at most, however many descriptors are allowed."""


def main(fd: int) -> None:
    """Run the loop on the inherited socket `fd`."""
    # A terminal's or service manager's signals reach the whole group or unit: the parent decides when this one ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    waking, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # a handler, so that the wake-up descriptor is written
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    gc.disable()  # nothing here makes cycles at run time, and a collection would be late probes
    os.chdir("/")
    link = Link(socket.socket(fileno=fd))
    loop = Loop(link, waking, _sockets(), _steady)
    gc.freeze()
    loop.run()
    link.sock.close()
    sys.exit(0)


def _steady() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _sockets() -> int:
    """How many sockets may be open at a time, raising the soft limit of descriptors as far as that is useful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_SOCKETS + _RESERVED
    top = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < top:
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
        soft = top
    most = wanted if soft == resource.RLIM_INFINITY else soft
    return max(1, min(_MOST_SOCKETS, most - _RESERVED))
