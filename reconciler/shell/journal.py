"""Sends log records to systemd's journal with their fields, when standard error is connected to it. Used by `logs.py`.

The journal takes a datagram of `NAME=value` lines (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/). `JOURNAL_STREAM` names the socket
that systemd gave the service as standard error (systemd.exec(5)); a program whose output goes elsewhere does not match it.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

SOCKET = Path("/run/systemd/journal/socket")

LONGEST = 48 * 1024
"""The longest value (bytes): a datagram must fit into the socket's buffer (net.core.wmem_default is 208 KiB)."""

PATIENCE = 0.5
"""Seconds that a busy journal may take; then the caller writes the record to standard error."""


def connected(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this descriptor is the stream to the journal that systemd gave the service."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):
        return False


def encoded(fields: Mapping[str, str]) -> bytes:
    """The datagram of a record. A value with a line break has its length before it."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")[:LONGEST]
        if b"\n" in data:
            parts.append(name.encode("ascii") + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            parts.append(name.encode("ascii") + b"=" + data + b"\n")
    return b"".join(parts)


class Journal:
    """A connection to the journal. `send` may be called from any thread."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE)

    def send(self, fields: Mapping[str, str]) -> None:
        """Send one record. Raises OSError when the journal does not take it."""
        self._socket.sendto(encoded(fields), str(self._path))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
