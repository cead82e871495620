"""A decorator of the loop's memory that counts what is written. So events in the audit and their counters are the same facts."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.step import Step
from reconciler.shell.store.audit import Event
from reconciler.shell.store.ports import Memory


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
        self._uncounted: list[Callable[[], None]] | None = None

    def __getattr__(self, name: str) -> Any:
        """Everything that writes nothing, or that is not counted."""
        return getattr(self._inner, name)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of all writes in the body."""
        counts = self._uncounted = []
        try:
            with self._inner.together():
                yield
        finally:
            self._uncounted = None
        for count in counts:
            count()

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store rows of the ledger."""
        changed = self._inner.save_ledger(rows, acknowledge)
        self._count(partial(self._written.stored, "ledger", changed))
        return changed

    def put_decision(self, document: Mapping[str, Any], ages: Collection[str] = (), *, all_ages: bool = False) -> bool:
        """Store what changed in the last decision."""
        changed = self._inner.put_decision(document, ages, all_ages=all_ages)
        if changed:
            self._count(partial(self._written.stored, "decision"))
        return changed

    def append_audit(
        self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()
    ) -> None:
        """Append to the audit."""
        taken, happened = tuple(done), tuple(events)
        self._inner.append_audit(taken, revision, happened)
        self._count(partial(self._written.stored, "audit"))
        for step, outcome, _ in taken:
            self._count(partial(self._written.stepped, step, outcome))
        for event in happened:
            self._count(partial(self._written.happened, event))

    def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence, with its event."""
        number = self._inner.put_evidence(event, value)
        self._count(partial(self._written.stored, "evidence"))
        self._count(partial(self._written.happened, event))
        return number

    def _count(self, count: Callable[[], None]) -> None:
        if self._uncounted is None:
            count()
        else:
            self._uncounted.append(count)
