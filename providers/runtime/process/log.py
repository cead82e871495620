"""The output of a replica: two files of half the limit each, so that the newest part is always kept.

`shim.py` writes them, `runtime.py` and `start.py` read their last lines. The shim's bare interpreter imports this module: import
little here.
"""

import os

from providers.runtime.process.shim_protocol import LOG, OLD_LOG, read_file

LIMIT = 1 << 20
"""Bytes of output kept per replica, in both files together."""

CHUNK = 65536
"""Bytes copied at once: the default capacity of a pipe, see pipe(7)."""


class LogWriter:
    """Appends to the log in the current directory. Never raises and never blocks for long: output is lost when the disk is full."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append; rotate the file before it exceeds half the limit."""
        try:
            if self._fd < 0:
                self._open()
            if self._size + len(data) > LIMIT // 2:
                os.rename(LOG, OLD_LOG)
                self._open()
            self._size += os.write(self._fd, data)
        except OSError:  # full disk, deleted directory: losing output is better than blocking the application
            return

    def _open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._fd = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._fd).st_size

    def pump(self, source: int) -> bool:
        """Copy one chunk from a non-blocking pipe; False when it is empty or the last writer has closed it."""
        try:
            data = os.read(source, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.write(data)
        return bool(data)


def tail(directory: str, lines: int) -> tuple[str, ...]:
    """The last `lines` lines in the log of the replica with this directory, oldest first. Raises OSError."""
    if lines <= 0:
        return ()
    newest: list[bytes] = []
    for name in (LOG, OLD_LOG):
        older = (read_file(f"{directory}/{name}") or b"").splitlines()
        newest = older[len(older) - min(len(older), lines - len(newest)) :] + newest
        if len(newest) >= lines:
            break
    return tuple(line.decode(errors="replace") for line in newest)
