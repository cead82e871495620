"""The ledger as loaded and saved: the stored rows, and the ledger made from them. Called by the loop."""

import logging
from collections.abc import Collection

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import is_migrated, protected, read_rows, to_rows
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.ports import Memory


class LedgerStore:
    """Keeps the last saved ledger and its rows, so that a save encodes and writes only differences."""

    def __init__(self, memory: Memory, reporter: Reporter) -> None:
        self._memory, self._reporter = memory, reporter
        self._saved: Ledger | None = None
        self._rows: dict[tuple[str, str], str] = {}

    async def load(self, now: Now) -> Ledger:
        """The stored ledger. Rows that cannot be decoded are set aside, one by one, and each is reported.

        Raises:
            StoreError: the store cannot be read, or a row cannot be set aside.
        """
        self._rows = await self._memory.load_ledger()
        ledger, undecodable = read_rows(self._rows)
        if undecodable:
            await self._memory.quarantine(undecodable)
            self._rows = {key: text for key, text in self._rows.items() if key not in undecodable}
        if is_migrated(ledger, self._rows):
            self._rows = to_rows(ledger)
        self._saved = ledger
        damaged = {(section, key): cause for section, key, cause in self._memory.damaged()} or undecodable
        for (section, key), cause in damaged.items():
            self._reporter.note(
                f"the ledger's row {section} {key!r} is damaged ({cause}) and is not used; "
                "the table quarantine of state.db keeps a copy",
                level=logging.WARNING,
            )
        safe = protected(ledger, damaged, now) if damaged else ledger
        for key in safe.suspensions.keys() - ledger.suspensions.keys():
            self._reporter.note(
                f"{key}: its suspension is damaged and stays in force; next step: reconcile resume {key}",
                level=logging.WARNING,
            )
        return safe

    async def save(self, ledger: Ledger, folded: Collection[int], force: bool = False) -> None:
        """Store the ledger and acknowledge the commands that are folded into it. Raises StoreError.

        `force`: also when it is the ledger that was saved last, because the store may have lost it, or may have a later one whose save
        ended unseen.
        """
        if ledger is self._saved and not folded and not force:
            return
        rows = to_rows(ledger, None if self._saved is None else (self._saved, self._rows))
        await self._memory.save_ledger(rows, folded)
        self._saved, self._rows = ledger, rows
