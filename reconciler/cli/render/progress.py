"""Progress while a run goes on, on standard error: a live line on a terminal, plain lines and a sign of life elsewhere.

The loop calls a reporter for what happens; `ticking` calls `tick` in between, so that a long wait is seen to be one. Logs go
through the same `Screen`, so that they never end up in the middle of the live line.
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
from reconciler.cli.view import masked, printable
from reconciler.core.decision import Decision, describe
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Outcome, OutcomeKind
from reconciler.core.model.step import Step
from reconciler.shell.clock import Clock

log = logging.getLogger("reconciler")

LIVE_EVERY = SECOND
"""How often the live line is drawn anew (ns)."""

ALIVE_EVERY = 10 * SECOND
"""How often a line says that the run goes on where there is no live line (ns)."""


class Screen:
    """A text stream with at most one line at its end that is drawn over. Used from several threads: logs come from all."""

    def __init__(self, stream: TextIO, live: bool) -> None:
        self.live = live
        self._stream = stream
        self._line = ""
        self._mutex = threading.Lock()

    def write(self, text: str) -> int:
        """Write text above the live line. A reader that went away is not an error."""
        with self._mutex, contextlib.suppress(OSError, ValueError):
            if self._line:
                self._stream.write("\r\x1b[K")
            self._stream.write(text)
            if self._line and text.endswith("\n"):
                self._stream.write(self._line)
        return len(text)

    def flush(self) -> None:
        """Show what was written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def line(self, text: str) -> None:
        """Draw the live line; an empty text takes it away."""
        if not self.live:
            return
        with self._mutex, contextlib.suppress(OSError, ValueError):
            # A line that wraps cannot be drawn over.
            self._line = text[: shutil.get_terminal_size().columns - 1]
            self._stream.write(f"\r\x1b[K{self._line}")
            self._stream.flush()


class Progress:
    """The reporter of a run that ends: a line a step as it ends, and what is waited for in between.

    Args:
        screen: standard error.
        clock: the loop's.
        paint: the colours of step lines.
        result: takes the line of each step, because what was done is a part of the result; None: they go to the screen.
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
        return LIVE_EVERY if self._screen.live else ALIVE_EVERY

    def started(self, step: Step) -> None:
        """A call is about to be made."""
        self._running[step.id] = (step, self._clock.now().steady)
        self._draw()

    def finished(self, step: Step, outcome: Outcome) -> None:
        """It ended, or was not made."""
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

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        """Something else worth knowing."""
        log.log(level, "%s", text)

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Tell from now on what this says is under way, such as the pull of an image."""
        self._under_way = under_way

    def tick(self) -> None:
        """Show that the run goes on; without a live line only when nothing was written for a while."""
        if self._screen.live:
            self._draw()
        elif self._clock.now().steady - self._last >= ALIVE_EVERY:
            self._print(self._state())

    def close(self) -> None:
        """Take the live line away."""
        self._screen.line("")

    def _print(self, text: str) -> None:
        self._last = self._clock.now().steady
        self._screen.write(f"{printable(masked(text))}\n")
        self._screen.flush()

    def _draw(self) -> None:
        self._screen.line(printable(masked(self._state())))

    def _state(self) -> str:
        now = self._clock.now().steady
        parts = [f"{short(now - self._begun)}: {self._done} done"]
        # First, because a live line is cut at its end: how far something is says more than for how long.
        found = self._under_way()
        parts += [f"{one}{_more(found)}" for one in found[:1]]
        for step, since in list(self._running.values())[:1]:
            parts.append(f"{describe(step.action)}{_more(self._running)} for {short(now - since)}")
        if self._decision is not None and not self._running:
            parts += [f"{wait.object} waits for {wait.waiting.value}" for wait in self._decision.waits[:1]]
            parts += [f"{hold.object} is held by {hold.rule.value}" for hold in self._decision.holds[:1]]
        return ", ".join(parts)


def _more(things: Sized) -> str:
    """How many there are beside the one that is shown."""
    return f" and {len(things) - 1} more" if len(things) > 1 else ""


class Logged:
    """The reporter of a run that does not end, or whose log is JSON: what changes is logged, and nothing else."""

    every = 0
    streams = False

    def __init__(self) -> None:
        self._held: frozenset[tuple[str, str, str]] = frozenset()

    def started(self, step: Step) -> None:
        """A call is about to be made."""
        log.debug("%s: %s", step.object, describe(step.action))

    def finished(self, step: Step, outcome: Outcome) -> None:
        """It ended, or was not made."""
        good = outcome.kind in {OutcomeKind.DONE, OutcomeKind.SKIPPED, OutcomeKind.CONFLICT}
        log.log(logging.INFO if good else logging.WARNING, "%s", step_line(step, outcome, Paint(False)))

    def decided(self, decision: Decision, now: Now) -> None:
        """A decision that differs: tell each hold when it begins."""
        del now
        held = frozenset((hold.object, hold.action, hold.rule.value) for hold in decision.holds)
        for hold in decision.holds:
            if (hold.object, hold.action, hold.rule.value) not in self._held:
                tail = f"; to end it: {hold.next_step}" if hold.next_step else ""
                log.info("held %s: %s (%s: %s)%s", hold.object, hold.action, hold.rule.value, hold.message, tail)
        for name, action, rule in sorted(self._held - held):
            log.info("no longer held %s: %s (%s)", name, action, rule)
        self._held = held

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        """Something else worth knowing."""
        log.log(level, "%s", text)

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Nothing: a log has no sign of life; a step that fails for want of time says how far it is."""
        del under_way

    def tick(self) -> None:
        """Nothing: a log has no sign of life."""

    def close(self) -> None:
        """Nothing to take away."""


class Silent(Logged):
    """The reporter of a quiet run, and of looks that change nothing: only what is wrong is told."""

    def finished(self, step: Step, outcome: Outcome) -> None:
        """It ended, or was not made."""
        if outcome.kind not in {OutcomeKind.DONE, OutcomeKind.SKIPPED, OutcomeKind.CONFLICT}:
            super().finished(step, outcome)

    def decided(self, decision: Decision, now: Now) -> None:
        """The result says it."""


@asynccontextmanager
async def ticking(reporter: Progress | Logged, clock: Clock) -> AsyncIterator[None]:
    """Call the reporter's `tick` on its cadence as long as the body runs."""
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
