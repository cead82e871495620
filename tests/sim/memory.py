"""The loop's memory without a disk, with the guarantees of the real store: saved rows survive a kill, and a power cut once they
were synced."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from reconciler.core.model.instant import NEVER, Instant, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows
from reconciler.core.model.ledger_fold import Command, Outcome
from reconciler.core.model.restart_request import Request
from reconciler.core.model.step import Step
from reconciler.shell.instance_clock import ClockRecord, InstanceClock
from reconciler.shell.store.audit import AuditRow, Event, HoldKey, stored_holds
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.document_changes import apply, changes
from tests.sim.clock import VirtualClock


class SimMemory:
    """The state on the simulated disk. It outlives processes; each gets its own `handle`, which implements `Memory`, with its hook.

    `ticks` counts the reads of the inbox: one per tick. `wake_holder` wakes the current loop. `clock` is the saved record of the
    instance's clock, `process_clock` that clock in the current process.
    """

    def __init__(self) -> None:
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

    def load_ledger(self) -> dict[tuple[str, str], str]:
        return dict(self.store.rows)

    def sync(self) -> bool:
        self.hook("before sync")
        if self.store.unsynced():
            self.store.check_space()
        return self.store.sync()

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        self.hook("before save")
        self.store.check_space()
        differ = {*rows.items()} ^ {*self.store.rows.items()}
        self.store.rows = dict(rows)
        self.store.inbox = [entry for entry in self.store.inbox if entry[0] not in acknowledge]
        if differ or acknowledge:
            self.store.clock = self.clock.record()
        self.store.saves += bool(differ)
        self.hook("after save")
        return len(differ)

    def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        self.store.check_space()
        for key in keys:
            self.store.quarantined.append((*key, self.store.rows.pop(key)))

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        return ()

    def check(self) -> bool:
        self.hook("before check")
        self.store.check_space()
        return False

    def put_decision(self, document: Mapping[str, Any], ages: Collection[str] = (), *, all_ages: bool = False) -> bool:
        self.hook("before decision")
        self.store.check_space()
        self.store.sync()
        before = json.loads(self.store.decision or "{}")
        changed = changes(before, document, ages, all_ages=all_ages)
        apply(before, json.loads(json.dumps(changed)))
        self.store.decision = json.dumps(before)
        self.store.decisions += bool(changed)
        return bool(changed)

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def commands(self) -> Sequence[tuple[int, Command]]:
        self.store.ticks += 1
        return tuple((number, self._dated(command)) for number, command in self.store.inbox)

    def _dated(self, command: Command) -> Command:
        """The command with its moment in the time of the instance: tests give that of the host."""
        at, request = self.clock.of_instance(command.at), command.request
        if request is not None:
            request = request._replace(at=self.clock.of_instance(request.at))
        return replace(command, at=at, request=request)

    def close_open_entries(self) -> Sequence[str]:
        left = {number: step for number, (step, outcome) in self.store.journal.items() if not outcome}
        for number, step in left.items():
            self.store.journal[number] = (step, "looked-again")
        return [f"{step}: unknown outcome; observing again" for step in left.values()]

    def append_audit(
        self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()
    ) -> None:
        self.hook("before audit")
        self.store.check_space()
        self.store.sync()
        self.store.audit.extend((step.id, outcome.kind.value) for step, outcome, _ in done)
        del self.store.audit[:-1000]
        self.store.events.extend(events)
        del self.store.events[:-1000]

    def reported_holds(self) -> Mapping[HoldKey, str]:
        return stored_holds(json.loads(self.store.decision)["holds"]) if self.store.decision else {}

    def put_evidence(self, event: Event, value: str) -> int:
        self.hook("before evidence")
        self.store.check_space()
        self.store.events.append(event)
        self.store.evidence.append((event.object, json.loads(value)))
        return len(self.store.evidence)

    def amend_evidence(self, number: int, value: str) -> None:
        self.hook("before evidence")
        self.store.check_space()
        self.store.evidence[number - 1] = (self.store.evidence[number - 1][0], json.loads(value))

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        self.hook("before begin")
        self.store.check_space()
        self.store.sync()
        self.store.begun += 1
        self.store.journal[self.store.begun] = (step_id, "")
        self.hook("after begin")
        return self.store.begun

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        self.hook("before end")
        self.store.check_space()
        self.store.sync()
        self.store.journal[entry] = (self.store.journal[entry][0], outcome)
        self.store.journal.pop(entry - 1000, None)
        self.hook("after end")
