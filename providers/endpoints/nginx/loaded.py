"""What the workers of nginx have loaded: the text of each pool's file when it was seen loaded last, and by which workers.

While the same workers accept connections, those texts are in force, also after the files have changed. Stored, so that a kill
between write and reload leaves no pool unknown; losing it only makes such a pool unknown until nginx is reloaded. Used by
`provider.py`.
"""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from providers.endpoints.nginx.process import Process, Running


class _Row(NamedTuple):
    """The text of one pool's file, and the processes that had loaded it."""

    text: str
    master: Process
    workers: frozenset[Process]


class LoadedFiles:
    """The texts by pool. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, _Row] | None = None
        self._lock = threading.Lock()

    def put(self, pool: str, text: str, running: Running) -> None:
        """Remember that these workers have loaded this text."""
        with self._lock:
            self._read()[pool] = _Row(text, running.master, running.workers)

    def text(self, pool: str, running: Running) -> str | None:
        """The text that is in force; None when no worker that is known to have loaded one accepts connections."""
        with self._lock:
            row = self._read().get(pool)
        if row is None or row.master != running.master or not row.workers & running.workers:
            return None
        return row.text

    def save(self) -> None:
        """Store the texts, readable by this user only. A disk that is full or read-only loses them, which harms nothing."""
        with self._lock:
            rows = [[pool, row.text, row.master, sorted(row.workers)] for pool, row in sorted(self._read().items())]
        new = self._path.with_name(f".{self._path.name}.new")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(rows, file)
            new.replace(self._path)

    def _read(self) -> dict[str, _Row]:
        if self._rows is None:
            self._rows = {}
            # A damaged file counts as lost.
            with suppress(OSError, ValueError, TypeError):
                self._rows = {
                    str(pool): _Row(str(text), Process(*master), frozenset(Process(*worker) for worker in workers))
                    for pool, text, master, workers in json.loads(self._path.read_bytes())
                }
        return self._rows
