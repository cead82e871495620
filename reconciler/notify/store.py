"""The file that remembers notices over restarts: `notices.json` in the state directory, mode 0600. Used by the notifier's thread.

It is a file of its own, so that a slow or full disk of the notices never delays the ledger. It is replaced in one step and written only when
something changed.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from reconciler.core.notices import codec
from reconciler.core.notices.codec import Remembered
from reconciler.shell.store.directory import StoreError, open_private, write_durable

FILE = "notices.json"
LARGEST = 64 * 1024 * 1024


class NoticeStore:
    """Reads once, then writes.

    Args:
        state: the state directory, whose lock this process holds.
        note: reports what is wrong with the file, once until it changes.
    """

    def __init__(self, state: Path, note: Callable[[str], None]) -> None:
        self._path, self._note = state / FILE, note
        self._written: Remembered | None = None
        self._problem = ""

    def load(self) -> Remembered:
        """What an earlier process remembered. A file that cannot be read counts as empty, and is replaced by the next write."""
        try:
            self._path.lstat()  # opening a private file would make it
            with os.fdopen(open_private(self._path, os.O_RDONLY), "rb") as file:
                remembered, problems = codec.from_json(json.loads(file.read(LARGEST)))
        except FileNotFoundError:
            return Remembered()
        except (OSError, StoreError, ValueError, RecursionError) as error:
            remembered, problems = Remembered(), [str(error)]
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            self._note(
                f"{self._path} is damaged and is not used as a whole: {problems[0]}{more}; notices may be repeated"
            )
        else:
            self._written = remembered
        return remembered

    def save(self, remembered: Remembered) -> bool:
        """Write it, unless it equals what was written last. False when it could not be written; it is tried with the next call."""
        if remembered == self._written:
            return True
        try:
            write_durable(self._path, json.dumps(codec.to_json(remembered)).encode())
        except StoreError as error:
            problem = f"notices may be repeated after a restart: {error}"
            if problem != self._problem:
                self._note(problem)
            self._problem = problem
            return False
        self._written, self._problem = remembered, ""
        return True
