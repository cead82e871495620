"""Reports decisions and actions to the reporter, the stored decision and the audit. Called by the loop.

Reporting is the slow part of a tick, because it waits for the disk and encodes JSON. So it is queued until the calls that were
just begun have ended, or PATIENCE is over: a weight must not wait for its own report.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from manifests.values.desired import SECOND, Desired
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import Command, Outcome, OutcomeKind
from reconciler.core.model.step import Step
from reconciler.core.replicas.ends import End, Removal
from reconciler.shell import daemon_view
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.looks.wake_pipe import SHOW
from reconciler.shell.report.events import (
    ADOPTION,
    LastReport,
    Pending,
    approved_changes,
    changes,
    command_event,
    end_event,
    manifests_event,
    removal_event,
    source_event,
)
from reconciler.shell.report.summary import AGES, decision_document, fingerprint
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.audit import Event
from reconciler.shell.store.ports import Document, Reports, Rows

PATIENCE = 0.02
"""Seconds that reports wait for calls under way. Calls to a balancer take some ms, calls to an engine much longer."""


LONGEST = 10 * SECOND
"""How long (ns) an event waits for the outcome of its calls: an operator must not wait for a call that hangs."""


def _not_begun(step: Step) -> Outcome:
    return Outcome(step.id, OutcomeKind.SKIPPED, "the run has ended")


class Reporting:
    """The queue of reports, in order. `origin_of` gives the origin of an event by its object, as `origins.py` writes it."""

    def __init__(self, reporter: Reporter, memory: Reports, origin_of: Callable[[str], str] = lambda _: "") -> None:
        self._reporter, self._memory, self._origin_of = reporter, memory, origin_of
        self._origins: dict[int, str] = {}
        self._fingerprint: tuple[object, ...] = ()
        self._requested = self._unsettled = False
        self._since_wall = 0
        self._decisions: list[tuple[Decision, Desired, Now, int, bool, dict[str, Any] | None]] = []
        self._last: tuple[Decision, Desired, Now, int] | None = None
        self._done: list[tuple[Step, Outcome, Now]] = []
        self._events: list[Event] = []
        self._rows: list[Rows] = []
        self._pending: list[Pending] = []
        self._outcomes: dict[int, tuple[Step, Outcome]] = {}
        self._reported = LastReport()
        self._revision = ""
        self._decided_for = ""
        self._delayed_at: float | None = None
        self._latest = 0

    def decided(self, decision: Decision, desired: Desired, now: Now, *, acts: bool = True) -> None:
        """Queue a decision, unless it equals the previous one and was made for the same manifests. `acts`: its steps were begun."""
        latest, self._latest = fingerprint(decision), now.wall
        again, self._unsettled = self._unsettled, decision.unsettled
        view = daemon_view.write(decision, now) if self._requested else None
        if latest != self._fingerprint or self._requested or again or desired.revision != self._decided_for:
            self._since_wall = now.wall if latest != self._fingerprint else self._since_wall
            self._fingerprint, self._requested, self._decided_for = latest, False, desired.revision
            self._decisions.append((decision, desired, now, self._since_wall, acts, view))
        self._last = decision, desired, now, self._since_wall

    async def begin(self, ledger: Ledger) -> None:
        """Start with what an earlier process reported, so that it is not reported again."""
        self._reported = LastReport(
            await self._memory.reported_holds(),
            requests=ledger.requests,
            suspensions=ledger.suspensions,
            adopted=ledger.adopted,
            overrides=ledger.overrides,
            grants=ledger.grants,
        )

    def commands_read(self, commands: Iterable[Command], now: Now) -> None:
        """Queue each order of an operator for the audit. After `SHOW`, a request of `status`, store the next decision even when it is unchanged."""
        for command in commands:
            if command.verb == SHOW:
                self._requested = True
            else:
                holds = self._last[0].holds if self._last is not None else ()
                self._events.append(command_event(command, now, approved_changes(command, holds)))

    def done(self, action: tuple[Step, Outcome, Now], revision: str, origin: str = "") -> None:
        """Queue the outcome of a step for the audit, with the revision of the manifests in force. A skipped step is no event.

        `origin`: where the step comes from, as `origins.py` writes it.
        """
        step, outcome, _ = action
        self._outcomes[id(step)] = step, outcome
        if outcome.kind is OutcomeKind.SKIPPED:
            return
        if revision != self._revision:
            self._append()
            self._revision = revision
        self._done.append(action)
        if origin:
            self._origins[id(step)] = origin

    def ended(self, ends: Iterable[End], removals: Iterable[Removal], now: Now) -> None:
        """Queue for the audit the ends of containers, and those that another program removed."""
        self._events += [end_event(end, now) for end in ends]
        self._events += [removal_event(removal, now) for removal in removals]

    def manifests(self, desired: Desired, commit: str, now: Now) -> None:
        """Queue for the audit that other manifests are in force than before."""
        self._events.append(manifests_event(desired.revision, commit, desired.source, now))

    def happened(self, event: Event) -> None:
        """Queue any other event for the audit."""
        self._events.append(event)

    def source(self, text: str, now: Now) -> None:
        """Queue for the audit what happened at the source of the manifests."""
        self._events.append(source_event(text, now))

    @property
    def queued(self) -> bool:
        """Whether `flush` has something to store. It then waits for the disk, for the ledger as well."""
        return bool(self._decisions or self._done or self._events or self._rows or self._ready())

    async def after_calls(self, under_way: Collection[asyncio.Task[None]], wake: Wake) -> None:
        """Report everything in the queue as soon as no call is under way or PATIENCE is over.

        When something wakes the loop before that, it returns at once and reports nothing: the tick is more urgent. The queue is
        reported after that tick, at most one PATIENCE after it was first delayed.
        """
        if self.queued:
            clock = asyncio.get_running_loop().time
            self._delayed_at = clock() if self._delayed_at is None else self._delayed_at
            left = self._delayed_at + PATIENCE - clock()
            if under_way and left > 0:
                woken = asyncio.create_task(wake.event.wait())
                await asyncio.wait({woken, *under_way}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                if wake.event.is_set() and clock() < self._delayed_at + PATIENCE:
                    return
        await self.flush()

    def _ready(self) -> list[Pending]:
        """The pending events whose calls have all ended, and those that have waited for long enough."""
        return [
            pending
            for pending in self._pending
            if pending.event.wall <= self._latest - LONGEST or all(id(step) in self._outcomes for step in pending.steps)
        ]

    def _end_pending(self) -> None:
        """Queue the pending events that can be reported, and forget outcomes that no other one needs."""
        ready = self._ready()
        outcomes = {key: outcome for key, (_, outcome) in self._outcomes.items()}
        self._events += [pending.with_outcomes(outcomes) for pending in ready]
        self._pending = [pending for pending in self._pending if not any(pending is other for other in ready)]
        needed = {id(step) for pending in self._pending for step in pending.steps}
        self._outcomes = {key: pair for key, pair in self._outcomes.items() if key in needed}

    async def flush(self) -> None:
        """Report everything in the queue now, in one transaction. Then the ledger is on disk too, unless the store cannot be written.

        What is queued while the disk is written waits for the next call.
        """
        self._delayed_at = None
        if self.queued:
            documents = self._documents()
            rows, self._rows = self._rows, []
            if rows or documents:
                await self._memory.report(rows, documents)

    async def close(self) -> None:
        """At the end of a run, store also what only became older in the last decision: `status` shows it until the next run."""
        await self.flush()
        if self._last is not None:
            decision, desired, now, since = self._last
            await self._memory.report((), [Document(decision_document(decision, desired, now, since), AGES, True)])

    def _documents(self) -> list[Document]:
        """Make events of what is queued, and rows of all of them. Returns the decisions to store."""
        documents: list[Document] = []
        for decision, desired, now, _, acts, _ in self._decisions:
            self._reported, events, pending = changes(self._reported, decision, now)
            if acts:
                self._pending += pending
            else:
                events += [
                    verdict.with_outcomes({id(step): _not_begun(step) for step in verdict.steps}) for verdict in pending
                ]
            for event in events:
                if event.kind in ADOPTION:
                    self._reporter.note(event.message)
            if events and desired.revision != self._revision:
                self._append()
                self._revision = desired.revision
            self._events += events
        self._end_pending()
        self._append()
        for number, (decision, desired, now, since, _, view) in enumerate(self._decisions, start=1):
            self._reporter.decided(decision, now)
            if view is not None or number == len(self._decisions):  # nothing reads what the next one replaces
                document = decision_document(decision, desired, now, since, view)
                documents.append(Document(document, AGES, view is not None))
        self._decisions.clear()
        return documents

    def _append(self) -> None:
        """Make rows of this revision of what has happened, and log it."""
        if self._done or self._events:
            for event in self._events:
                self._reporter.event(*event[1:])
                self._origins[id(event)] = self._origin_of(event.object)
            self._rows.append(Rows(self._done, self._revision, self._events, self._origins))
            self._done, self._events, self._origins = [], [], {}
