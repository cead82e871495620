"""Records what became of each commit, on a thread of its own. A monitor around another one; `wire.py` attaches it to the loop.

The loop only hands over an immutable tick, so a slow disk of the history delays no action. Outside of git the thread never begins.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from reconciler.commits import history_file
from reconciler.commits.history_file import History
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.notices import history
from reconciler.core.notices.history import OPEN, Refusal, Source
from reconciler.core.notices.symptoms import symptoms
from reconciler.core.status.objects import Condition
from reconciler.forge.protocol import COMMIT
from reconciler.shell.monitor import Monitor, Tick
from reconciler.shell.store import source_record
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.source_record import SourceRecord

log = logging.getLogger("reconciler")

LOOK = 2.0
"""Seconds between two looks at the source: a commit that changes nothing makes no tick."""


class Clock(Protocol):
    """What the recorder needs of time."""

    def now(self) -> Now:
        """One reading of all clocks."""


class Recorder:
    """Implements `Monitor` around another one, which gets every tick first.

    Args:
        inner: the other monitor.
        state: the state directory, whose lock this process holds.
        clock: gives the wall time.
        refused: the newest commit of a git source, if what is wrong with it is in the commit; else empty.
        note: reports a history that cannot be written, once until it can.
    """

    def __init__(
        self, inner: Monitor, state: Path, clock: Clock, refused: Callable[[], str], note: Callable[[str], None]
    ) -> None:
        self._inner, self._state, self._clock, self._refused, self._note = inner, state, clock, refused, note
        self._tick: Tick | None = None
        self._history: History | None = None
        self._reviews: dict[str, str] = {}
        self._known: tuple[Tick, SourceRecord | None, str] | None = None
        self._problem = ""
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # --- called by the loop -------------------------------------------------------------------------------------------

    def ticked(self, tick: Tick) -> None:
        """Take a tick. Neither blocks nor raises."""
        self._inner.ticked(tick)
        if not tick.complete or not (tick.commit or self._thread is not None):
            return
        self._tick = tick
        if self._thread is None and not self._stopped.is_set():
            thread = threading.Thread(target=self._work, name="commits", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # tried again with the next tick
                log.warning("the history of commits is not written: no thread can be started: %s", error)
                return
            self._thread = thread
        self._woken.set()

    def failed(self, at: int) -> None:
        """A tick ended with an unexpected error."""
        self._inner.failed(at)

    def reviewed(self, commit: str, review: str) -> None:
        """Record how the plan of a commit compares with the reviewed one. Called from any thread."""
        self._reviews[commit] = review
        self._woken.set()

    def close(self, seconds: float = 3.0) -> None:
        """End the thread, after a last record."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(seconds)

    # --- the thread -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            self._woken.wait(LOOK)
            self._woken.clear()
            stopping = self._stopped.is_set()
            try:
                self._step()
            except Exception:
                log.exception("the history of commits failed; it is tried again")
            if stopping:
                return
            self._stopped.wait(0.2)  # a loop that ticks all the time costs little here

    def _step(self) -> None:
        tick = self._tick
        if tick is None:
            return
        record, refused = source_record.load(self._state), self._refused()
        if self._history is None:
            self._history = self._load()
        if self._known != (tick, record, refused):
            # A settled commit costs nothing at ticks that change nothing about it.
            self._known = (tick, record, refused)
            self._follow(tick, record, refused)
        for commit, review in list(self._reviews.items()):
            rows = history.reviewed(self._history.rows, commit, review)
            if any(row.commit == commit for row in rows):
                del self._reviews[commit]
                self._keep(self._history._replace(rows=rows))
        if self._problem:
            self._keep(self._history, again=True)

    def _follow(self, tick: Tick, record: SourceRecord | None, refused: str) -> None:
        assert self._history is not None  # noqa: S101  (loaded by the caller)
        source, rows = _source(tick, record, refused), self._history.rows
        source = source._replace(returned=self._history.in_force not in ("", source.in_force))
        by_commit = {row.commit: row for row in rows}
        others = {row.commit for row in rows if row.fate in OPEN} - {source.in_force}
        settled = source.in_force in by_commit and by_commit[source.in_force].fate not in OPEN
        quiet = settled and not source.returned and not others and source.refusal is None and not source.waiting
        if quiet and source.seen in ("", source.in_force, *by_commit) and not _fails(tick.decision):
            return
        found = symptoms(tick.decision, tick.desired)
        rows = history.follow(rows, source, tick.decision, found, self._clock.now().wall)
        self._keep(History(rows, source.in_force or self._history.in_force))

    def _load(self) -> History:
        try:
            return history_file.load(self._state)
        except StoreError as error:
            self._note(f"the history of commits cannot be read, and begins again: {error}")
            return History()

    def _keep(self, known: History, *, again: bool = False) -> None:
        if known == self._history and not again:
            return
        self._history = known
        try:
            history_file.save(self._state, known)
        except StoreError as error:
            if str(error) != self._problem:
                self._note(f"the history of commits cannot be written, so reconcile wait does not see it: {error}")
            self._problem = str(error)
        else:
            self._problem = ""


def _fails(decision: Decision) -> bool:
    """Whether a revision that was applied may have failed since."""
    return any(row.condition not in (Condition.READY, Condition.SUSPENDED) for row in decision.status.workloads)


def _source(tick: Tick, record: SourceRecord | None, refused: str) -> Source:
    """What is known of the source. The record is newer than the tick where manifests are about to come into force."""
    observed = tick.decision.status.observed
    in_force, decided, seen = tick.commit, True, ""
    if record is not None and record.in_force is not None:
        in_force = record.in_force.commit
        decided = record.in_force.revision == tick.desired.revision
        seen = record.seen.commit if record.seen is not None else ""
    refusal, problem = None, observed.source_problem
    if problem is not None:
        final = not problem.unreadable or problem.unverified or problem.commit == refused
        commit = refused if problem.unreadable and refused else problem.commit
        refusal = Refusal(_commit(commit), problem.cause, final)
    elif record is not None and record.attempted is not None:
        seen = ""  # read, and not judged by a tick yet
    waiting = _commit(observed.waiting.commit) if observed.waiting is not None else ""
    return Source(_commit(in_force), decided, _commit(seen), refusal, waiting)


def _commit(text: str) -> str:
    """A whole commit number; empty for a work tree that differs from its commit."""
    return text if COMMIT.fullmatch(text) else ""
