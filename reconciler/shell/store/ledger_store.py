"""The ledger as loaded and saved: the stored rows, and the ledger made from them. Called by the loop."""

import logging
from collections.abc import Collection

from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.ports import Memory


class LedgerStore:
    """Keeps the last saved ledger and its rows, so that a save encodes and writes only differences."""

    def __init__(self, memory: Memory, reporter: Reporter) -> None:
        self._memory, self._reporter = memory, reporter
        self._saved: Ledger | None = None
        self._rows: dict[tuple[str, str], str] = {}

    def load(self) -> Ledger:
        """The stored ledger; an empty one, with a warning, when its rows cannot be decoded."""
        self._rows = self._memory.load_ledger()
        try:
            self._saved = from_rows(self._rows)
        except (ValueError, TypeError, KeyError) as error:
            self._reporter.note(
                f"the ledger cannot be decoded ({error}); starting with an empty ledger", level=logging.WARNING
            )
            self._saved, self._rows = None, {}
        return self._saved or Ledger()

    def save(self, ledger: Ledger, folded: Collection[int]) -> None:
        """Store the ledger and acknowledge the commands that are folded into it. Raises StoreError."""
        if ledger is self._saved and not folded:
            return
        self._rows = to_rows(ledger, None if self._saved is None else (self._saved, self._rows))
        self._memory.save_ledger(self._rows, folded)
        self._saved = ledger
