"""Time as a value. The shell reads the clocks; every rule gets `Now` and keeps `Instant`s.

Rules on elapsed time use the steady clock of the instance. It belongs to the ledger and not to a host: it goes on when the host
reboots, and when another host takes over. `shell/instance_clock.py` makes it from the clocks of the host. The wall clock is used
directly only for dates of manifests and commands.
"""

from typing import Any, NamedTuple

FOREVER = 2**62
"""A steady instant that never comes: the answer does not change with time."""


class Now(NamedTuple):
    """One reading of the clocks: wall (ns since the epoch), steady (ns) and lineage.

    The lineage names the steady clock: that of a ledger, for the loop and all rules. A clock of a host has its boot id instead; such
    readings never get into rules.
    """

    wall: int
    steady: int
    lineage: str


class Instant(NamedTuple):
    """A moment that is remembered over restarts of the program, reboots and a move to another host."""

    wall: int
    steady: int
    lineage: str


def instant(now: Now) -> Instant:
    """This moment as a value of the ledger."""
    return Instant(*now)


def read_instant(raw: Any) -> Instant | None:
    """A stored moment: two numbers and a text, or none. Raises `TypeError`."""
    if raw is None:
        return None
    at = Instant(*raw)
    if not (isinstance(at.wall, int) and isinstance(at.steady, int) and isinstance(at.lineage, str)):
        raise TypeError(f"not a moment: {at}")
    return at


def elapsed(since: Instant, now: Now) -> int:
    """Nanoseconds since then, never negative.

    Within a lineage the steady clock counts, and no step of a wall clock adds or takes anything. For a moment of another lineage
    only the difference of the wall clocks is known; a clock that steps back adds nothing.
    """
    if since.lineage == now.lineage:
        return max(0, now.steady - since.steady)
    return max(0, now.wall - since.wall)


def due(since: Instant, wait: int, now: Now) -> int:
    """The steady instant at which `wait` ns will have passed since then: <= now.steady when they have."""
    return now.steady + wait - elapsed(since, now)


def due_awake(since: Instant, wait: int, now: Now, booted: int) -> int:
    """As `due`, but time before the host booted does not count: for progress that stops while the host is down."""
    return wait + max(due(since, 0, now), booted)


def next_after(base: int, period: int, now: Now) -> int:
    """The first steady instant after now on the grid base + n * period: the same answer at every instant before it."""
    return base + ((now.steady - base) // period + 1) * period


NEVER = Instant(0, 0, "")
"""An instant before all others, for commands without a time."""
