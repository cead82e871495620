"""Progress of a run on standard error: a live line on a terminal, elsewhere plain lines and a heartbeat.

The loop calls a reporter for every event. `ticking` calls `tick` in between, so that a long wait shows progress. Logs go through
the same `Screen`, so that they never appear in the middle of the live line. Chosen by `cli/run.py`.
"""

import asyncio
import contextlib
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sized
from contextlib import asynccontextmanager
from typing import TextIO

from manifests.values.desired import SECOND
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.summary import step_line
from reconciler.cli.render.times import short
from reconciler.cli.view import printable
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.step import Step
from reconciler.core.plan_text import describe
from reconciler.shell.clock import Clock

log = logging.getLogger("reconciler")

LIVE_EVERY = SECOND
"""How often the live line is redrawn (ns)."""

HEARTBEAT_EVERY = 10 * SECOND
"""How often a line shows progress where there is no live line (ns)."""


class Screen:
    """A text stream with at most one live line at its end, which is redrawn. Used from several threads, because all of them log."""

    def __init__(self, stream: TextIO, live: bool) -> None:
        self.live = live
        self._stream = stream
        self._line = ""
        self._mutex = threading.Lock()

    def write(self, text: str) -> int:
        """Write text above the live line. A closed stream is not an error."""
        with self._mutex, contextlib.suppress(OSError, ValueError):
            if self._line:
                self._stream.write("\r\x1b[K")
            self._stream.write(text)
            if self._line and text.endswith("\n"):
                self._stream.write(self._line)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def line(self, text: str) -> None:
        """Draw the live line; an empty text removes it."""
        if not self.live:
            return
        with self._mutex, contextlib.suppress(OSError, ValueError):
            # A line that wraps cannot be redrawn.
            self._line = text[: shutil.get_terminal_size().columns - 1]
            self._stream.write(f"\r\x1b[K{self._line}")
            self._stream.flush()


class Progress:
    """The reporter of a run that ends: one line per finished step, and the current state in between.

    Args:
        screen: standard error.
        clock: the loop's.
        paint: the colours of step lines.
        result: takes the line of each step, because steps are a part of the result; None: they go to the screen.
    """

    def __init__(self, screen: Screen, clock: Clock, paint: Paint, result: Callable[[str], None] | None = None) -> None:
        self._screen, self._clock, self._paint, self._result = screen, clock, paint, result
        self.streams = result is not None
        self._running: dict[str, tuple[Step, int]] = {}
        self._done = 0
        self._decision: Decision | None = None
        self._under_way: Callable[[], tuple[str, ...]] = tuple
        self._begun = self._last = clock.now().steady

    @property
    def every(self) -> int:
        """How often to call `tick` (ns)."""
        return LIVE_EVERY if self._screen.live else HEARTBEAT_EVERY

    def started(self, step: Step) -> None:
        """The call of a step is about to be made."""
        self._running[step.id] = (step, self._clock.now().steady)
        self._draw()

    def finished(self, step: Step, outcome: Outcome) -> None:
        """The call of a step ended, or was not made."""
        self._running.pop(step.id, None)
        self._done += outcome.kind is OutcomeKind.DONE
        line = step_line(step, outcome, self._paint)
        if self._result is None:
            self._print(line)
        else:
            self._screen.line("")  # both streams may be the same terminal
            self._result(line)
            self._last = self._clock.now().steady
        self._draw()

    def decided(self, decision: Decision, now: Now) -> None:
        """A decision that differs from the one before."""
        del now
        self._decision = decision
        self._draw()

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        """Nothing: the line of each step and the result say it."""

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        """Any other message."""
        log.log(level, "%s", text)

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Show from now on the operations that this returns, such as the pull of an image."""
        self._under_way = under_way

    def tick(self) -> None:
        """Show progress; without a live line only when nothing was written for a while."""
        if self._screen.live:
            self._draw()
        elif self._clock.now().steady - self._last >= HEARTBEAT_EVERY:
            self._print(self._state())

    def close(self) -> None:
        """Remove the live line."""
        self._screen.line("")

    def _print(self, text: str) -> None:
        self._last = self._clock.now().steady
        self._screen.write(f"{printable(text)}\n")
        self._screen.flush()

    def _draw(self) -> None:
        self._screen.line(printable(self._state()))

    def _state(self) -> str:
        now = self._clock.now().steady
        parts = [f"{short(now - self._begun)}: {self._done} done"]
        # First, because a live line is cut at its end, and progress says more than duration.
        operations = self._under_way()
        parts += [f"{operation}{_more(operations)}" for operation in operations[:1]]
        for step, since in list(self._running.values())[:1]:
            parts.append(f"{describe(step.action)}{_more(self._running)} for {short(now - since)}")
        if self._decision is not None and not self._running:
            parts += [f"waiting: {wait.object}: {wait.message}" for wait in self._decision.waits[:1]]
            parts += [f"held: {hold.object} by {hold.rule.value}" for hold in self._decision.holds[:1]]
        return ", ".join(parts)


def _more(items: Sized) -> str:
    """How many there are beside the one that is shown."""
    return f" and {len(items) - 1} more" if len(items) > 1 else ""


class Logged:
    """The reporter of a run that does not end, or whose log is JSON: it logs changes, one record for each, and nothing else.

    Args:
        clock: the loop's, for the duration of calls.
        actor: the operation that takes the steps, as in the audit.
    """

    every = 0
    streams = False

    def __init__(self, clock: Clock | None = None, actor: str = "reconcile") -> None:
        self._clock, self._actor = clock, actor
        self._held: frozenset[tuple[str, str, str]] = frozenset()
        self._begun: dict[str, int] = {}

    def started(self, step: Step) -> None:
        """The call of a step is about to be made."""
        if self._clock is not None:
            self._begun[step.id] = self._clock.now().steady
        log.debug("%s: %s", step.object, describe(step.action))

    def finished(self, step: Step, outcome: Outcome) -> None:
        """The call of a step ended, or was not made."""
        good = outcome.kind in {OutcomeKind.DONE, OutcomeKind.SKIPPED, OutcomeKind.CONFLICT}
        begun = self._begun.pop(step.id, None)
        fields = _fields("step", step.object, describe(step.action), step.cause.value, "", outcome.kind.value)
        fields |= {"detail": outcome.message or step.message, "actor": self._actor}
        if begun is not None and self._clock is not None:
            fields["duration_seconds"] = round((self._clock.now().steady - begun) / SECOND, 6)
        log.log(logging.INFO if good else logging.WARNING, "%s", step_line(step, outcome, Paint(False)), extra=fields)

    def decided(self, decision: Decision, now: Now) -> None:
        """A decision that differs from the one before: log each hold that begins or ends."""
        del now
        held = frozenset((hold.object, hold.action, hold.rule.value) for hold in decision.holds)
        for hold in decision.holds:
            if (hold.object, hold.action, hold.rule.value) not in self._held:
                tail = f"; next step: {hold.next_step}" if hold.next_step else ""
                fields = _fields("held", hold.object, hold.action, "", hold.rule.value, "held")
                fields["detail"] = hold.message
                text = "held %s: %s (%s: %s)%s"
                log.info(text, hold.object, hold.action, hold.rule.value, hold.message, tail, extra=fields)
        for name, action, rule in sorted(self._held - held):
            fields = _fields("released", name, action, "", rule, "released")
            log.info("no longer held %s: %s (%s)", name, action, rule, extra=fields)
        self._held = held

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        """Something else changed. Steps, holds and adoptions have lines of their own."""
        if kind in LOGGED_ELSEWHERE:
            return
        fields = _fields(kind, obj, action, cause, "", outcome)
        fields |= {"detail": message, "actor": actor or self._actor}
        log.info("%s", _event_line(kind, obj, action, cause, outcome, message), extra=fields)

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        """Any other message."""
        log.log(level, "%s", text)

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Nothing: a log shows no progress. A step that fails at its deadline says how far it came."""
        del under_way

    def tick(self) -> None:
        """Nothing: a log has no heartbeat."""

    def close(self) -> None:
        """Nothing: there is no live line."""


LOGGED_ELSEWHERE = frozenset({"step", "held", "released", "adopted", "left"})
"""Kinds of events that `finished`, `decided` and `note` log."""


def _fields(kind: str, object_: str, action: str, cause: str, rule: str, outcome: str) -> dict[str, object]:
    """The fields of a record about a change (`logs.FIELDS`)."""
    fields = {"kind": kind, "object": object_, "action": action, "cause": cause, "rule": rule, "outcome": outcome}
    return {name: value for name, value in fields.items() if value}


def _event_line(kind: str, object_: str, action: str, cause: str, outcome: str, message: str) -> str:
    inner = ": ".join(part for part in (cause, message) if part)
    return f"{kind} {object_ or '-'}: {action}" + (f" ({inner})" if inner else "") + (f": {outcome}" if outcome else "")


class Silent(Logged):
    """The reporter of a quiet run: it logs only failures."""

    def finished(self, step: Step, outcome: Outcome) -> None:
        """The call of a step ended, or was not made: log a failure."""
        if outcome.kind not in {OutcomeKind.DONE, OutcomeKind.SKIPPED, OutcomeKind.CONFLICT}:
            super().finished(step, outcome)

    def decided(self, decision: Decision, now: Now) -> None:
        """Nothing: the result of the run has the holds."""

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        """Nothing: `reconcile events` has them."""


@asynccontextmanager
async def ticking(reporter: Progress | Logged, clock: Clock) -> AsyncIterator[None]:
    """Call the reporter's `tick` at its interval while the body runs."""
    stop = asyncio.Event()

    async def tick() -> None:
        while not stop.is_set():
            await clock.sleep_until(clock.now().steady + reporter.every, stop)
            if not stop.is_set():
                reporter.tick()

    task = asyncio.create_task(tick()) if reporter.every else None
    try:
        yield
    finally:
        stop.set()
        if task is not None:
            await task
        reporter.close()
