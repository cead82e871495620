"""Compares RecordLists with their zones: a list of 100,000 record sets as a whole, and only a difference becomes an object.

The tuples of a list equal those of a look, so comparing two dictionaries shows that a list is converged, which nearly always
holds. `dns/compare` calls it. The rules are those of `dns/plain_records`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from manifests.values.desired import Desired
from manifests.values.dns import RecordList, SetKey, SetValue
from providers.capabilities import DNSCapabilities
from providers.facts import RecordKey, RecordSet, ZoneFact
from reconciler.core.dns import records
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneIndex, ZoneKey
from reconciler.core.dns.takeover import TakeOvers
from reconciler.core.model.reasons import Hold, Reason, Rule

PREFIX = "recordlist/"
"""Prefix of the keys of lists, also in their owner marks after the instance."""


class _Zone(NamedTuple):
    """One zone, and the lists published in it."""

    key: ZoneKey
    zone_index: ZoneIndex
    lists: Sequence[RecordList]

    @property
    def fact(self) -> ZoneFact:
        """The zone as it was read."""
        return self.zone_index.zone


def is_list(mark: str) -> bool:
    """Whether an owner mark names a list."""
    return records.owner_of(mark)[1].startswith(PREFIX)


def may_take_over(owner: str, mark: str) -> bool:
    """Whether a record set of this owner may get `mark`: it has that mark, or the mark of a list of the same instance."""
    return owner == mark or owner.startswith(f"{records.owner_of(mark)[0]}/{PREFIX}")


def compare(desired: Desired, indexes: Mapping[ZoneKey, ZoneIndex], takeovers: TakeOvers, out: Names) -> None:
    """Collect the differences between all lists and their zones; an unknown zone has none.

    Args:
        indexes: the known zones.
        takeovers: finds owned record sets that no manifest wants.
        out: already has the strays of policies and records; a record set that a list takes over is removed from them.
    """
    by_zone: dict[ZoneKey, list[RecordList]] = {}
    for record_list in sorted(desired.record_lists, key=lambda record_list: record_list.key):
        by_zone.setdefault((record_list.provider, record_list.zone), []).append(record_list)
    if by_zone:
        out.strays[:] = [
            stray for stray in out.strays if not _listed(stray, by_zone.get((stray.provider, stray.zone), ()))
        ]
    for zone_key, index in sorted(indexes.items(), key=lambda item: item[0]):
        zone = _Zone(zone_key, index, by_zone.get(zone_key, []))
        for record_list in zone.lists:
            _changes(desired, record_list, zone, takeovers, out)
        _gone(desired, zone, out)
    out.strays[:] = [stray for stray in out.strays if stray.key not in out.taken.get((stray.provider, stray.zone), ())]


def _listed(stray: RecordDiff, lists: Iterable[RecordList]) -> bool:
    return any(stray.key in record_list.sets for record_list in lists)


def fitted(record_list: RecordList, can: DNSCapabilities) -> tuple[Mapping[SetKey, SetValue], list[SetKey]]:
    """The list with its TTLs in the provider's range, and the record sets of types that the provider does not support."""
    ttls = {value[0] for value in record_list.sets.values()}
    if not can.types and all(can.ttl_min <= ttl <= can.ttl_max for ttl in ttls):
        return record_list.sets, []
    near = {ttl: min(max(ttl, can.ttl_min), can.ttl_max) for ttl in ttls}
    sets = {
        key: (near[value[0]], *value[1:])
        for key, value in record_list.sets.items()
        if not can.types or key[1] in can.types
    }
    return sets, [key for key in record_list.sets if key not in sets]


def _changes(desired: Desired, record_list: RecordList, zone: _Zone, takeovers: TakeOvers, out: Names) -> None:
    """Collect the differences between one list and its zone."""
    mark = records.owner_mark(desired.instance.id, record_list.key)
    sets, lacking = fitted(record_list, zone.fact.capabilities)
    if lacking:
        kinds = ", ".join(sorted({kind for _, kind, _ in lacking}))
        message = f"the provider does not support type {kinds}: {_shown(lacking)} left out"
        next_step = f"take them out of the list, or use a provider that supports {kinds}"
        out.holds.append(
            Hold(record_list.key, f"publish {_count(lacking)}", Rule.CANNOT_PUBLISH, message, next_step=next_step)
        )
    existing = cast("Mapping[SetKey, SetValue]", zone.fact.records)
    if sets.items() <= existing.items() and sets.keys() == set(zone.zone_index.by_mark.get(mark, ())):
        return
    out.own.setdefault(zone.key, set()).update(name for name, _, _ in sets)
    prefix, owners = f"{desired.instance.id}/", cast("Mapping[SetKey, str]", zone.fact.owners)
    foreign: list[SetKey] = []
    differing: dict[SetKey, tuple[SetValue | None, SetValue]] = {}
    adopted: set[SetKey] = set()
    for key, wanted in sets.items():
        before, owner = existing.get(key), owners.get(key, "")
        if before == wanted and owner == mark:
            continue
        if before is not None and not owner.startswith(prefix):
            if record_list.adopt and not owner:
                adopted.add(key)
                differing[key] = before, wanted
            else:
                foreign.append(key)
        else:
            differing[key] = before, wanted
    blocked = _beside([key for key, (before, _) in differing.items() if before is None], zone.fact, prefix)
    foreign += blocked
    for key, (before, wanted) in differing.items():
        if key in blocked:
            continue
        old, new = None if before is None else RecordSet(*before), RecordSet(*wanted)
        reason = Reason.CHANGED if old == new else records.reason_of(old, new)
        diff = RecordDiff(record_list.key, *zone.key, RecordKey(*key), old, new, reason)
        if key in adopted:
            diff = diff._replace(adopts=True, replaces=old != new, note=records.TAKEN_OVER if old == new else "")
        out.changes.append(diff)
        for rival in takeovers.of_list(zone.key, RecordKey(*key), mark) if old is None else ():
            out.changes.append(
                RecordDiff(record_list.key, *zone.key, rival, zone.fact.records[rival], None, Reason.CHANGED)
            )
    if foreign:
        alone = [RecordKey(*key) for key in sorted(foreign)]
        can_adopt = not record_list.adopt and not blocked
        message, next_step = records.foreign_texts(
            alone, zone.fact.owners, record_list.zone, can_adopt, "take them out of the list"
        )
        out.holds.append(
            Hold(record_list.key, f"publish {_count(foreign)}", Rule.FOREIGN_RECORD, message, next_step=next_step)
        )


def _beside(new: Sequence[SetKey], zone: ZoneFact, prefix: str) -> set[SetKey]:
    """New sets that another writer's set at the same name blocks: nothing may stand beside a CNAME."""
    aliases = {name for name, kind, _ in new if kind == "CNAME"}
    others = (key for key in zone.records if key.name in aliases) if aliases else ()
    taken = {key.name for key in others if not zone.owners.get(key, "").startswith(prefix)}
    blocked = set()
    for key in new:
        alias = RecordKey(key[0], "CNAME")
        foreign_alias = alias in zone.records and not zone.owners.get(alias, "").startswith(prefix)
        if key[0] in taken if key[1] == "CNAME" else foreign_alias:
            blocked.add(key)
    return blocked


def _gone(desired: Desired, zone: _Zone, out: Names) -> None:
    """Collect record sets with the mark of a list that no list of the zone has. A set may have moved to another list."""
    prefix = f"{desired.instance.id}/{PREFIX}"
    present = {record_list.key for record_list in zone.lists}
    taken: set[SetKey] = {
        (record.host, record.type, "") for record in desired.records if (record.provider, record.zone) == zone.key
    }
    taken |= out.taken.get(zone.key, set())
    for mark, keys in sorted(zone.zone_index.by_mark.items()):
        if not mark.startswith(prefix):
            continue
        owner = records.owner_of(mark)[1]
        left: set[SetKey] = set(keys)
        left -= taken
        for record_list in zone.lists:
            left = left - record_list.sets.keys()
        going = out.changes if owner in present else out.strays
        for key in sorted(left):
            before = RecordKey(*key)
            if records.protected(before, zone.key[1]):
                continue
            going.append(RecordDiff(owner, *zone.key, before, zone.fact.records[before], None, Reason.PRUNED, True))


def _count(keys: Sequence[SetKey]) -> str:
    return f"{len(keys)} record set{'' if len(keys) == 1 else 's'}"


def list_rows(desired: Desired, zones: Mapping[ZoneKey, ZoneFact]) -> list[dict[str, Any]]:
    """Every list for status: the number of its record sets, and how many of them are published under its mark (None: unknown)."""
    rows = []
    for record_list in desired.record_lists:
        zone = zones.get((record_list.provider, record_list.zone))
        count = None
        if zone is not None:
            mark = records.owner_mark(desired.instance.id, record_list.key)
            sets = fitted(record_list, zone.capabilities)[0]
            existing = cast("Mapping[SetKey, SetValue]", zone.records)
            owners = cast("Mapping[SetKey, str]", zone.owners)
            count = sum(1 for key, value in sets.items() if existing.get(key) == value and owners.get(key) == mark)
        row = {"key": record_list.key, "zone": record_list.zone, "wanted": len(record_list.sets), "published": count}
        rows.append(row)
    return rows


def _shown(keys: Iterable[SetKey]) -> str:
    """The first record sets and the number of the others."""
    ordered = sorted(keys)
    first = ", ".join(f"{name} {kind}" for name, kind, _ in ordered[: records.SHOWN])
    return first if len(ordered) <= records.SHOWN else f"{first} and {len(ordered) - records.SHOWN} more"
