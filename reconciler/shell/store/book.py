"""The ledger between the loop and the store: read once, written only where it changed. Called by the loop."""

import logging
from collections.abc import Collection

from reconciler.core.model.ledger import Ledger, from_rows, to_rows
from reconciler.shell.parts import Memory, Reporter


class Book:
    """The rows as they are stored, and the ledger they were made from."""

    def __init__(self, memory: Memory, reporter: Reporter) -> None:
        self._memory, self._reporter = memory, reporter
        self._saved: Ledger | None = None
        self._rows: dict[tuple[str, str], str] = {}

    def load(self) -> Ledger:
        """The stored ledger. Rows that make no sense are as good as lost, and a lost ledger holds what it should count."""
        self._rows = self._memory.load_ledger()
        try:
            self._saved = from_rows(self._rows)
        except (ValueError, TypeError, KeyError) as error:
            self._reporter.note(f"the ledger cannot be read ({error}) and starts anew", level=logging.WARNING)
            self._saved, self._rows = None, {}
        return self._saved or Ledger()

    def save(self, ledger: Ledger, folded: Collection[int]) -> None:
        """Store the ledger, and acknowledge the commands whose effect is in it. Raises StoreError."""
        if ledger is self._saved and not folded:
            return
        self._rows = to_rows(ledger, None if self._saved is None else (self._saved, self._rows))
        self._memory.save_ledger(self._rows, folded)
        self._saved = ledger
