"""What must be remembered of names: rows of the ledger. Kept apart because only the stages that publish names look at them.

All of it can be lost: a name that waits begins to wait anew, a hold-down ends early, and a name that nothing points at any
more is kept for as long as resolvers can remember at most.
"""

from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant, read_instant


class Withdrawal(NamedTuple):
    """A name on its way out: `place` is `provider/zone/name`, `ttl` (ns) how long resolvers may still come by what pointed
    at it, `since` when that was seen gone (None = something still points there)."""

    place: str
    ttl: int
    since: Instant | None = None


class NameRow(NamedTuple):
    """One object that publishes names: since when it waits for its first healthy leaf, since when all of it is unhealthy, since
    when that is over, and its names on their way out, sorted by place.

    `down` and `over` make the hold-down: while `over` is young, what was published for want of anything healthy stays.
    """

    waiting: Instant | None = None
    down: Instant | None = None
    over: Instant | None = None
    withdrawals: tuple[Withdrawal, ...] = ()


NOTHING = NameRow()


def read_name(raw: Any) -> NameRow:
    """A row as it was stored. Raises `TypeError`, `ValueError`."""
    waiting, down, over, withdrawals = raw
    return NameRow(
        read_instant(waiting),
        read_instant(down),
        read_instant(over),
        tuple(Withdrawal(place, int(ttl), read_instant(since)) for place, ttl, since in withdrawals),
    )
