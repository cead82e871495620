"""Changes of record sets that an operator must approve: many deletions in one zone, and sets of another value that are taken over.

The guard does not see changes for health: a withdrawal is not a deletion. `decide` calls `judge` once, `publish` asks the result.
"""

from collections.abc import Iterable, Mapping, Sequence

from providers.facts import ZoneFact
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneKey
from reconciler.core.limits import approvals
from reconciler.core.replicas.snapshot import Snapshot


def item(diff: RecordDiff) -> str:
    """The item of a change for `limits/approvals`: the set with its exact values before and after."""
    return approvals.item("set", *diff.provider_zone, *diff.key, diff.before, diff.after)


def of_orphans(snap: Snapshot, names: Names) -> Iterable[str]:
    """The items of all owned record sets that no manifest names."""
    return (item(stray) for stray in names.strays) if snap.desired.prune else ()


def needed(names: Names, over_limit: Mapping[ZoneKey, str], prune: bool) -> set[str]:
    """The items that need approval: deletions in zones over their limit, and sets that get other values when they are taken over."""
    replaced = {item(change) for change in names.changes if change.replaces}
    return replaced | {
        item(diff) for diff in _deletions(names, prune) if over_limit and diff.provider_zone in over_limit
    }


def over_limit(snap: Snapshot, names: Names) -> dict[ZoneKey, str]:
    """Zones that would lose more than the guard allows without approval (share, number of record sets, names that end), and why."""
    going: dict[ZoneKey, list[RecordDiff]] = {}
    for diff in _deletions(names, snap.desired.prune):
        going.setdefault(diff.provider_zone, []).append(diff)
    over: dict[ZoneKey, str] = {}
    limit = snap.desired.guard.mass_change
    for zone_key, diffs in going.items():
        count, owned = len(diffs), _owned(snap.sight.zones[zone_key], snap.desired.instance.id)
        few = count <= limit.minimum or count * 100 <= limit.share * owned
        ending = _ending(snap.sight.zones[zone_key], zone_key, diffs, names) if len(diffs) > limit.names else 0
        if snap.desired.destroy or (few and count <= limit.records and ending <= limit.names):
            continue
        share = count * 100 // max(owned, 1)
        why = f"more than {limit.records}" if count > limit.records else f"more than {limit.share} %"
        if few and count <= limit.records:
            names_lost = "1 name would lose its" if ending == 1 else f"{ending} names would lose their"
            why = f"and {names_lost} last record set, more than {limit.names}"
        over[zone_key] = (
            f"{count} of {owned} owned record sets ({share} %) of zone {zone_key[1]} would be deleted, {why}"
        )
    return over


def _deletions(names: Names, prune: bool) -> Iterable[RecordDiff]:
    """Deletions for a change of the manifests. Strays that are not pruned must not hold back the rest."""
    if prune:
        yield from names.strays
    yield from (change for change in names.changes if change.edited)


def _ending(zone: ZoneFact, zone_key: ZoneKey, going: Sequence[RecordDiff], names: Names) -> int:
    """The number of names that would lose their last record set without a new one."""
    gone = {diff.key for diff in going}
    stay = {diff.key.name for diff in names.changes if diff.provider_zone == zone_key and diff.after is not None}
    ending = {key.name for key in gone} - stay
    return len(ending - {key.name for key in zone.records if key.name in ending and key not in gone})


def _owned(zone: ZoneFact, instance: str) -> int:
    prefix = f"{instance}/"
    return sum(1 for key, mark in zone.owners.items() if mark.startswith(prefix) and key in zone.records)
