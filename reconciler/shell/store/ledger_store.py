"""The store in the loop's words: ledger, journal, inbox, audit and evidence of one instance.

`StoreMemory` is the lock holder's; `Glimpse` reads beside it for plans and writes nothing.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from reconciler.core.model.instant import Now, instant
from reconciler.core.model.ledger import Command, Ledger, Outcome, from_rows, to_rows
from reconciler.core.model.restart_request import DEADLINE, FailurePolicy, Request
from reconciler.core.model.step import Step
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.audit import Event, HoldKey, known_holds
from reconciler.shell.store.ports import Memory
from reconciler.shell.store.state import AuditRow, Store
from reconciler.shell.store.state import Command as Left

LOOKED_AGAIN = "looked-again"
"""How a call ended whose process died: nobody knows, so it was looked at again."""


def command_of(left: Left) -> Command:
    """A command of the inbox as the core reads it. A payload that makes no sense is a command about nothing."""
    try:
        raw = json.loads(left.payload)
        request = _request(raw, left) if left.command == "restart" else None
        obj = str(raw["id"] if request is not None else raw["object"])
        until, probes = int(raw.get("until_wall", 0) or 0), raw.get("probes") is True
        reason, value = str(raw.get("reason", "")), str(raw.get("value", ""))
        return Command(left.command, obj, left.who, reason, until, probes, request, value, instant(left.at))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Command("unreadable", "", left.who)


def _request(raw: dict[str, Any], left: Left) -> Request:
    """What a restart command asks for; durations are in ns. Raises ValueError, KeyError, TypeError."""

    def duration(name: str) -> int | None:
        value = raw.get(name)
        return None if value is None else max(0, int(value))

    return Request(
        object=str(raw["object"]),
        at=instant(left.at),
        who=left.who,
        reason=str(raw.get("reason", "")),
        ordered=raw.get("ordered") is True,
        failure_policy=FailurePolicy(raw.get("failure_policy", "fail")),
        min_started=duration("min_started") or 0,
        grace=duration("grace"),
        drain=duration("drain"),
        deadline=duration("deadline") or DEADLINE,
        only=str(raw.get("container") or ""),
    )


class StoreMemory:
    """What the loop remembers, in the store."""

    def __init__(self, store: Store, actor: str) -> None:
        self.store, self.actor = store, actor

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""
        return self.store.load_ledger()

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ, and acknowledge folded commands in the same transaction; see `sync`."""
        return self.store.save_ledger(rows, acknowledge, later=True)

    def sync(self) -> bool:
        """Wait until the ledger is on the disk. False when it was already."""
        return self.store.sync()

    def put_decision(self, text: str) -> bool:
        """Store the last decision when it changed."""
        return self.store.put_decision(text)

    def commands(self) -> Sequence[tuple[int, Command]]:
        """People's commands that are not folded yet, with their numbers."""
        return [(one.id, command_of(one)) for one in self.store.pending()]

    def leftovers(self) -> Sequence[str]:
        """Close what an earlier process left open in the journal; a sentence for each."""
        told = []
        for entry in self.store.open_entries():
            self.store.end(entry.id, LOOKED_AGAIN, "the process ended before the outcome was known")
            told.append(f'{entry.object}: whether "{entry.action}" was carried out is not known; looking again')
        return told

    def told(self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()) -> None:
        """Append to the audit: steps with their outcomes, then what else happened."""
        rows = []
        for step, outcome, now in done:
            result = outcome.kind.value + (f": {outcome.message}" if outcome.message else "")
            words = (step.id, step.cause.value, result, "step", step.object, step.message)
            rows.append(AuditRow(now.wall, self.actor, revision, "", *words))
        rows += [self._row(event, revision) for event in events]
        self.store.audit(sorted(rows, key=lambda row: row.wall))

    def _row(self, event: Event, revision: str) -> AuditRow:
        words = (event.step, event.cause, event.outcome, event.kind, event.object, event.message)
        return AuditRow(event.wall, self.actor, revision, "", *words)

    def held(self) -> Mapping[HoldKey, str]:
        """The holds of the decision that an earlier process stored last."""
        last = self.store.last_decision()
        try:
            return known_holds(json.loads(last.text)["holds"]) if last is not None else {}
        except (ValueError, KeyError, TypeError):  # of another version: its holds are told anew
            return {}

    def put_evidence(self, told: Event, value: str) -> int:
        """Keep what was left of a replica, and that it was kept. Returns its number."""
        return self.store.put_evidence(self._row(told, ""), value)

    def amend_evidence(self, number: int, value: str) -> None:
        """Add how it ended."""
        self.store.amend_evidence(number, value)

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        """Write down, durably, that a call is about to be made."""
        return self.store.begin(step_id, object, action, generation, cause, now)

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Write down how it ended."""
        self.store.end(entry, outcome, detail)


class Glimpse:
    """The ledger as it was read, and nothing else: what a plan may see of the store."""

    def __init__(self, rows: Mapping[tuple[str, str], str], commands: Sequence[tuple[int, Command]] = ()) -> None:
        self.rows, self._commands = dict(rows), commands

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""
        return dict(self.rows)

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Nothing is written: a plan changes nothing."""
        del rows, acknowledge
        return 0

    def sync(self) -> bool:
        """Nothing is written."""
        return False

    def put_decision(self, text: str) -> bool:
        """Nothing is written."""
        del text
        return False

    def commands(self) -> Sequence[tuple[int, Command]]:
        """People's commands that are not folded yet: a plan respects them too."""
        return self._commands

    def leftovers(self) -> Sequence[str]:
        """The journal is not read."""
        return ()

    def told(self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()) -> None:
        """Nothing is written."""
        del done, revision, events

    def held(self) -> Mapping[HoldKey, str]:
        """Nothing is told, so nothing is told twice."""
        return {}

    def put_evidence(self, told: Event, value: str) -> int:
        """Never reached: a plan stops nothing."""
        raise AssertionError(f"a plan was about to keep evidence: {told} {value}")

    def amend_evidence(self, number: int, value: str) -> None:
        """Never reached."""
        del number, value

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        """Never reached: a plan makes no call."""
        raise AssertionError(f"a plan was about to {action}: {step_id} {object} {generation} {cause} {now}")

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Never reached."""
        del entry, outcome, detail


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
