"""Who is at the other end of a unix socket: the kernel says which process, and its control group says which container.

So a container can speak for itself without any secret, and never for another. Called by `web/server.py` for every connection.
"""

import os
import re
import select
import socket
import struct
from typing import NamedTuple

_UCRED = struct.Struct("iII")
_SO_PEERPIDFD = 77
"""Linux 6.5 and newer (include/uapi/asm-generic/socket.h): a handle on the peer, so that a number used again cannot deceive."""

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?=$|[/.])")
"""The id in a path of /proc/PID/cgroup: `/docker/ID`, `/system.slice/docker-ID.scope`, `/machine.slice/libpod-ID.scope/container`."""


class Peer(NamedTuple):
    """The process that connected (0 = not of our pid namespace), its user, and its container; empty for none."""

    pid: int
    uid: int
    container: str


def peer_of(connection: socket.socket) -> Peer | None:
    """Who connected; None when this is no unix socket, or the kernel does not say."""
    if connection.family != socket.AF_UNIX:
        return None
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    except OSError:
        return None
    pid, uid, _ = _UCRED.unpack(raw)
    if pid <= 0:
        return Peer(0, uid, "")
    handle = _handle(connection)
    try:
        container = container_in(_control_group(pid))
        if handle is not None and _ended(handle):
            container = ""  # what was read may be of another process that has got the number since
    finally:
        if handle is not None:
            os.close(handle)
    return Peer(pid, uid, container)


def container_in(control_group: str) -> str:
    """The container's id in the text of a /proc/PID/cgroup; the innermost one; empty when it names none."""
    found = [one for line in control_group.splitlines() for one in _CONTAINER.findall(line)]
    return found[-1] if found else ""


def _control_group(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="ascii", errors="replace") as file:
            return file.read(16_384)
    except OSError:
        return ""


def _handle(connection: socket.socket) -> int | None:
    """A descriptor of the peer process; None on kernels that do not have it, or when the process has ended."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return None


def _ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
