"""The port `Memory` over the store: ledger, journal, inbox, audit and evidence of one instance, in types of the core.

`BlockingMemory` is for the process that holds the lock, before its loop runs. `StoreMemory` makes the calls of the loop on the store's
own thread. `ReadOnlyMemory` is for plans, and writes nothing. Made by `wire.py`.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from reconciler.core.drift.why import why_text
from reconciler.core.model.instant import Instant, Now, instant
from reconciler.core.model.ledger_fold import Command, Outcome
from reconciler.core.model.restart_request import FailurePolicy, Request
from reconciler.core.model.step import Step
from reconciler.shell.instance_clock import InstanceClock
from reconciler.shell.store.audit import Event, HoldKey, stored_holds
from reconciler.shell.store.database_file import Replaced
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import Document, Rows
from reconciler.shell.store.state_db import AuditRow, InboxCommand, Store
from reconciler.shell.store.thread import Calls, NoThread, StoreThread

T = TypeVar("T")

LOOKED_AGAIN = "looked-again"
"""The outcome of a call whose process died before the call ended: the next look shows whether it was carried out."""


_DAMAGED = "\ufffd"
"""In place of bytes that are no text any more."""


def command_of(stored: InboxCommand, clock: InstanceClock) -> Command:
    """The core's command for a row of the inbox. An invalid payload becomes a command `unreadable` without an object.

    `clock`: of the instance. The process that gave the command noted its moment by the clocks of its host.
    """
    if _DAMAGED in stored.payload:
        return Command("unreadable", "", stored.who)
    try:
        raw, at = json.loads(stored.payload), clock.of_instance(instant(stored.at))
        request = _request(raw, stored.who, at) if stored.command == "restart" else None
        obj = str(raw["id"] if request is not None else raw["object"])
        until, probes = int(raw.get("until_wall", 0) or 0), raw.get("probes") is True
        reason, value = str(raw.get("reason", "")), str(raw.get("value", ""))
        forced = raw.get("forced") is True
        items = tuple(str(item) for item in raw.get("items", ()))
        return Command(stored.command, obj, stored.who, reason, until, probes, request, value, at, forced, items)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Command("unreadable", "", stored.who)


def _request(raw: dict[str, Any], who: str, at: Instant) -> Request:
    """The restart request in a payload; durations are in ns. Raises ValueError, KeyError, TypeError."""

    def duration(name: str) -> int | None:
        value = raw.get(name)
        return None if value is None else max(0, int(value))

    return Request(
        object=str(raw["object"]),
        at=at,
        who=who,
        reason=str(raw.get("reason", "")),
        ordered=raw.get("ordered") is True,
        failure_policy=FailurePolicy(raw.get("failure_policy", "fail")),
        min_started=duration("min_started") or 0,
        grace=duration("grace"),
        drain=duration("drain"),
        deadline=duration("deadline") or None,
        only=str(raw.get("container") or ""),
    )


class BlockingMemory:
    """The memory of the process that holds the lock. Every call blocks its thread.

    Args:
        store: the open store.
        actor: the operation, for the audit.
        reopen: opens the store again under the same lock, or under a new one when the directory is another one; for `check`.
        alone: raises Locked when another process holds the instance now, and StoreError when the state directory is not the locked one.
            Called before each action, and in each tick.

    Attributes:
        clock: the clock of the instance, continued from the store.
    """

    def __init__(
        self,
        store: Store,
        actor: str,
        reopen: Callable[[], Store] | None = None,
        alone: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.actor, self._reopen, self._alone = store, actor, reopen, alone
        self.clock = InstanceClock(store.clock, store.clock_record())

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger, their moments in the time of the instance."""
        return {key: self.clock.of_instance_text(row) for key, row in self.store.load_ledger().items()}

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ and acknowledge folded commands, in one transaction; see `sync`."""
        return self.store.save_ledger(rows, acknowledge, later=True, clock=self.clock.record())

    def sync(self) -> bool:
        """Wait until the ledger is on disk. False when it already was."""
        self._alone()
        return self.store.sync()

    def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Set rows of the ledger aside that cannot be decoded."""
        self.store.quarantine(keys)

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """Section, key and cause of the rows that were set aside."""
        return self.store.damaged

    def check(self) -> bool:
        """Write something. When the files are gone, the store is made again: what it had is in memory."""
        if self.store.reduced is not None and self._reopen is not None:
            self.store.close()
            self.store = self._reopen()
            if self.store.reduced is not None:
                raise self.store.reduced
        try:
            self.store.check()
        except Replaced:
            if self._reopen is None:
                raise
            old, self.store = self.store, self._reopen()
            with suppress(StoreError):
                old.close()
            return True
        return False

    def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> list[bool]:
        """Append to the audit and store what changed in the decisions, in one transaction. Returns of each whether it changed."""
        with self.store.together():
            for done, revision, events, origins in rows:
                self.append_audit(done, revision, events, origins)
            changed = [self.store.put_decision(value, ages, all_ages=all_ages) for value, ages, all_ages in documents]
        self.store.sync()
        return changed

    def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet, as (id, command)."""
        self._alone()
        return [(command.id, command_of(command, self.clock)) for command in self.store.pending()]

    def close_open_entries(self) -> Sequence[str]:
        """Close the journal entries that an earlier process did not close; one message for each."""
        messages = []
        for entry in self.store.open_entries():
            self.store.end(entry.id, LOOKED_AGAIN, "the process ended before the outcome was known")
            messages.append(
                f'{entry.object}: the outcome of "{entry.action}" is unknown, because the process ended during it;'
                " observing again"
            )
        return messages

    def append_audit(
        self,
        done: Sequence[tuple[Step, Outcome, Now]],
        revision: str,
        events: Sequence[Event] = (),
        origins: Mapping[int, str] | None = None,
    ) -> None:
        """Append steps with their outcomes, and other events, to the audit. `origins` as in `Rows`."""
        known = origins or {}
        rows = []
        for step, outcome, now in done:
            result = outcome.kind.value + (f": {outcome.message}" if outcome.message else "")
            message = f"{step.message}; {why_text(step)}"
            fields = (step.id, step.cause.value, result, "step", step.object, message, known.get(id(step), ""))
            rows.append(AuditRow(now.wall, self.actor, revision, "", *fields))
        rows += [self._row(event, revision, known.get(id(event), "")) for event in events]
        self.store.audit(sorted(rows, key=lambda row: row.wall))

    def _row(self, event: Event, revision: str, origin: str = "") -> AuditRow:
        fields = (event.step, event.cause, event.outcome, event.kind, event.object, event.message, origin)
        return AuditRow(event.wall, event.actor or self.actor, revision, "", *fields)

    def reported_holds(self) -> Mapping[HoldKey, str]:
        """The holds of the last decision that an earlier process stored."""
        last = self.store.last_decision()
        try:
            return stored_holds(json.loads(last.text)["holds"]) if last is not None else {}
        except (ValueError, KeyError, TypeError):  # of another version: report its holds again
            return {}

    def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence of a replica, and append the event to the audit. Returns the id of the evidence."""
        return self.store.put_evidence(self._row(event, ""), value)

    def amend_evidence(self, number: int, value: str) -> None:
        """Replace the evidence once the replica's exit is known."""
        self.store.amend_evidence(number, value)

    def begin(
        self,
        step_id: str,
        object: str,  # noqa: A002
        action: str,
        generation: str,
        cause: str,
        now: Now,
        origin: str = "",
    ) -> int:
        """Record durably that a call is about to be made. Returns the id of the entry."""
        self._alone()
        return self.store.begin(step_id, object, action, generation, cause, now, origin)

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of the call."""
        self.store.end(entry, outcome, detail)


class StoreMemory:
    """The memory of the loop: a `BlockingMemory` on a thread of its own.

    Args:
        blocking: makes the calls.
        calls: makes them one after another; the store's own thread unless given.
        note: takes a message when a damaged file was replaced.

    Attributes:
        clock: the clock of the instance.
    """

    def __init__(
        self, blocking: BlockingMemory, calls: Calls | None = None, note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.blocking, self.clock = blocking, blocking.clock
        self.thread = StoreThread()
        self._calls, self._note = calls or self.thread, note

    def close(self, seconds: float) -> bool:
        """Close the store after the call under way, waiting at most `seconds` for it. Whether it is closed; else a call hangs."""
        return self.thread.close(self._close, seconds)

    def _close(self) -> None:
        with suppress(StoreError):
            self.blocking.store.close()

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await self._calls.run(call)
        except NoThread as error:
            next_step = "raise the limit of processes and threads of this user, or end some"
            raise StoreError(self.place, str(error), next_step) from error

    @property
    def place(self) -> str:
        """The file."""
        return str(self.blocking.store.path)

    async def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""
        return await self._run(self.blocking.load_ledger)

    async def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ and acknowledge folded commands, in one transaction; see `sync`."""
        return await self._run(partial(self.blocking.save_ledger, rows, acknowledge))

    async def sync(self) -> bool:
        """Wait until the ledger is on disk. False when it already was."""
        # No other call is under way, and most ticks have nothing to sync: no change of threads then.
        return await self._run(self.blocking.sync) if self.blocking.store.unsynced else False

    async def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Set rows of the ledger aside that cannot be decoded."""
        await self._run(partial(self.blocking.quarantine, keys))

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """Section, key and cause of the rows that were set aside."""
        return self.blocking.damaged()

    async def check(self) -> bool:
        """Write something. When the files are gone, the store is made again: what it had is in memory."""
        before = self.blocking.store
        made = await self._run(self.blocking.check)
        after = self.blocking.store
        if after is not before and after.recovered:
            self._note(after.recovered)
        return made

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        """Append to the audit and store what changed in the decisions, in one transaction. Returns of each whether it changed."""
        return await self._run(partial(self.blocking.report, rows, documents))

    async def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet, as (id, command)."""
        return await self._run(self.blocking.commands)

    async def close_open_entries(self) -> Sequence[str]:
        """Close the journal entries that an earlier process did not close; one message for each."""
        return await self._run(self.blocking.close_open_entries)

    async def reported_holds(self) -> Mapping[HoldKey, str]:
        """The holds of the last decision that an earlier process stored."""
        return await self._run(self.blocking.reported_holds)

    async def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence of a replica, and append the event to the audit. Returns the id of the evidence."""
        return await self._run(partial(self.blocking.put_evidence, event, value))

    async def amend_evidence(self, number: int, value: str) -> None:
        """Replace the evidence once the replica's exit is known."""
        await self._run(partial(self.blocking.amend_evidence, number, value))

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
        """Record durably that a call is about to be made. Returns the id of the entry."""
        return await self._run(partial(self.blocking.begin, step_id, object, action, generation, cause, now, origin))

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of the call."""
        await self._run(partial(self.blocking.end, entry, outcome, detail))


class ReadOnlyMemory:
    """The memory of a plan: the ledger and commands as they were read. Writes nothing."""

    place = "the ledger of a plan"

    def __init__(self, rows: Mapping[tuple[str, str], str], commands: Sequence[tuple[int, Command]] = ()) -> None:
        self.rows, self._commands = dict(rows), commands

    async def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""
        return dict(self.rows)

    async def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Writes nothing: a plan changes nothing."""
        del rows, acknowledge
        return 0

    async def sync(self) -> bool:
        """Writes nothing."""
        return False

    async def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Writes nothing: the next run sets them aside."""
        del keys

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """Empty: a plan sets nothing aside."""
        return ()

    async def check(self) -> bool:
        """Writes nothing."""
        return False

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        """Writes nothing."""
        del rows, documents
        return ()

    async def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet: a plan obeys them too."""
        return self._commands

    async def close_open_entries(self) -> Sequence[str]:
        """Does not read the journal."""
        return ()

    async def reported_holds(self) -> Mapping[HoldKey, str]:
        """Empty: a plan reports nothing."""
        return {}

    async def put_evidence(self, event: Event, value: str) -> int:
        """Never called: a plan stops nothing."""
        raise AssertionError(f"a plan must not keep evidence: {event} {value}")

    async def amend_evidence(self, number: int, value: str) -> None:
        """Never called."""
        del number, value

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
        """Never called: a plan makes no call."""
        raise AssertionError(f"a plan must not {action}: {step_id} {object} {generation} {cause} {now} {origin}")

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Never called."""
        del entry, outcome, detail
