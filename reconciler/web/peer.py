"""Identifies the peer of a unix socket: the kernel gives its process, and the process's control group gives its container.

So a container can push for itself without a secret, and never for another one. Called by `server.py` for every connection.
"""

import os
import re
import select
import socket
import struct
from typing import NamedTuple

_UCRED = struct.Struct("iII")
_SO_PEERPIDFD = 77
"""Linux 6.5 and newer (include/uapi/asm-generic/socket.h): a descriptor of the peer, which guards against a reused pid."""

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?=$|[/.])")
"""The id in a path of /proc/PID/cgroup: `/docker/ID`, `/system.slice/docker-ID.scope`, `/machine.slice/libpod-ID.scope/container`."""


class Peer(NamedTuple):
    """The connected process (0 = not in our pid namespace), its user, and its container id; empty when it is in none."""

    pid: int
    uid: int
    container: str


def peer_of(connection: socket.socket) -> Peer | None:
    """The peer of a connection; None when it is not a unix socket, or the kernel does not give the peer."""
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
            container = ""  # the pid may have been reused by another process meanwhile
    finally:
        if handle is not None:
            os.close(handle)
    return Peer(pid, uid, container)


def container_in(control_group: str) -> str:
    """The id of the innermost container in the text of a /proc/PID/cgroup; empty when there is none."""
    ids = [id_ for line in control_group.splitlines() for id_ in _CONTAINER.findall(line)]
    return ids[-1] if ids else ""


def _control_group(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="ascii", errors="replace") as file:
            return file.read(16_384)
    except OSError:
        return ""


def _handle(connection: socket.socket) -> int | None:
    """A descriptor of the peer process; None when the kernel lacks it or the process has ended."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return None


def _ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
