"""A memory for a daemon: it waits for the store only so long, and while the store cannot be written, it keeps what may wait.

`PatientMemory` stands between the loop and the store. It makes one call after another. A call that does not end in time makes the
store count as one that cannot be written; no other call begins before that one has ended. What must be on disk before an action
(the ledger, a journal entry) raises `StoreError` then, and the action is not done. What only records the past (outcomes, audit, the
last decision) is kept in memory and written when the store can be written again. The store is not asked before `begin_recovery`.

A call that ends late was carried out or not, and both are handled: a journal entry without its call is closed, a report that is
written is not written twice, and the loop writes the whole ledger again. Made by the loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Command
from reconciler.shell.clock import Clock
from reconciler.shell.store.audit import Event, HoldKey
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import Document, Memory, Rows

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT = 10_000
"""Rows of the audit that are kept while they cannot be written; the oldest are dropped first, and the log says so."""

TICK_WAIT = 2 * SECOND
"""How long (ns) a tick of a daemon waits for a call: weights must not wait longer for a disk. A sync takes ms, on a busy disk up to
some 100 ms."""

STEP_WAIT = 10 * SECOND
"""How long (ns) a step waits for its journal entry. Longer than a tick, so that steps go on with a disk that is slow at every call."""

PATIENT_WAIT = 60 * SECOND
"""How long (ns) a single run, or the start of a daemon, waits for any call: it ends with an error then."""

AT_ONCE = 3
"""Turns of the event loop in which a store that does not wait answers."""

NOT_BEGUN = "skipped"
"""The outcome of a journal entry that was recorded too late for its call."""


class _Report:
    """Rows and a decision that belong to one transaction."""

    def __init__(self, rows: Sequence[Rows], documents: Sequence[Document]) -> None:
        self.rows, self.documents = tuple(rows), tuple(documents)
        self.size = sum(row.size for row in rows)


class PatientMemory:
    """Implements `Memory` over another one.

    Attributes:
        error: why the store cannot be written; None while it can.
        late: the call that `error` is about has not ended yet.
        stays: of a daemon, which goes on without the store. A single run waits longer.
    """

    def __init__(self, memory: Memory, clock: Clock) -> None:
        self._memory, self._clock = memory, clock
        self.error: StoreError | None = None
        self.late = self.stays = False
        self._turn = asyncio.Lock()
        self._calls: set[asyncio.Task[object]] = set()
        self._ended: list[tuple[int, str, str]] = []
        self._reports: deque[_Report] = deque()
        self._kept = self._dropped = 0
        self._unclosed = False
        self._recovery: asyncio.Task[None] | None = None

    @property
    def place(self) -> str:
        """What the store is, in messages."""
        return self._memory.place

    # --- one call after another, each with a deadline ----------------------------------------------------------------

    async def _ask(self, call: Callable[[], Awaitable[T]], wait: int, late: Callable[[T], None] = lambda _: None) -> T:
        """Make a call in its turn. `late` gets the result of a call that ended after `wait` (ns) with success.

        Raises:
            StoreError: it failed, or did not end in time; then it may have been carried out.
        """
        self._usable()
        begun = given_up = False

        async def in_turn() -> T:
            nonlocal begun
            async with self._turn:
                if given_up:
                    raise asyncio.CancelledError
                self._usable()
                begun = True
                result = await call()
                if given_up:
                    late(result)
                return result

        task = asyncio.create_task(in_turn())
        self._calls.add(task)
        task.add_done_callback(self._call_ended)
        limit = wait if self.stays else PATIENT_WAIT
        try:
            await self._wait_for(task, limit)
        finally:
            if not task.done():
                given_up = True  # what has not begun never begins, and what has begun ends by itself
        if given_up:
            self.late = True
            self.error = self.error or self._slow(limit)
            raise self.error
        try:
            return task.result()
        except StoreError as error:
            self.error = self.error or error
            raise

    def _call_ended(self, task: asyncio.Task[object]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # a late one is not awaited any more

    async def _wait_for(self, task: asyncio.Task[T], wait: int) -> None:
        for _ in range(AT_ONCE):
            await asyncio.sleep(0)
            if task.done():
                return
        done = asyncio.Event()
        task.add_done_callback(lambda _: done.set())
        await self._clock.sleep_until(self._clock.now().steady + wait, done)

    def _slow(self, wait: int) -> StoreError:
        return StoreError(
            self.place,
            f"it has not answered for {wait // SECOND}s",
            f"check the disk and its file system, and what has the file open: fuser -v {self.place}",
        )

    def _usable(self) -> None:
        if self.error is not None:
            raise self.error

    # --- recovery --------------------------------------------------------------------------------------------------

    def begin_recovery(self, ended: Callable[[], None]) -> None:
        """Begin to try whether the store can be written again, once the call under way has ended. `ended` is called after it."""
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._recover())
            self._recovery.add_done_callback(lambda _: ended())

    def recovered(self) -> bool | None:
        """Whether the recovery succeeded; None while there is none that has ended. The ledger is the caller's next write.

        Raises:
            Locked: another process holds the instance now: the lock is lost.
        """
        if self._recovery is None or not self._recovery.done():
            return None
        recovery, self._recovery = self._recovery, None
        self.late = False
        try:
            recovery.result()
        except StoreError as error:
            self.error = error
            return False
        self.error = None
        return True

    async def _recover(self) -> None:
        """Write something as a try, then the outcomes of the journal. It has no deadline: no other call waits for it."""
        async with self._turn:
            if await self._memory.check():
                self._ended.clear()  # the store is a new one: it has no such entries
            if self._unclosed:
                for message in await self._memory.close_open_entries():
                    log.warning("%s", message)
                self._unclosed = False
            while self._ended:
                await self._memory.end(*self._ended[0])
                del self._ended[0]

    async def write_kept(self) -> None:
        """Write what was kept, once the ledger is written."""
        ended, self._ended = self._ended, []
        for entry in ended:
            await self.end(*entry)
        if self.error is not None or not self._reports:
            return
        if self._dropped:
            log.warning("%d audit rows are lost: they could not be written for too long", self._dropped)
            self._dropped = 0
        reports = tuple(self._reports)
        rows = [row for report in reports for row in report.rows]
        documents = [document for report in reports for document in report.documents]
        with suppress(StoreError):
            write = partial(self._memory.report, rows, documents)
            await self._ask(write, TICK_WAIT, lambda _: self._forget(reports))
            self._forget(reports)

    async def close(self) -> None:
        """End the recovery and what has not begun, at the end of a run."""
        tasks = {task for task in (self._recovery, *self._calls) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- at the start ----------------------------------------------------------------------------------------------

    async def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger. Raises StoreError."""
        return await self._ask(self._memory.load_ledger, PATIENT_WAIT)

    async def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Set rows aside that cannot be decoded. Raises StoreError."""
        await self._ask(partial(self._memory.quarantine, keys), PATIENT_WAIT)

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """The rows that were set aside when the ledger was loaded."""
        return self._memory.damaged()

    async def reported_holds(self) -> Mapping[HoldKey, str]:
        """The holds that an earlier process reported last."""
        with suppress(StoreError):
            return await self._ask(self._memory.reported_holds, PATIENT_WAIT)
        return {}

    async def close_open_entries(self) -> Sequence[str]:
        """Close the journal entries that an earlier process left open, now or before anything else is written."""
        try:
            return await self._ask(self._memory.close_open_entries, PATIENT_WAIT)
        except StoreError:
            self._unclosed = True
            return ()

    # --- what must be on disk before an action ---------------------------------------------------------------------

    async def check(self) -> bool:
        """Whether the store had to be made again. Raises StoreError while it cannot be written."""
        return await self._ask(self._memory.check, PATIENT_WAIT)

    async def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ. Raises StoreError."""
        return await self._ask(partial(self._memory.save_ledger, rows, acknowledge), TICK_WAIT)

    async def sync(self) -> bool:
        """Wait until the ledger is on disk. Raises StoreError."""
        return await self._ask(self._memory.sync, TICK_WAIT)

    async def begin(
        self,
        step_id: str,
        object: str,  # noqa: A002
        action: str,
        generation: str,
        cause: str,
        now: Now,
        origin: str = "",
    ) -> int:
        """Record durably that a call is about to be made. Raises StoreError; an entry that is recorded later is closed then."""
        call = partial(self._memory.begin, step_id, object, action, generation, cause, now, origin)
        return await self._ask(call, STEP_WAIT, self._close_late)

    def _close_late(self, entry: int) -> None:
        self._ended.append((entry, NOT_BEGUN, "it was recorded too late, so the call was not made"))

    # --- what may wait ---------------------------------------------------------------------------------------------

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of the call, now or later. Until then the entry is open: after a crash the target is observed again."""
        try:
            await self._ask(partial(self._memory.end, entry, outcome, detail), TICK_WAIT)
        except StoreError:
            self._ended.append((entry, outcome, detail))

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        """Append to the audit and store decisions, now or later. Returns of each whether it changed; nothing when that comes later."""
        report = _Report(rows, documents)
        write = partial(self._memory.report, report.rows, report.documents)
        try:
            return await self._ask(write, TICK_WAIT, lambda _: self._forget((report,)))
        except StoreError:
            self._keep(report)
            return ()

    def _keep(self, report: _Report) -> None:
        for earlier in self._reports if report.documents else ():
            earlier.documents = ()  # the last decision is enough
        self._reports.append(report)
        self._kept += report.size
        while self._kept > KEPT and len(self._reports) > 1:
            oldest = self._reports.popleft()
            self._reports[0].documents = self._reports[0].documents or oldest.documents
            self._kept -= oldest.size
            self._dropped += oldest.size

    def _forget(self, reports: Sequence[_Report]) -> None:
        """These are written."""
        written = set(map(id, reports))
        self._reports = deque(report for report in self._reports if id(report) not in written)
        self._kept = sum(report.size for report in self._reports)

    async def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence of a replica. Raises StoreError."""
        return await self._ask(partial(self._memory.put_evidence, event, value), TICK_WAIT)

    async def amend_evidence(self, number: int, value: str) -> None:
        """Replace the evidence. Raises StoreError."""
        await self._ask(partial(self._memory.amend_evidence, number, value), TICK_WAIT)

    async def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet; none while the store cannot be written, so none is acknowledged either."""
        with suppress(StoreError):
            return await self._ask(self._memory.commands, TICK_WAIT)
        return ()
