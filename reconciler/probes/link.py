"""The child's end of the socket pair: receives changes of targets and sends batches of results, without blocking. Used by `loop.py`.

A parent that does not read delays only batches. The newest state of each target waits here (at most one entry per target)
while probing goes on.
"""

import socket
from typing import Any

from reconciler.probes.messages import Inbox, Stats, encode

MAX_BATCH = 4096
"""Most results in one batch: its encoding takes at most a few milliseconds."""

_READ = 256 * 1024

Row = tuple[int, int, int, int, int, int, int, str]
"""One target's newest state: id, value, last, run, count, since (see `Streak`), instant of the result, detail."""


class Link:
    """Framed messages over a non-blocking stream socket. `closed` is True once the parent has ended."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = False
        self.rows: dict[int, Row] = {}
        self._inbox = Inbox()
        self._unsent = memoryview(b"")

    def receive(self) -> bool:
        """Read all data from the parent, for `next`; False when there was none."""
        received = False
        while not self.closed:
            try:
                data = self.sock.recv(_READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._inbox.feed(data)
            received = True
        return received

    def next(self) -> tuple[Any, ...] | None:
        """The next complete message."""
        return self._inbox.next()

    @property
    def free(self) -> bool:
        """Whether the previous batch has been sent, so that the next one can follow."""
        return not self._unsent

    def send(self, now: int, stats: Stats | None) -> None:
        """Send the waiting rows (up to MAX_BATCH) as one batch made at `now`. Call only when `free`."""
        if len(self.rows) <= MAX_BATCH:
            rows = list(self.rows.values())
            self.rows.clear()
        else:
            first = list(self.rows)[:MAX_BATCH]
            rows = [self.rows.pop(key) for key in first]
        self._unsent = memoryview(encode((now, rows, None if stats is None else tuple(stats))))
        self.flush()

    def flush(self) -> None:
        """Send more of the batch that did not fit into the socket."""
        while self._unsent:
            try:
                sent = self.sock.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            self._unsent = self._unsent[sent:]
