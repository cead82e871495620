"""What may make the next look come sooner. Events never say what is the case: they only say "look now".

The loop owns one `Wake` and waits on it; `FileTrigger` sets it when something below a directory of manifests changes. Hidden
and backup files are not filtered out here: the reader decides what a manifest is. A trigger that fails costs time, never
correctness, because the loop looks at everything on its own cadence as well.
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
"""Changes that follow each other more closely than this belong together."""

GROUP_MS = 400
"""Changes are handed on after this time even when they do not stop coming."""

CHECK_MS = 2_000
"""How often the watched directory is compared with the one that the path leads to now (one `stat`). The kernel reports
nothing about a directory that was removed or swapped behind a link."""

REASONS_KEPT = 8
"""More reasons than this for one wake-up help nobody."""

REARM_FIRST = SECOND // 2
REARM_LONGEST = 60 * SECOND
"""Waits (ns) before watching again: the first, doubled up to the longest while it goes on failing. A directory that is
missing is looked for at the first interval: that is one `stat`."""


class Wake:
    """An event with reasons. Anybody on the event loop may set it; the loop takes it.

    Attributes:
        event: set from the first reason, or `stir`, until `take`.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._reasons: dict[str, None] = {}

    def set(self, reason: str) -> None:
        """Ask for a look. Equal reasons count once."""
        if len(self._reasons) < REASONS_KEPT:
            self._reasons[reason] = None
        self.event.set()

    def stir(self) -> None:
        """End the sleep without asking for a look: whoever sleeps finds out anew until when."""
        self.event.set()

    @property
    def asked(self) -> bool:
        """Whether there is a reason that was not taken."""
        return bool(self._reasons)

    def take(self) -> tuple[str, ...]:
        """The reasons since the last call, oldest first; clears the event. What comes later sets it again."""
        reasons = tuple(self._reasons)
        self._reasons.clear()
        self.event.clear()
        return reasons


class _Stop(asyncio.Event):
    """Set when `outer` is. A cancelled `awatch` sets the event that it was given, and `outer` is not ours to set."""

    def __init__(self, outer: asyncio.Event) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or self._outer.is_set()


class FileTrigger:
    """Wakes the loop when anything below a directory changes.

    A wake-up also follows each time the watch begins, because what changed before that went unseen. The directory may
    vanish, come back, or be a link that is swapped.

    Args:
        root: the directory; links below it are not followed.
        wake: what to set.
        clock: waits between attempts to watch.
        check: how often to compare the directory with the path, in milliseconds.
    """

    def __init__(self, root: Path, wake: Wake, clock: Clock, check: int = CHECK_MS) -> None:
        self._root = root
        self._wake = wake
        self._clock = clock
        self._check = check

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until `stop` is set. Raises nothing: a failing watch is logged once and begun again, ever more slowly."""
        pause, told = REARM_FIRST, ""
        while not stop.is_set():
            try:
                watched = await self._watch(stop)
            except (
                OSError,
                RuntimeError,
            ) as error:  # watchfiles raises both: no watches left, no rights, gone meanwhile
                problem = f"{self._root}: cannot be watched for changes: {error}"
                watched = False
            else:
                problem = f"{self._root}: is not there, so it cannot be watched for changes"
            if watched:
                pause, told = REARM_FIRST, ""
                continue
            if problem != told:
                log.warning("%s; it is read on its usual cadence and watched again as soon as possible", problem)
            if not self._root.exists():
                pause = REARM_FIRST
            told = problem
            await self._clock.sleep_until(self._clock.now().steady + pause, stop)
            pause = min(pause * 2, REARM_LONGEST)

    async def _watch(self, stop: asyncio.Event) -> bool:
        """Watch one directory as long as the path leads to it. Returns whether there was one to watch."""
        armed = _identity(self._root)
        if armed is None:
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
                if _identity(self._root) != armed:
                    self._wake.set(f"{self._root} was removed or replaced")
                    break
        return True


def _identity(path: Path) -> tuple[int, int] | None:
    """Which directory the path leads to now, None when to none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _reason(root: Path, paths: set[str]) -> str:
    """One changed path, relative to the root, stands for all: the reader reads everything anyway."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"changed: {os.path.relpath(min(paths), root)}{more}"
