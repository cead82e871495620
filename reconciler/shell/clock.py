"""The only module that reads clocks and sleeps, so that everything above it can run in virtual time.

The loop takes a `Clock`. The lock, the store and the manifest source run without an event loop and take a `BlockingClock`.
`SystemClock` implements both for this host; the loop's is an `InstanceClock` over it (`instance_clock.py`). Tests use virtual time.
"""

import asyncio
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now

LONGEST_TIMER = 30 * SECOND
"""The longest single timer (ns). Timers of the event loop stop while the host is suspended, CLOCK_BOOTTIME does not; so a
wake-up after a suspend is at most this late."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MACHINE_ID = Path("/etc/machine-id")
TIME_NAMESPACE = Path("/proc/self/ns/time")

FIRST_TIME_NAMESPACE = "time:[4026531834]"
"""The time namespace of the host itself (PROC_TIME_INIT_INO in Linux's include/linux/proc_ns.h). Others may shift CLOCK_BOOTTIME, see
time_namespaces(7)."""


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


class HostClock(Clock, BlockingClock, Protocol):
    """The clocks of one host. The lineage of its readings is the boot id."""

    @property
    def machine(self) -> str:
        """What identifies this host over reboots; empty where nothing does."""


def utc(wall: int) -> datetime:
    """A wall-clock instant (ns since the epoch) as a date in UTC, to the microsecond."""
    seconds, rest = divmod(wall, SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def utc_stamp(wall: int) -> str:
    """A wall-clock instant (ns) for a file name: 20261127T093000Z."""
    return utc(wall).strftime("%Y%m%dT%H%M%SZ")


class SystemClock:
    """The clocks of this host. The lineage of a reading is the kernel's boot id.

    In a time namespace of its own, the namespace is a part of it: another one may have another CLOCK_BOOTTIME in the same boot.

    Raises:
        OSError: the boot id cannot be read (no /proc), so instants could not be kept over a reboot.
    """

    __slots__ = ("_boot", "machine")

    def __init__(self) -> None:
        self._boot = BOOT_ID.read_text(encoding="ascii").strip() + _time_namespace()
        self.machine = _machine()

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


def _time_namespace() -> str:
    """The time namespace of this process, where it is not the host's own."""
    with suppress(OSError):  # a kernel without time namespaces
        name = os.readlink(TIME_NAMESPACE)
        return "" if name == FIRST_TIME_NAMESPACE else f"/{name}"
    return ""


def _machine() -> str:
    """The machine id (machine-id(5)) and the host name, because copies of a machine often share the first one."""
    try:
        machine = MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return f"{machine}/{os.uname().nodename}" if machine else ""
