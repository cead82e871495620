"""The only module that reads clocks and the only one that sleeps, so that everything above it can run in virtual time.

The loop takes a `Clock`; the lock, which waits before there is an event loop, takes the two blocking methods of it.
`SystemClock` is the real thing. `VirtualClock` is shipped beside it because the simulator and the tests of several packages
need one, and two of them would disagree.
"""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from manifests.values.desired import SECOND
from reconciler.core.model.instant import FOREVER, Now

LONGEST_TIMER = 30 * SECOND
"""The event loop's timers stand still while the host is suspended; CLOCK_BOOTTIME does not. So no single timer is longer
than this (ns), and a wake-up after a suspend is late by no more."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What the loop needs of time."""

    def now(self) -> Now:
        """One reading of all clocks."""

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Return at the steady instant (ns), or as soon as `wake` is set. Gives way to other tasks at least once."""


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
    """A wall-clock instant (ns) as it goes into a file name: 20261127T093000Z."""
    return utc(wall).strftime("%Y%m%dT%H%M%SZ")


class SystemClock:
    """The clocks of this host.

    Raises:
        OSError: the kernel does not tell its boot id (no /proc), so instants could not be kept over a reboot.
    """

    __slots__ = ("_boot",)

    def __init__(self) -> None:
        self._boot = BOOT_ID.read_text(encoding="ascii").strip()

    def now(self) -> Now:
        """One reading of all clocks."""
        return Now(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), self._boot)

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Return at the steady instant (ns), or as soon as `wake` is set. Gives way to other tasks at least once."""
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


class VirtualClock:
    """A clock that jumps: whoever sleeps is at once at the instant it asked for.

    With several sleepers the earliest goes first, so that time never runs past somebody's instant. All times in ns.
    """

    __slots__ = ("_boot", "_sleepers", "_steady", "_wall")

    def __init__(
        self, wall: int = 1_800_000_000 * SECOND, steady: int = 1_000 * SECOND, boot: str = "virtual-boot-1"
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._boot = boot
        self._sleepers: list[int] = []

    def now(self) -> Now:
        """One reading of all clocks."""
        return Now(self._wall, self._steady, self._boot)

    def advance(self, duration: int) -> None:
        """Let `duration` ns pass on both clocks."""
        if duration < 0:
            raise ValueError(f"virtual clock: cannot advance by {duration} ns; step_wall moves the wall clock back")
        self._wall += duration
        self._steady += duration

    def step_wall(self, step: int) -> None:
        """Set the wall clock forward or back, as a person or NTP does. The steady clock does not notice."""
        self._wall += step

    def reboot(self, boot: str, downtime: int = 60 * SECOND, steady: int = 10 * SECOND) -> None:
        """Start the host anew: another boot id, the steady clock near zero, the wall clock later by `downtime`."""
        self._boot = boot
        self._steady = steady
        self._wall += downtime

    def pause(self, duration: int) -> None:
        """Jump by `duration` ns."""
        self.advance(max(0, duration))

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Jump to the instant unless `wake` is set. An instant that never comes waits for `wake` alone."""
        self._sleepers.append(steady)
        try:
            await asyncio.sleep(0)
            if steady >= FOREVER:
                await wake.wait()
            while not wake.is_set() and self._steady < steady:
                if steady == min(self._sleepers):
                    self.advance(steady - self._steady)
                    return
                await asyncio.sleep(0)
        finally:
            self._sleepers.remove(steady)
