"""What resolvers may still hold of earlier answers: TTLs as they were read from the zone, not as the manifests declare them.

A set that loses a value, or gets a shorter TTL, stays in resolvers for the TTL that it was published with. A lowered TTL therefore
counts only after the old one has expired. `dns/publish` calls `follow`; `dns/write_order` and `dns/policies` read the rows.
"""

from collections.abc import Iterable, Mapping

from manifests.values.desired import SECOND
from providers.facts import ZoneFact
from reconciler.core.dns import records
from reconciler.core.dns.records import RecordDiff, ZoneKey
from reconciler.core.model.dns_memory import HeldTTL
from reconciler.core.model.instant import NEVER, Instant, Now, elapsed, instant

_POLICY = "dnspolicy/"


def place(zone_key: ZoneKey, target: str) -> str:
    """The key of a row: where an answer of a zone leads, a name or an address."""
    return f"{zone_key[0]}/{zone_key[1]}/{target}"


def left(rows: Mapping[str, HeldTTL], key: str, now: Now) -> int:
    """How long (ns) resolvers may still hold an earlier answer that leads there; the whole TTL while it is still published."""
    row = rows.get(key)
    if row is None:
        return 0
    return row.ttl if row.since is None else max(0, row.ttl - elapsed(row.since, now))


def follow(
    rows: Mapping[str, HeldTTL], diffs: Iterable[RecordDiff], zones: Mapping[ZoneKey, ZoneFact], now: Now
) -> Mapping[str, HeldTTL]:
    """The rows with what these changes take from the zones; the same object when nothing changes.

    Args:
        rows: the rows of the decision before.
        diffs: all differences between names and zones, also those that are held.
        zones: the zones that could be read. The rows of all others stay.
        now: this instant.
    """
    going: dict[str, int] = {}
    for diff in diffs:
        for target in _leads_to(diff):
            if diff.after is None or target not in diff.after.values or diff.after.ttl < diff.before_ttl:
                key = place(diff.provider_zone, target)
                going[key] = max(going.get(key, 0), diff.before_ttl * SECOND)
    prefixes = tuple(place(zone_key, "") for zone_key in zones)
    if not going and all(row.since is not None or not key.startswith(prefixes) for key, row in rows.items()):
        return rows
    after: dict[str, HeldTTL] = {}
    for key, row in rows.items():
        ttl = left(rows, key, now)
        if key in going:
            continue
        if row.since is None and key.startswith(prefixes):
            after[key] = row._replace(since=instant(now))
        elif ttl:
            after[key] = row
    for key, ttl in going.items():
        known = rows.get(key)
        longest = max(ttl, left(rows, key, now))
        after[key] = known if known is not None and known == HeldTTL(longest) else HeldTTL(longest)
    return rows if after == rows else after


def _leads_to(diff: RecordDiff) -> tuple[str, ...]:
    """Where the published set leads, as far as a later step waits for that: names of the zone, and addresses of policies."""
    if diff.before is None or not diff.before.ttl:
        return ()
    names = records.points_at(diff.key, diff.before)
    if names:
        return tuple(name for name in names if name.endswith(f".{diff.zone}"))
    if diff.key.type in records.ADDRESS_TYPES and diff.object.startswith(_POLICY):
        return diff.before.values
    return ()


def known_since(
    known: Mapping[str, Instant], zones: Mapping[ZoneKey, ZoneFact], instance: str, now: Now
) -> Mapping[str, Instant]:
    """Since when the ledger knows what pointed at the names of each zone; the same object when nothing changes.

    That is always, in a zone that had no record set of this instance when the ledger saw it first.
    """
    new = {key: fact for key, fact in zones.items() if place(key, "") not in known}
    if not new:
        return known
    prefix = f"{instance}/"
    first = {
        place(key, ""): instant(now) if any(mark.startswith(prefix) for mark in fact.owners.values()) else NEVER
        for key, fact in new.items()
    }
    return {**known, **first}
