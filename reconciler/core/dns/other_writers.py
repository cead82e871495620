"""Other writers: record sets of ours that another program changes again and again.

A set that differs is written again. After `REWRITES` within `WITHIN`, the next change by another writer is left for that time, with a
hold that says so: two programs that fight fill the zone's history, its secondaries and caches. Withdrawals for health are written
all the same. `dns/publish` calls `follow` and `hold`,
the loop `confirm`.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from manifests.values.desired import SECOND
from providers.actions import ChangeRecords
from providers.facts import RecordKey, RecordSet, ZoneFact
from reconciler.core.dns import records
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneKey
from reconciler.core.model.dns_memory import Written
from reconciler.core.model.instant import Now, due, elapsed, instant
from reconciler.core.model.reasons import Hold, Rule

REWRITES = 3
"""How often a set is written again before it is left to the other writer."""

WITHIN = 900 * SECOND
"""The span in which they count, and the time for which the set is then left (ns). Three runs of a program every five minutes, the
usual period of cron jobs and of other DNS tools, lie within it."""

MOST = 500
"""Most sets that are remembered; a program that fights for more of them is reported for these."""

_BALANCED = frozenset({"klb", "klb-wildcard"})
"""Labels of all names of trees."""


def row_key(zone_key: ZoneKey, key: RecordKey) -> str:
    """The key of a row: one record set."""
    return f"{zone_key[0]}/{zone_key[1]}/{key.name} {key.type} {key.set_id}"


def follow(
    rows: Mapping[str, Written], changes: Iterable[RecordDiff], zones: Mapping[ZoneKey, ZoneFact], now: Now
) -> Mapping[str, Written]:
    """The rows after this look: changes by another writer, and what is asked for now. The same object when nothing changes."""
    prefixes = {f"{provider}/{zone}/": fact for (provider, zone), fact in zones.items()}
    after: dict[str, Written] = {}
    for name, row in rows.items():
        prefix = next((known for known in prefixes if name.startswith(known)), None)
        after[name] = row if prefix is None else _seen(row, _key(name, prefix), prefixes[prefix], now)
    for change in changes:
        name = row_key(change.provider_zone, change.key)
        known = after.get(name)
        if known is None and len(after) >= MOST:
            continue  # there may be 100,000 changes
        asked = digest(change.after)
        if known is None:
            after[name] = Written(asked)
        elif known.asked != asked:
            after[name] = known._replace(asked=asked, confirmed=False)
    if len(after) == MOST:
        # Sets that no other writer has changed make room for those that are written next.
        after = {name: row for name, row in after.items() if row.reversals or not row.confirmed}
    return rows if after == rows else after


def confirm(rows: Mapping[str, Written], actions: Iterable[ChangeRecords]) -> Mapping[str, Written]:
    """The rows after these writes. Another writer may change a set again before the next look, or before it is read back."""
    after = dict(rows)
    for action in actions:
        for change in action.changes:
            name = row_key((action.provider, action.zone), change.key)
            row = after.get(name)
            if row is not None and not row.confirmed and row.asked == digest(change.after):
                after[name] = row._replace(confirmed=True, before=records.show_set(change.after))
    return rows if after == rows else after


def _seen(row: Written, key: RecordKey, zone: ZoneFact, now: Now) -> Written:
    current = zone.records.get(key)
    if digest(current) == row.asked:
        return row if row.confirmed else row._replace(confirmed=True, before=records.show_set(current))
    if not row.confirmed:
        return row
    recent = row.reversals if row.reversals and elapsed(row.reversals[-1], now) < WITHIN else ()
    reversals = (*recent, instant(now))[-REWRITES - 1 :]
    if len(reversals) > REWRITES and elapsed(reversals[0], now) - elapsed(reversals[-2], now) >= WITHIN:
        reversals = reversals[1:]  # each but the last was followed by a rewrite, and these lie too far apart
    return row._replace(confirmed=False, reversals=reversals, after=records.show_set(current))


def hold(rows: Mapping[str, Written], change: RecordDiff, names: Names, now: Now) -> Hold | None:
    """The hold on a set for which another writer fights; None when it may be written."""
    row = rows.get(row_key(change.provider_zone, change.key))
    if row is None or len(row.reversals) <= REWRITES:
        return None
    until = due(row.reversals[-1], WITHIN, now)
    if until <= now.steady or _withdraws(change, names):
        return None
    name = f"{change.key.name} {change.key.type}"
    message = (
        f"another writer changes {name} again after {REWRITES} rewrites in {WITHIN // SECOND // 60} minutes, last from "
        f"{row.before} to {row.after}; reconcile leaves it as it is for now"
    )
    next_step = f"stop the other writer of zone {change.zone}, or remove this record set from {change.object}"
    return Hold(change.object, f"change {name}", Rule.CONFLICTING_WRITER, message, until=until, next_step=next_step)


def _withdraws(change: RecordDiff, names: Names) -> bool:
    """Whether a change withdraws something of the policy for its health: an unhealthy address, or a name without healthy targets."""
    outcome = names.policies.get(change.object)
    if outcome is None or change.edited or change.before is None:
        return False
    kept = frozenset(change.after.values) if change.after is not None else frozenset[str]()
    published = names.own.get(change.provider_zone, set())
    unhealthy = {
        target_address.address
        for target_address in outcome.target_addresses
        if target_address.address not in outcome.wanted
    }
    return any(
        value in unhealthy or (not _BALANCED.isdisjoint(value.split(".")) and value not in published)
        for value in change.before.values
        if value not in kept
    )


def _key(name: str, prefix: str) -> RecordKey:
    return RecordKey(*name[len(prefix) :].split(" ", 2))


def digest(record: RecordSet | None) -> str:
    """The digest of a record set, as a row has it."""
    return blake2b(repr(record).encode(), digest_size=8).hexdigest()
