"""Telling: what was decided and done, for people (reporter, stored decision) and for the audit. Called by the loop.

It is the slow part of a tick, because it waits for the disk and writes JSON. So it is queued, and done once the calls that
were just begun are through, or a little later: a weight must not wait for its own report.
"""

import asyncio
from collections.abc import Collection, Iterable

from manifests.values.desired import Desired
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger, Outcome
from reconciler.core.model.step import Step
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.looks.wake_pipe import SHOW
from reconciler.shell.report.events import ADOPTION, LastReport, changes
from reconciler.shell.report.summary import decision_json, fingerprint
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.audit import Event
from reconciler.shell.store.ports import Memory

PATIENCE = 0.02
"""Seconds that telling waits for calls under way; those to a balancer take some ms, those to an engine much longer."""


class Reporting:
    """What is to be told, in order."""

    def __init__(self, reporter: Reporter, memory: Memory) -> None:
        self._reporter, self._memory = reporter, memory
        self._last: tuple[object, ...] = ()
        self._asked = False
        self._since_wall = 0
        self._decisions: list[tuple[Decision, Desired, Now, int]] = []
        self._done: list[tuple[Step, Outcome, Now]] = []
        self._events: list[Event] = []
        self._seen = LastReport()
        self._revision = ""
        self._since: float | None = None

    def decided(self, decision: Decision, desired: Desired, now: Now) -> None:
        """Tell a decision, unless it says the same as the one before."""
        latest = fingerprint(decision)
        if latest != self._last or self._asked:
            self._since_wall = now.wall if latest != self._last else self._since_wall
            self._last, self._asked = latest, False
            self._decisions.append((decision, desired, now, self._since_wall))

    def begin(self, ledger: Ledger) -> None:
        """What an earlier process remembered is no news."""
        self._seen = LastReport(
            self._memory.reported_holds(),
            requests=ledger.requests,
            suspensions=ledger.suspensions,
            adopted=ledger.adopted,
            overrides=ledger.overrides,
        )

    def commands_read(self, verbs: Iterable[str]) -> None:
        """Somebody who wants to see how things are now (`SHOW`): store the next decision even when it is no news."""
        self._asked = self._asked or SHOW in verbs

    def done(self, what: tuple[Step, Outcome, Now], revision: str) -> None:
        """Append to the audit what came of a step, with the revision of the manifests that was in force."""
        if revision != self._revision:
            self._append()
            self._revision = revision
        self._done.append(what)

    async def after_calls(self, under_way: Collection[asyncio.Task[None]], wake: Wake) -> None:
        """Tell everything, as soon as no call is under way or PATIENCE is over.

        Returns before that, with nothing told, when something wakes the loop: it has more urgent things to do. What waits
        is told after the next tick, at the latest one PATIENCE after it was first put off.
        """
        if self._decisions or self._done:
            clock = asyncio.get_running_loop().time
            self._since = clock() if self._since is None else self._since
            left = self._since + PATIENCE - clock()
            if under_way and left > 0:
                woken = asyncio.create_task(wake.event.wait())
                await asyncio.wait({woken, *under_way}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                if wake.event.is_set() and clock() < self._since + PATIENCE:
                    return
        self.flush()

    def flush(self) -> None:
        """Tell everything now. Raises `StoreError` when it cannot be stored."""
        for decision, desired, now, _ in self._decisions:
            self._seen, events = changes(self._seen, decision, now)
            for event in events:
                if event.kind in ADOPTION:
                    self._reporter.note(event.message)
            if events and desired.revision != self._revision:
                self._append()
                self._revision = desired.revision
            self._events += events
        self._append()
        for decision, desired, now, since in self._decisions:
            self._reporter.decided(decision, now)
            self._memory.put_decision(decision_json(decision, desired, now, since))
        self._decisions.clear()
        self._since = None

    def _append(self) -> None:
        """All at once: each append waits for the disk."""
        if self._done or self._events:
            self._memory.append_audit(self._done, self._revision, self._events)
            self._done.clear()
            self._events.clear()
