"""Timestamps and ages as container engines write them, in integer nanoseconds. No other module of the runtime reads a clock.

Engines know the wall clock only, and their list shows rounded ages ("Up 5 minutes"). Called by `inspection.py`, `health.py`,
`fact.py`, `daemon.py` and `observe.py`.
"""

import os
import re
import time
from datetime import UTC, datetime

from providers.lib.clock import boottime

SECOND = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second of the times in /proc/PID/stat."""

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)")
_AGE = re.compile(
    r"(?:^Up |\) )(?:(Less than a second)|(About a minute)|(About an hour)|(\d+) (second|minute|hour|day|week|month|year)s?)"
)
_UNIT = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_592_000,
    "year": 31_536_000,
}
_SAME_OFFSET = 200_000_000
"""How far (ns) the wall clock may move before past timestamps are converted again: slewing must not move facts."""


def wall() -> int:
    """The wall clock in ns."""
    return time.time_ns()


def parse_timestamp(text: str) -> int:
    """An RFC 3339 timestamp as wall-clock ns; 0 for the engines' zero time and for any other text."""
    match = _RFC3339.fullmatch(text)
    if match is None or text.startswith("0001-01-01"):
        return 0
    zone = "+00:00" if match[3] == "Z" else match[3]
    whole = int(datetime.fromisoformat(match[1] + zone).astimezone(UTC).timestamp())
    return whole * SECOND + int((match[2] or "0").ljust(9, "0"))


def age_span(status: str) -> tuple[int, int] | None:
    """The shortest and longest time (ns) that a container has been in its state, from the list's `Status`; None without an age.

    The rounding is that of docker/go-units' `HumanDuration`: whole seconds and minutes, hours to the nearest; days, weeks,
    months and years are cut off from hours.
    """
    match = _AGE.search(status)
    if match is None:
        return None
    if match[1]:
        return 0, SECOND
    if match[2]:
        return 60 * SECOND, 120 * SECOND
    if match[3]:
        return 3600 * SECOND, 5400 * SECOND
    unit = _UNIT[match[5]]
    low = int(match[4]) * unit
    slack = 1800 if unit >= 3600 else 0
    return (low - slack) * SECOND, (low + unit + slack) * SECOND


class _Offset:
    """Steady minus wall clock, constant while the wall clock is only slewed."""

    def __init__(self) -> None:
        self._value: int | None = None

    def get(self) -> int:
        """The offset in ns."""
        now = boottime() - wall()
        if self._value is None or abs(now - self._value) > _SAME_OFFSET:
            self._value = now
        return self._value


_offset = _Offset()


def to_steady(timestamp: int) -> int:
    """A wall-clock timestamp of this boot as a steady one; 0 when it is before the boot or unknown."""
    return max(0, timestamp + _offset.get()) if timestamp else 0


def boot_wall() -> int:
    """The wall-clock time of the boot, by the present clock."""
    return -_offset.get()


def process_start(pid: int) -> int:
    """When a process of this host started (steady ns); 0 when it cannot be seen from here."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # /proc counts from the same boot as CLOCK_BOOTTIME does, see proc(5); field 22 is the start time.
        return int(fields[19]) * SECOND // TICKS
    except (OSError, ValueError, IndexError):
        return 0


def running_since(pid: int, started_at: int) -> int:
    """Since when a container runs (steady ns).

    The start of its process is exact and the same for every observer. It counts only near the engine's own start time: in
    another pid namespace the number belongs to another process.
    """
    by_clock = to_steady(started_at)
    by_process = process_start(pid) if pid > 0 else 0
    return by_process if by_process and abs(by_process - by_clock) <= 5 * SECOND else by_clock
