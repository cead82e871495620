"""Time as a value. The shell reads the clocks; every rule gets `Now` and keeps `Instant`s.

Elapsed-time rules use the steady clock, which only means something within one boot; the wall clock bridges boots and is
used directly only for what people write as dates.
"""

from typing import Any, NamedTuple

FOREVER = 2**62
"""A steady instant that never comes: "no clock changes this"."""


class Now(NamedTuple):
    """One reading of the clocks: wall (ns since the epoch), steady (CLOCK_BOOTTIME, ns), the kernel's boot id."""

    wall: int
    steady: int
    boot: str


class Instant(NamedTuple):
    """A moment that must be remembered over restarts of the program and of the host."""

    wall: int
    steady: int
    boot: str


def instant(now: Now) -> Instant:
    """This moment, to be kept."""
    return Instant(now.wall, now.steady, now.boot)


def read_instant(raw: Any) -> Instant | None:
    """A stored moment: three numbers and texts, or none. Raises `TypeError`."""
    return None if raw is None else Instant(*raw)


def elapsed(since: Instant, now: Now) -> int:
    """Nanoseconds since then, never negative.

    Over a reboot by the wall clock, so that one that steps back adds nothing; but what was in an earlier boot is at least as long
    ago as this one has lasted, so that one that is wrong until it is set (a host without a battery for it) cannot stop time.
    """
    if since.boot == now.boot:
        return max(0, now.steady - since.steady)
    return max(now.steady, now.wall - since.wall)


def due(since: Instant, wait: int, now: Now) -> int:
    """The steady instant at which `wait` ns will have passed since then: <= now.steady when they have."""
    return now.steady + wait - elapsed(since, now)


def due_awake(since: Instant, wait: int, now: Now) -> int:
    """As `due`, but of the time before the last boot nothing counts: for what could not go on while the host was down."""
    return wait + (since.steady if since.boot == now.boot else 0)


def next_after(base: int, period: int, now: Now) -> int:
    """The first steady instant after now on the grid base + n * period: the same answer at every instant before it."""
    return base + ((now.steady - base) // period + 1) * period


NEVER = Instant(0, 0, "")
"""An instant before everything: when nobody said when."""
