"""The only module that reads clocks and sleeps, so that everything above it can run in virtual time.

The loop takes a `Clock`. The lock, the store and the manifest source run without an event loop and take a `BlockingClock`.
`SystemClock` implements both; tests use virtual time.
"""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now

LONGEST_TIMER = 30 * SECOND
"""The longest single timer (ns). Timers of the event loop stop while the host is suspended, CLOCK_BOOTTIME does not; so a
wake-up after a suspend is at most this late."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What the loop needs of time."""

    def now(self) -> Now:
        """One reading of all clocks."""

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Return at the steady instant (ns), or as soon as `wake` is set. Yields to other tasks at least once."""


class BlockingClock(Protocol):
    """What code without an event loop needs of time."""

    def now(self) -> Now:
        """One reading of all clocks."""

    def pause(self, duration: int) -> None:
        """Block the calling thread for `duration` ns."""


def utc(wall: int) -> datetime:
    """A wall-clock instant (ns since the epoch) as a date in UTC, to the microsecond."""
    seconds, rest = divmod(wall, SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def utc_stamp(wall: int) -> str:
    """A wall-clock instant (ns) for a file name: 20261127T093000Z."""
    return utc(wall).strftime("%Y%m%dT%H%M%SZ")


class SystemClock:
    """The clocks of this host.

    Raises:
        OSError: the boot id cannot be read (no /proc), so instants could not be kept over a reboot.
    """

    __slots__ = ("_boot",)

    def __init__(self) -> None:
        self._boot = BOOT_ID.read_text(encoding="ascii").strip()

    def now(self) -> Now:
        """One reading of all clocks."""
        return Now(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), self._boot)

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Return at the steady instant (ns), or as soon as `wake` is set. Yields to other tasks at least once."""
        await asyncio.sleep(0)
        while not wake.is_set():
            left = steady - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            if left <= 0:
                return
            try:
                async with asyncio.timeout(min(left, LONGEST_TIMER) / SECOND):
                    await wake.wait()
            except TimeoutError:
                continue

    def pause(self, duration: int) -> None:
        """Block the calling thread for `duration` ns."""
        time.sleep(max(0, duration) / SECOND)
