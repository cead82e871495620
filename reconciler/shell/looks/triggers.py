"""Triggers that make the next look or read come sooner. A trigger carries no facts: it only says "look now".

The loop owns one `Wake` and waits on it; `FileTrigger`, run by `wire.py`, sets it when a file of the manifests changes. It does
not filter hidden or backup files: the reader decides what a manifest is. A trigger that fails costs time, never correctness,
because the loop reads everything on its cadence as well.
"""

import asyncio
import logging
import os
from contextlib import aclosing
from pathlib import Path

from watchfiles import awatch

from manifests.values.desired import SECOND
from reconciler.shell.clock import Clock

log = logging.getLogger(__name__)

SETTLE_MS = 50
"""Changes with shorter gaps (ms) than this are one group."""

GROUP_MS = 400
"""A group of changes is passed on after this time (ms) even when changes keep coming."""

CHECK_MS = 2_000
"""How often (ms) the watched directory is compared with the one that the path leads to now (one `stat`). The kernel reports
nothing when the directory is removed or a link to it is changed."""

REASONS_KEPT = 8
"""Reasons kept for one wake-up."""

REARM_FIRST = SECOND // 2
REARM_LONGEST = 60 * SECOND
"""Waits (ns) before watching again: the first one, doubled up to the longest while watching fails. A missing directory is
checked at the first interval, with one `stat`."""


class Wake:
    """An event with reasons. Any code on the event loop may set it; the loop takes it.

    Attributes:
        event: set from the first reason, or `end_sleep`, until `take`.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._reasons: dict[str, None] = {}

    def set(self, reason: str) -> None:
        """Ask for a tick. Equal reasons count once."""
        if len(self._reasons) < REASONS_KEPT:
            self._reasons[reason] = None
        self.event.set()

    def end_sleep(self) -> None:
        """End the sleep without asking for a tick: the sleeper computes the end of its sleep again."""
        self.event.set()

    @property
    def asked(self) -> bool:
        """Whether there is a reason that was not taken yet."""
        return bool(self._reasons)

    def take(self) -> tuple[str, ...]:
        """The reasons since the last call, oldest first; clears the event."""
        reasons = tuple(self._reasons)
        self._reasons.clear()
        self.event.clear()
        return reasons


class _Stop(asyncio.Event):
    """Set when `outer` is set. A cancelled `awatch` sets its own event, and must not set `outer`."""

    def __init__(self, outer: asyncio.Event) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or self._outer.is_set()


class FileTrigger:
    """Wakes the loop when anything below a directory changes.

    It also wakes the loop when a watch begins, because earlier changes were missed. The directory may vanish and return, or be
    a link that changes.

    Args:
        root: the directory; links below it are not followed.
        wake: is set at a change.
        clock: waits between attempts to watch.
        check: how often to compare the directory with the path, in milliseconds.
    """

    def __init__(self, root: Path, wake: Wake, clock: Clock, check: int = CHECK_MS) -> None:
        self._root = root
        self._wake = wake
        self._clock = clock
        self._check = check

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until `stop` is set. Raises nothing: a failing watch is logged once and begun again, with growing waits."""
        pause, logged = REARM_FIRST, ""
        while not stop.is_set():
            try:
                watched = await self._watch(stop)
            except (
                OSError,
                RuntimeError,
            ) as error:  # watchfiles raises both: no watches left, no permission, removed meanwhile
                problem = f"{self._root}: cannot be watched for changes: {error}"
                watched = False
            else:
                problem = f"{self._root}: does not exist, so it cannot be watched for changes"
            if watched:
                pause, logged = REARM_FIRST, ""
                continue
            if problem != logged:
                log.warning("%s; changes are found by the periodic read; watching is retried automatically", problem)
            if not self._root.exists():
                pause = REARM_FIRST
            logged = problem
            await self._clock.sleep_until(self._clock.now().steady + pause, stop)
            pause = min(pause * 2, REARM_LONGEST)

    async def _watch(self, stop: asyncio.Event) -> bool:
        """Watch one directory as long as the path leads to it. Returns whether it existed."""
        watched = _identity(self._root)
        if watched is None:
            return False
        begun = False
        watching = awatch(
            self._root,
            watch_filter=None,
            debounce=GROUP_MS,
            step=SETTLE_MS,
            stop_event=_Stop(stop),
            rust_timeout=self._check,
            yield_on_timeout=True,
            recursive=True,
        )
        async with aclosing(watching):
            async for changes in watching:
                if changes:
                    self._wake.set(_reason(self._root, {path for _, path in changes}))
                elif not begun:
                    self._wake.set(f"watching {self._root}")
                begun = True
                if _identity(self._root) != watched:
                    self._wake.set(f"{self._root} was removed or replaced")
                    break
        return True


def _identity(path: Path) -> tuple[int, int] | None:
    """The directory that the path leads to now: (device, inode); None when it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _reason(root: Path, paths: set[str]) -> str:
    """One changed path, relative to the root, and the number of others: the reader reads everything anyway."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"changed: {os.path.relpath(min(paths), root)}{more}"
