"""Time as a value. The shell reads the clocks; every rule gets `Now` and keeps `Instant`s.

Rules on elapsed time use the steady clock, which has a meaning within one boot only; the wall clock bridges boots and is used
directly only for dates of manifests and commands.
"""

from typing import Any, NamedTuple

FOREVER = 2**62
"""A steady instant that never comes: the answer does not change with time."""


class Now(NamedTuple):
    """One reading of the clocks: wall (ns since the epoch), steady (CLOCK_BOOTTIME, ns), the kernel's boot id."""

    wall: int
    steady: int
    boot: str


class Instant(NamedTuple):
    """A moment that is remembered over restarts of the program and of the host."""

    wall: int
    steady: int
    boot: str


def instant(now: Now) -> Instant:
    """This moment as a value of the ledger."""
    return Instant(now.wall, now.steady, now.boot)


def read_instant(raw: Any) -> Instant | None:
    """A stored moment: two numbers and a text, or none. Raises `TypeError`."""
    if raw is None:
        return None
    at = Instant(*raw)
    if not (isinstance(at.wall, int) and isinstance(at.steady, int) and isinstance(at.boot, str)):
        raise TypeError(f"not a moment: {at}")
    return at


def elapsed(since: Instant, now: Now) -> int:
    """Nanoseconds since then, never negative.

    Over a reboot the wall clock counts, and a clock that steps back adds nothing. A moment of an earlier boot is at least as old as
    this boot, so a wall clock that is wrong until it is set (a host without a clock battery) cannot stop time.
    """
    if since.boot == now.boot:
        return max(0, now.steady - since.steady)
    return max(now.steady, now.wall - since.wall)


def due(since: Instant, wait: int, now: Now) -> int:
    """The steady instant at which `wait` ns will have passed since then: <= now.steady when they have."""
    return now.steady + wait - elapsed(since, now)


def due_awake(since: Instant, wait: int, now: Now) -> int:
    """As `due`, but time before the last boot does not count: for progress that stops while the host is down."""
    return wait + (since.steady if since.boot == now.boot else 0)


def next_after(base: int, period: int, now: Now) -> int:
    """The first steady instant after now on the grid base + n * period: the same answer at every instant before it."""
    return base + ((now.steady - base) // period + 1) * period


NEVER = Instant(0, 0, "")
"""An instant before all others, for commands without a time."""
