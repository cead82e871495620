"""The loop's memory without a disk, with the guarantees of the real store: saved rows survive a kill, and a power cut once they
were synced."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from reconciler.core.model.instant import FOREVER, NEVER, Instant, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows
from reconciler.core.model.ledger_fold import Command
from reconciler.core.model.restart_request import Request
from reconciler.shell.instance_clock import ClockRecord, InstanceClock
from reconciler.shell.store.audit import AuditRow, Event, HoldKey, stored_holds
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.document_changes import apply, changes
from reconciler.shell.store.ports import Document, Rows
from tests.sim.clock import VirtualClock

T = TypeVar("T")


class SimDisk:
    """How long the disk takes for a write, in virtual time.

    Attributes:
        delay: ns of each write; 0 means that it takes no time.
        hangs: writes do not end until it is false again.
        lands: whether a write that is under way when its process is killed is carried out.
        writes, most: writes that took time, and how many were under way at once.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.delay = 0
        self.hangs = self.lands = False
        self.writes = self.most = 0
        self._pending: list[tuple[int, asyncio.Future[None], Callable[[], object]]] = []

    @property
    def takes_time(self) -> bool:
        return self.hangs or self.delay > 0

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    @contextmanager
    def writing(self, change: Callable[[], object]) -> Iterator["asyncio.Future[None]"]:
        """A write under way; its future ends when the disk has it."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending = self._now() + self.delay, answer, change
        self._pending.append(pending)
        self.writes, self.most = self.writes + 1, max(self.most, len(self._pending))
        try:
            yield answer
        finally:
            if pending in self._pending:
                self._pending.remove(pending)

    def next_due(self) -> int:
        """When the next write ends."""
        dues = [due for due, answer, _ in self._pending if not answer.done()]
        return FOREVER if self.hangs else min(dues, default=FOREVER)

    def happen(self) -> None:
        """End the writes that are due."""
        for due, answer, _ in () if self.hangs else tuple(self._pending):
            if due <= self._now() and not answer.done():
                answer.set_result(None)

    def killed(self) -> None:
        """The process of the writes under way is killed: they are carried out, or not."""
        pending, self._pending = self._pending, []
        for _, _, change in pending if self.lands else ():
            with suppress(StoreError):
                change()


class SimMemory:
    """The state on the simulated disk. It outlives processes; each gets its own `handle`, which implements `Memory`, with its hook.

    `ticks` counts the reads of the inbox: one per tick. `wake_holder` wakes the current loop. `clock` is the saved record of the
    instance's clock, `process_clock` that clock in the current process.
    """

    def __init__(self, now: Callable[[], int] = lambda: 0) -> None:
        self.disk = SimDisk(now)
        self.rows: dict[tuple[str, str], str] = {}
        self.journal: dict[int, tuple[str, str]] = {}
        self.begun = 0
        self.inbox: list[tuple[int, Command]] = []
        self.decision = ""
        self.saves = 0
        self.decisions = 0
        self.audit: list[tuple[str, str]] = []
        self.events: list[Event] = []
        self.evidence: list[tuple[str, dict]] = []
        self.full = False
        self.quarantined: list[tuple[str, str, str]] = []
        self.commands_made = 0
        self.ticks = 0
        self.wake_holder: Callable[[], None] = lambda: None
        self.clock: ClockRecord | None = None
        self.process_clock: InstanceClock | None = None
        self._synced = (self.rows, self.inbox, self.clock)

    def begin(self, clock: VirtualClock) -> None:
        """Begin the clock of the instance with that of this host, so that both show the same steady time in its first boot."""
        wall, steady, boot = clock.now()
        self.clock = ClockRecord("a lineage", steady, wall, steady, boot, clock.machine)
        self.sync()

    def handle(self, hook: Callable[[str], None]) -> "SimMemoryHandle":
        """The memory for one loop; `hook` is called at every point where a process may be killed."""
        return SimMemoryHandle(self, hook, self.process_clock or InstanceClock(VirtualClock(), self.clock))

    def unsynced(self) -> bool:
        """Whether rows or commands would not survive a power cut."""
        return (self.rows, self.inbox, self.clock) != self._synced

    def sync(self) -> bool:
        """Make saved rows survive a power cut."""
        before, self._synced = self._synced, (dict(self.rows), list(self.inbox), self.clock)
        return before != self._synced

    def cut(self) -> None:
        """Power cut: go back to the synced state."""
        self.rows, self.inbox, self.clock = dict(self._synced[0]), list(self._synced[1]), self._synced[2]

    def say(
        self,
        verb: str,
        object: str,  # noqa: A002
        until_wall: int = 0,
        value: str = "",
        forced: bool = False,
        at: Instant = NEVER,
    ) -> None:
        """Leave an operator's command, given at this moment of the host."""
        self._append(Command(verb, object, "an operator", "a test", until_wall, value=value, at=at, forced=forced))

    def request(self, name: str, request: Request) -> None:
        """Leave an operator's restart request."""
        self._append(Command("restart", name, request.who, request.reason, request=request))

    def _append(self, command: Command) -> None:
        """A command is on disk before the command line answers, with everything saved before it."""
        self.commands_made += 1
        self.inbox.append((self.commands_made, command))
        self.sync()
        self.wake_holder()

    def ledger(self) -> Ledger:
        """The stored ledger."""
        return from_rows(self.rows)

    @property
    def audit_rows(self) -> list[AuditRow]:
        """The events as the audit has them."""
        return [
            AuditRow(
                event.wall, "", "", "", event.step, event.cause, event.outcome, event.kind, event.object, event.message
            )
            for event in self.events
        ]

    def check_space(self) -> None:
        """Raise as the real store does on a full disk."""
        if self.full:
            raise StoreError("state.db", "no space left on device", "free some space and run again")


class SimMemoryHandle:
    """The handle of one loop."""

    def __init__(self, store: SimMemory, hook: Callable[[str], None], clock: InstanceClock) -> None:
        self.store, self.hook, self.clock = store, hook, clock

    place = "state.db"

    async def _write(self, point: str, change: Callable[[], T]) -> T:
        """Make a change after the time that the disk takes. A process may be killed before, meanwhile and after."""
        self.hook(f"before {point}")
        if not self.store.disk.takes_time:
            return change()
        with self.store.disk.writing(change) as answer:
            await answer
            self.hook(f"in {point}")
            return change()

    async def load_ledger(self) -> dict[tuple[str, str], str]:
        return dict(self.store.rows)

    async def sync(self) -> bool:
        if not self.store.unsynced():
            self.hook("before sync")
            return self.store.sync()

        def change() -> bool:
            self.store.check_space()
            return self.store.sync()

        return await self._write("sync", change)

    async def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        def change() -> int:
            self.store.check_space()
            differ = {*rows.items()} ^ {*self.store.rows.items()}
            self.store.rows = dict(rows)
            self.store.inbox = [entry for entry in self.store.inbox if entry[0] not in acknowledge]
            if differ or acknowledge:
                self.store.clock = self.clock.record()
            self.store.saves += bool(differ)
            return len(differ)

        differ = await self._write("save", change)
        self.hook("after save")
        return differ

    async def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        self.store.check_space()
        for key in keys:
            self.store.quarantined.append((*key, self.store.rows.pop(key)))

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        return ()

    async def check(self) -> bool:
        await self._write("check", self.store.check_space)
        return False

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        def change() -> list[bool]:
            self.store.check_space()
            self.store.sync()
            for done, _, events, *_ in rows:
                self.store.audit.extend((step.id, outcome.kind.value) for step, outcome, _ in done)
                self.store.events.extend(events)
            del self.store.audit[:-1000]
            del self.store.events[:-1000]
            return [self._put_decision(*document) for document in documents]

        return await self._write("report", change)

    def _put_decision(self, document: Mapping[str, Any], ages: Collection[str], all_ages: bool) -> bool:
        before = json.loads(self.store.decision or "{}")
        changed = changes(before, document, ages, all_ages=all_ages)
        apply(before, json.loads(json.dumps(changed)))
        self.store.decision = json.dumps(before)
        self.store.decisions += bool(changed)
        return bool(changed)

    async def commands(self) -> Sequence[tuple[int, Command]]:
        self.store.ticks += 1
        return tuple((number, self._dated(command)) for number, command in self.store.inbox)

    def _dated(self, command: Command) -> Command:
        """The command with its moment in the time of the instance: tests give that of the host."""
        at, request = self.clock.of_instance(command.at), command.request
        if request is not None:
            request = request._replace(at=self.clock.of_instance(request.at))
        return replace(command, at=at, request=request)

    async def close_open_entries(self) -> Sequence[str]:
        left = {number: step for number, (step, outcome) in self.store.journal.items() if not outcome}
        for number, step in left.items():
            self.store.journal[number] = (step, "looked-again")
        return [f"{step}: unknown outcome; observing again" for step in left.values()]

    async def reported_holds(self) -> Mapping[HoldKey, str]:
        return stored_holds(json.loads(self.store.decision)["holds"]) if self.store.decision else {}

    async def put_evidence(self, event: Event, value: str) -> int:
        def change() -> int:
            self.store.check_space()
            self.store.events.append(event)
            self.store.evidence.append((event.object, json.loads(value)))
            return len(self.store.evidence)

        return await self._write("evidence", change)

    async def amend_evidence(self, number: int, value: str) -> None:
        def change() -> None:
            self.store.check_space()
            self.store.evidence[number - 1] = (self.store.evidence[number - 1][0], json.loads(value))

        await self._write("evidence", change)

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
        def change() -> int:
            self.store.check_space()
            self.store.sync()
            self.store.begun += 1
            self.store.journal[self.store.begun] = (step_id, "")
            return self.store.begun

        entry = await self._write("begin", change)
        self.hook("after begin")
        return entry

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        def change() -> None:
            self.store.check_space()
            self.store.sync()
            step, before = self.store.journal[entry]
            assert before in ("", outcome), f"entry {entry} ends twice: {before}, {outcome}"
            self.store.journal[entry] = (step, outcome)
            self.store.journal.pop(entry - 1000, None)

        await self._write("end", change)
        self.hook("after end")
