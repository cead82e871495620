"""A decorator of the loop's memory that counts what is written. So events in the audit and their counters are the same facts."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.step import Step
from reconciler.shell.store.audit import Event
from reconciler.shell.store.ports import Document, Memory, Rows


class Written(Protocol):
    """Takes what was written: `monitoring.py`."""

    def stored(self, table: str, rows: int = 0) -> None:
        """A write of a table of the store, of so many rows of the ledger."""

    def stepped(self, step: Step, outcome: Outcome) -> None:
        """A step is in the audit."""

    def happened(self, event: Event) -> None:
        """An event is in the audit."""


class CountedMemory:
    """The memory `inner`, with every successful write reported to `written`. What a transaction holds counts once it is on the disk."""

    def __init__(self, inner: Memory, written: Written) -> None:
        self._inner, self._written = inner, written

    def __getattr__(self, name: str) -> Any:
        """Everything that writes nothing, or that is not counted."""
        return getattr(self._inner, name)

    async def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store rows of the ledger."""
        changed = await self._inner.save_ledger(rows, acknowledge)
        self._written.stored("ledger", changed)
        return changed

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        """Append to the audit and store decisions."""
        changed = await self._inner.report(rows, documents)
        for done, _, events, _ in rows:
            self._written.stored("audit")
            for step, outcome, _ in done:
                self._written.stepped(step, outcome)
            for event in events:
                self._written.happened(event)
        for _ in filter(None, changed):
            self._written.stored("decision")
        return changed

    async def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence, with its event."""
        number = await self._inner.put_evidence(event, value)
        self._written.stored("evidence")
        self._written.happened(event)
        return number
