"""Instants and ages as container engines tell them, in our units. Called by `docker_look.py`.

Engines know the wall clock only, and their list shows ages for people ("Up 5 minutes"). Both are turned into integer
nanoseconds here; nothing else in the runtime reads a clock.
"""

import os
import re
import socket
import struct
import time
from datetime import UTC, datetime
from typing import NamedTuple

SECOND = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second of the times in /proc/PID/stat."""

PID_FILE = "/run/docker.pid"
"""Where Debian's and Docker's packages let the daemon write its pid; asked when systemd holds the socket."""

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
"""The wall clock may be off by this much (ns) before instants of the past are placed anew: slewing must not move facts."""


def wall() -> int:
    """The wall clock in ns."""
    return time.time_ns()


def steady() -> int:
    """CLOCK_BOOTTIME in ns."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def parse_instant(text: str) -> int:
    """An RFC 3339 instant as wall-clock ns; 0 for the engines' zero time and for what is no instant."""
    match = _RFC3339.fullmatch(text)
    if match is None or text.startswith("0001-01-01"):
        return 0
    zone = "+00:00" if match[3] == "Z" else match[3]
    whole = int(datetime.fromisoformat(match[1] + zone).astimezone(UTC).timestamp())
    return whole * SECOND + int((match[2] or "0").ljust(9, "0"))


def age_span(status: str) -> tuple[int, int] | None:
    """The shortest and longest time (ns) since a container came into its state, by the list's `Status`; None = no age there.

    The rounding is that of docker/go-units' `HumanDuration`: whole seconds and minutes, hours to the nearest, and days, weeks,
    months and years cut off from hours.
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
    """Steady minus wall, kept still while the wall clock is only slewed."""

    def __init__(self) -> None:
        self._value: int | None = None

    def get(self) -> int:
        """The offset in ns."""
        now = steady() - wall()
        if self._value is None or abs(now - self._value) > _SAME_OFFSET:
            self._value = now
        return self._value


_offset = _Offset()


def to_steady(instant: int) -> int:
    """A wall-clock instant of this boot as a steady one; 0 when it lies before the boot or is not known."""
    return max(0, instant + _offset.get()) if instant else 0


def boot_wall() -> int:
    """The wall-clock instant of the boot, by today's clock."""
    return -_offset.get()


def process_start(pid: int) -> int:
    """The steady instant at which a process of this host started; 0 when it cannot be seen from here."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # /proc counts from the same boot as CLOCK_BOOTTIME does, see proc(5); field 22 is the start time.
        return int(fields[19]) * SECOND // TICKS
    except (OSError, ValueError, IndexError):
        return 0


def running_since(pid: int, started_at: int) -> int:
    """The steady instant since which a container runs.

    The start of its process is exact and the same for everybody who looks. It is believed only near the engine's own start
    time: in another pid namespace the number is somebody else's.
    """
    by_clock = to_steady(started_at)
    by_process = process_start(pid) if pid > 0 else 0
    return by_process if by_process and abs(by_process - by_clock) <= 5 * SECOND else by_clock


class EngineLife(NamedTuple):
    """One life of the engine's daemon: its pid and steady start; (0, 0) when it cannot be told."""

    pid: int = 0
    started: int = 0


def engine_life(path: str, timeout: float) -> EngineLife:
    """Which daemon serves a socket, and since when. Raises OSError when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout)
        link.connect(path)
        pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    if pid == 1:  # systemd made the socket before the daemon was there
        pid = _pid_from_file()
    started = process_start(pid) if pid > 0 else 0
    return EngineLife(pid, started) if started else EngineLife()


def _pid_from_file() -> int:
    try:
        with open(PID_FILE, encoding="ascii") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return 0
