"""The ledger's rows of names. Only the stages that publish names use them.

All rows can be lost: the wait of a name starts again, a hold-down ends early, and a name without pointers is kept for the longest
TTL.
"""

from dataclasses import asdict
from typing import Any, NamedTuple

from manifests.values.dns import Check
from reconciler.core.model import value_json
from reconciler.core.model.instant import Instant, read_instant


class Withdrawal(NamedTuple):
    """A name that is being withdrawn: `place` is `provider/zone/name`, `ttl` (ns) how long resolvers may still follow a pointer to
    it, `since` when the last pointer was gone (None = something still points there)."""

    place: str
    ttl: int
    since: Instant | None = None


class NameRow(NamedTuple):
    """One object that publishes names.

    `waiting`: since when it waits for its first healthy target address. `down`: since when all of them are unhealthy; `over`:
    since when that is over; while `over` is young, the addresses that were published for lack of healthy ones stay (hold-down).
    `withdrawals`: its names that are being withdrawn, sorted by place.
    """

    waiting: Instant | None = None
    down: Instant | None = None
    over: Instant | None = None
    withdrawals: tuple[Withdrawal, ...] = ()


NOTHING = NameRow()


def read_name(raw: Any) -> NameRow:
    """A row from its stored form. Raises `TypeError`, `ValueError`."""
    waiting, down, over, withdrawals = raw
    return NameRow(
        read_instant(waiting),
        read_instant(down),
        read_instant(over),
        tuple(Withdrawal(place, int(ttl), read_instant(since)) for place, ttl, since in withdrawals),
    )


class Flap(NamedTuple):
    """One target address of a policy that failed while it was published.

    `failures`: how often in a row, each soon after the one before. `passed`: since when it is healthy again, None while it fails.
    Without its row, an address returns as after a first failure.
    """

    failures: int
    passed: Instant | None = None


def read_flap(raw: Any) -> Flap:
    """A row from its stored form. Raises `TypeError`, `ValueError`."""
    failures, passed = raw
    return Flap(int(failures), read_instant(passed))


class HeldTTL(NamedTuple):
    """What resolvers may still hold of an earlier answer: for `ttl` (ns), as read from the zone, since it was gone (None = not yet)."""

    ttl: int
    since: Instant | None = None


def read_held_ttl(raw: Any) -> HeldTTL:
    """A row from its stored form. Raises `TypeError`, `ValueError`."""
    ttl, since = raw
    return HeldTTL(int(ttl), read_instant(since))


class Written(NamedTuple):
    """A record set that this instance wrote, to see whether another writer changes it.

    `asked` is the digest of what was asked for last, `confirmed` whether the zone has had it since. `reversals` are the instants at
    which another writer had changed it, `before` and `after` the texts of the latest such change.
    """

    asked: str
    confirmed: bool = False
    reversals: tuple[Instant, ...] = ()
    before: str = ""
    after: str = ""


def read_written(raw: Any) -> Written:
    """A row from its stored form. Raises `TypeError`, `ValueError`."""
    asked, confirmed, reversals, before, after = raw
    return Written(str(asked), bool(confirmed), tuple(Instant(*at) for at in reversals), str(before), str(after))


class CheckRow(NamedTuple):
    """The check that decides about the addresses of a DNSPolicy or HealthCheck, None = none; `proven`: where the declared one does."""

    check: Check | None
    proven: tuple[str, ...] = ()


def write_check(row: CheckRow) -> dict[str, Any]:
    """A row for JSON."""
    return {"check": None if row.check is None else asdict(row.check), "proven": row.proven}


def read_check(raw: Any) -> CheckRow | None:
    """A row from its stored form; None when another version of the program wrote it with other fields."""
    try:
        check = None if raw["check"] is None else value_json.read(Check, raw["check"])
        return CheckRow(check, tuple(str(address) for address in raw["proven"]))
    except (ValueError, TypeError, KeyError):
        return None
