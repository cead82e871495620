"""The output of a replica: two files of half the limit each, so that the newest part is always kept.

The shim writes them, the provider reads the end of them for people. Imported in the shim's bare interpreter: keep it light.
"""

import os

from providers.runtime.process.shim_protocol import LOG, OLD_LOG, read_file

LIMIT = 1 << 20
"""How many bytes of output are kept per replica, in both files together."""

CHUNK = 65536
"""How much is copied at once: what a pipe holds by default, see pipe(7)."""


class LogWriter:
    """Appends to the log in the current directory. Never raises and never blocks for long: a full disk loses output."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append, moving on to a new file when this one would pass half the limit."""
        try:
            if self._fd < 0:
                self._open()
            if self._size + len(data) > LIMIT // 2:
                os.rename(LOG, OLD_LOG)
                self._open()
            self._size += os.write(self._fd, data)
        except OSError:  # full disk, deleted directory: losing output is better than holding up the application
            return

    def _open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._fd = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._fd).st_size

    def pump(self, source: int) -> bool:
        """Copy one chunk from a non-blocking pipe; False when there was nothing or the last writer has closed it."""
        try:
            data = os.read(source, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.write(data)
        return bool(data)


def tail(directory: str, lines: int) -> tuple[str, ...]:
    """The last `lines` lines in the log of the replica that lives in `directory`, oldest first. Raises OSError."""
    if lines <= 0:
        return ()
    found: list[bytes] = []
    for name in (LOG, OLD_LOG):
        older = (read_file(f"{directory}/{name}") or b"").splitlines()
        found = older[len(older) - min(len(older), lines - len(found)) :] + found
        if len(found) >= lines:
            break
    return tuple(line.decode(errors="replace") for line in found)
