"""Which process of the engine serves its socket, and since when. Called by `client.py` and `observe.py`.

Facts that one daemon process proved do not hold for the next one: it may be another engine, or may have restarted containers.
"""

import socket
import struct
from typing import NamedTuple

from providers.runtime.docker.timestamps import process_start

PID_FILE = "/run/docker.pid"
"""Where Debian's and Docker's packages let the daemon write its pid; read when systemd holds the socket."""


class Daemon(NamedTuple):
    """One daemon process: its pid and steady start; (0, 0) when they cannot be found out."""

    pid: int = 0
    started: int = 0


def find_daemon(path: str, timeout: float) -> Daemon:
    """The daemon that serves a socket. Raises OSError when no process listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(path)
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    if pid == 1:  # systemd made the socket before the daemon started
        pid = _pid_from_file()
    started = process_start(pid) if pid > 0 else 0
    return Daemon(pid, started) if started else Daemon()


def _pid_from_file() -> int:
    try:
        with open(PID_FILE, encoding="ascii") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return 0
