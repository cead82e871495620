"""A memory for a daemon: while the store cannot be written, it keeps what may wait, and says why.

`PatientMemory` stands between the loop and the store. What must be on disk before an action (the ledger, a journal entry) still raises
`StoreError`, and the action is not done. What only records the past (outcomes, audit, the last decision) is kept in memory and written
when the store can be written again. The store is then not asked before `recover`. Made by the loop of a daemon.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Command, Outcome
from reconciler.core.model.step import Step
from reconciler.shell.store.audit import Event, HoldKey
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import Memory

log = logging.getLogger(__name__)

KEPT = 10_000
"""Rows of the audit that are kept while they cannot be written; the oldest are dropped first, and the log says so."""

_Rows = tuple[Sequence[tuple[Step, Outcome, Now]], str, Sequence[Event]]


class PatientMemory:
    """Implements `Memory` over another one.

    Attributes:
        error: why the store cannot be written; None while it can.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.error: StoreError | None = None
        self._ended: list[tuple[int, str, str]] = []
        self._rows: deque[_Rows] = deque()
        self._kept = 0
        self._dropped = 0
        self._decision: tuple[Mapping[str, Any], Collection[str], bool] | None = None
        self._group: list[tuple[Callable[[], object], Callable[[], None]]] | None = None
        self._unclosed = False

    def recover(self) -> bool:
        """Try to write again, outcomes of the journal first. Whether the store can be written; the ledger is the caller's next write.

        Raises:
            Locked: another process holds the instance now: the lock is lost.
        """
        try:
            if self._memory.check():
                self._ended.clear()  # the store is a new one: it has no such entries
            if self._unclosed:
                for message in self._memory.close_open_entries():
                    log.warning("%s", message)
                self._unclosed = False
            while self._ended:
                self._memory.end(*self._ended[0])
                del self._ended[0]
        except StoreError as error:
            self.error = error
            return False
        self.error = None
        return True

    def write_kept(self) -> None:
        """Write what was kept, once the ledger is written."""
        if self.error is not None:
            return
        if self._dropped:
            log.warning("%d audit rows are lost: they could not be written for too long", self._dropped)
            self._dropped = 0
        try:
            while self._rows:
                done, revision, events = self._rows[0]
                self._memory.append_audit(done, revision, events)
                self._kept -= len(done) + len(events)
                self._rows.popleft()
            if self._decision is not None:
                document, ages, all_ages = self._decision
                self._memory.put_decision(document, ages, all_ages=all_ages)
                self._decision = None
        except StoreError as error:
            self.error = error

    def _usable(self) -> None:
        if self.error is not None:
            raise self.error

    # --- what must be on disk before an action ---------------------------------------------------------------------

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""
        return self._memory.load_ledger()

    def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Set rows aside that cannot be decoded."""
        self._memory.quarantine(keys)

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """The rows that were set aside when the ledger was loaded."""
        return self._memory.damaged()

    def check(self) -> bool:
        """Whether the store had to be made again. Raises StoreError while it cannot be written."""
        return self._memory.check()

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ. Raises StoreError."""
        self._usable()
        try:
            return self._memory.save_ledger(rows, acknowledge)
        except StoreError as error:
            self.error = error
            raise

    def sync(self) -> bool:
        """Wait until the ledger is on disk. Raises StoreError."""
        self._usable()
        try:
            return self._memory.sync()
        except StoreError as error:
            self.error = error
            raise

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        """Record durably that a call is about to be made. Raises StoreError."""
        self._usable()
        try:
            return self._memory.begin(step_id, object, action, generation, cause, now)
        except StoreError as error:
            self.error = error
            raise

    # --- what may wait ---------------------------------------------------------------------------------------------

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of the call, now or later. Until then the entry is open: after a crash the target is observed again."""
        if self.error is None:
            try:
                self._memory.end(entry, outcome, detail)
                return
            except StoreError as error:
                self.error = error
        self._ended.append((entry, outcome, detail))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of the reports in the body, now or later."""
        group = self._group = []
        try:
            yield
        finally:
            self._group = None
        self._report(group)

    def _report(self, group: list[tuple[Callable[[], object], Callable[[], None]]]) -> None:
        """Write reports in one transaction; keep them while they cannot be written. Each is what writes it, and what keeps it."""
        if not group:
            return
        if self.error is None:
            try:
                with self._memory.together():
                    for write, _ in group:
                        write()
                return
            except StoreError as error:
                self.error = error
        for _, keep in group:
            keep()

    def put_decision(self, document: Mapping[str, Any], ages: Collection[str] = (), *, all_ages: bool = False) -> bool:
        """Store what changed in the last decision, now or later. Returns True: whether something changed is known later."""

        def keep() -> None:
            self._decision = document, ages, all_ages

        report = partial(self._memory.put_decision, document, ages, all_ages=all_ages), keep
        if self._group is not None:
            self._group.append(report)
        else:
            self._report([report])
        return True

    def append_audit(
        self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()
    ) -> None:
        """Append steps and events to the audit, now or later."""
        rows = tuple(done), revision, tuple(events)
        report = partial(self._memory.append_audit, *rows), partial(self._keep, rows)
        if self._group is not None:
            self._group.append(report)
        else:
            self._report([report])

    def _keep(self, rows: _Rows) -> None:
        self._rows.append(rows)
        self._kept += len(rows[0]) + len(rows[2])
        while self._kept > KEPT and len(self._rows) > 1:
            old, _, older = self._rows.popleft()
            self._kept -= len(old) + len(older)
            self._dropped += len(old) + len(older)

    def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence of a replica. Raises StoreError."""
        self._usable()
        try:
            return self._memory.put_evidence(event, value)
        except StoreError as error:
            self.error = error
            raise

    def amend_evidence(self, number: int, value: str) -> None:
        """Replace the evidence. Raises StoreError."""
        self._usable()
        try:
            self._memory.amend_evidence(number, value)
        except StoreError as error:
            self.error = error
            raise

    def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet; none while the store cannot be written, so none is acknowledged either."""
        if self.error is None:
            try:
                return self._memory.commands()
            except StoreError as error:
                self.error = error
        return ()

    def close_open_entries(self) -> Sequence[str]:
        """Close the journal entries that an earlier process left open, now or before anything else is written."""
        try:
            return self._memory.close_open_entries()
        except StoreError as error:
            self.error, self._unclosed = error, True
            return ()

    def reported_holds(self) -> Mapping[HoldKey, str]:
        """The holds that an earlier process reported last."""
        with suppress(StoreError):
            return self._memory.reported_holds()
        return {}
