"""RecordLists against their zones: a list of 100,000 record sets is compared as a whole, and only what differs gets an object.

The tuples of a list equal those of a look, so that two comparisons of dictionaries tell that all is as wanted, which is nearly
always so. Called by `names`, which has the same rules for single names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from manifests.values.desired import Desired
from manifests.values.dns import RecordList, SetKey, SetValue
from providers.capabilities import DNSCapabilities
from providers.facts import RecordKey, RecordSet, ZoneFact
from reconciler.core.dns.records import RecordDiff, owner_mark, owner_of, protected, why
from reconciler.core.dns.takeover import Claims
from reconciler.core.model.reasons import Hold, Reason, Rule

PREFIX = "recordlist/"
"""Begins the keys of lists, and so what their owner marks say after the instance."""

SHOWN = 5
"""Names in a message about many: the first tell what kind of names they are."""

Place = tuple[str, str]
"""Provider and zone."""

ByMark = Mapping[str, Sequence[RecordKey]]
"""The record sets of a zone that exist, by their owner mark."""


class Out(Protocol):
    """Where differences of names go (see `names.Names`)."""

    changes: list[RecordDiff]
    strays: list[RecordDiff]
    holds: list[Hold]
    own: dict[Place, set[str]]
    taken: dict[Place, set[RecordKey]]


class _Zone(NamedTuple):
    """One zone with its record sets by mark, and the lists that are published in it."""

    place: Place
    fact: ZoneFact
    marked: ByMark
    lists: Sequence[RecordList]


def is_list(mark: str) -> bool:
    """Whether an owner mark is that of a list."""
    return owner_of(mark)[1].startswith(PREFIX)


def yields(owner: str, mark: str) -> bool:
    """Whether a set of this owner may get that mark: it has it, or a list of the same instance has it, and no longer names it."""
    return owner == mark or owner.startswith(f"{owner_of(mark)[0]}/{PREFIX}")


def compare(
    desired: Desired, zones: Mapping[Place, ZoneFact], marked: Mapping[Place, ByMark], claims: Claims, out: Out
) -> None:
    """Tell what differs between all lists and their zones; of zones that are not known nothing is told.

    Args:
        zones: the zones that are known.
        marked: their record sets by mark.
        claims: which sets of ours nobody wants any more.
        out: has the strays of policies and records already; what a list takes over from those is none.
    """
    here: dict[Place, list[RecordList]] = {}
    for one in sorted(desired.record_lists, key=lambda one: one.key):
        here.setdefault((one.provider, one.zone), []).append(one)
    if here:
        out.strays[:] = [
            stray for stray in out.strays if not _listed(stray, here.get((stray.provider, stray.zone), ()))
        ]
    for place, fact in sorted(zones.items(), key=lambda item: item[0]):
        zone = _Zone(place, fact, marked[place], here.get(place, []))
        for one in zone.lists:
            _changes(desired, one, zone, claims, out)
        _gone(desired, zone, out)
    out.strays[:] = [one for one in out.strays if one.key not in out.taken.get((one.provider, one.zone), ())]


def _listed(stray: RecordDiff, lists: Iterable[RecordList]) -> bool:
    return any(stray.key in one.sets for one in lists)


def fitted(record_list: RecordList, can: DNSCapabilities) -> tuple[Mapping[SetKey, SetValue], list[SetKey]]:
    """The list as the provider can hold it, its TTLs brought into range, and the sets of types that it does not have."""
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


def _changes(desired: Desired, record_list: RecordList, zone: _Zone, claims: Claims, out: Out) -> None:
    """What one list has and its zone has not, or otherwise."""
    mark = owner_mark(desired.instance.id, record_list.key)
    sets, lacking = fitted(record_list, zone.fact.capabilities)
    if lacking:
        kinds = ", ".join(sorted({kind for _, kind, _ in lacking}))
        message = f"the provider does not support type {kinds}: {_shown(lacking)} left out"
        next_step = f"take them out of the list, or use a provider that supports {kinds}"
        out.holds.append(
            Hold(record_list.key, f"publish {_count(lacking)}", Rule.CANNOT_PUBLISH, message, next_step=next_step)
        )
    records = cast("Mapping[SetKey, SetValue]", zone.fact.records)
    if sets.items() <= records.items() and sets.keys() == set(zone.marked.get(mark, ())):
        return
    out.own.setdefault(zone.place, set()).update(name for name, _, _ in sets)
    prefix, owners = f"{desired.instance.id}/", cast("Mapping[SetKey, str]", zone.fact.owners)
    foreign: list[SetKey] = []
    found: dict[SetKey, tuple[SetValue | None, SetValue]] = {}
    for key, wanted in sets.items():
        before, owner = records.get(key), owners.get(key, "")
        if before == wanted and owner == mark:
            continue
        if before is not None and not owner.startswith(prefix):
            foreign.append(key)
        else:
            found[key] = before, wanted
    blocked = _beside([key for key, (before, _) in found.items() if before is None], zone.fact, prefix)
    foreign += blocked
    for key, (before, wanted) in found.items():
        if key in blocked:
            continue
        old, new = None if before is None else RecordSet(*before), RecordSet(*wanted)
        reason = Reason.CHANGED if old == new else why(old, new)
        out.changes.append(RecordDiff(record_list.key, *zone.place, RecordKey(*key), old, new, reason))
        for rival in claims.rivals(zone.place, RecordKey(*key), mark) if old is None else ():
            out.changes.append(
                RecordDiff(record_list.key, *zone.place, rival, zone.fact.records[rival], None, Reason.CHANGED)
            )
    if foreign:
        carry = "carries" if len(foreign) == 1 else "carry"
        message = f"{_shown(foreign)} in zone {record_list.zone} {carry} no owner mark of {desired.instance.id}"
        next_step = "remove these records by hand, or take them out of the list"
        out.holds.append(
            Hold(record_list.key, f"publish {_count(foreign)}", Rule.FOREIGN_RECORD, message, next_step=next_step)
        )


def _beside(new: Sequence[SetKey], zone: ZoneFact, prefix: str) -> set[SetKey]:
    """New sets that cannot be written because of somebody else's at the same name: nothing stands beside a CNAME."""
    aliases = {name for name, kind, _ in new if kind == "CNAME"}
    others = (key for key in zone.records if key.name in aliases) if aliases else ()
    taken = {key.name for key in others if not zone.owners.get(key, "").startswith(prefix)}
    blocked = set()
    for key in new:
        alias = RecordKey(key[0], "CNAME")
        there = alias in zone.records and not zone.owners.get(alias, "").startswith(prefix)
        if key[0] in taken if key[1] == "CNAME" else there:
            blocked.add(key)
    return blocked


def _gone(desired: Desired, zone: _Zone, out: Out) -> None:
    """Record sets under the marks of lists that no list of the zone has any more. A set may have moved to another list."""
    prefix = f"{desired.instance.id}/{PREFIX}"
    present = {one.key for one in zone.lists}
    taken: set[SetKey] = {
        (record.host, record.type, "") for record in desired.records if (record.provider, record.zone) == zone.place
    }
    taken |= out.taken.get(zone.place, set())
    for mark, keys in sorted(zone.marked.items()):
        if not mark.startswith(prefix):
            continue
        owner = owner_of(mark)[1]
        left: set[SetKey] = set(keys)
        left -= taken
        for one in zone.lists:
            left = left - one.sets.keys()
        going = out.changes if owner in present else out.strays
        for key in sorted(left):
            before = RecordKey(*key)
            if protected(before, zone.place[1]):
                continue
            going.append(RecordDiff(owner, *zone.place, before, zone.fact.records[before], None, Reason.PRUNED, True))


def _count(keys: Sequence[SetKey]) -> str:
    return f"{len(keys)} record set{'' if len(keys) == 1 else 's'}"


def list_rows(desired: Desired, zones: Mapping[Place, ZoneFact]) -> list[dict[str, Any]]:
    """Every list for status: how many sets it has, and how many of them its zone has as wanted under its mark (None: not known)."""
    found = []
    for one in desired.record_lists:
        zone = zones.get((one.provider, one.zone))
        count = None
        if zone is not None:
            mark = owner_mark(desired.instance.id, one.key)
            sets = fitted(one, zone.capabilities)[0]
            records = cast("Mapping[SetKey, SetValue]", zone.records)
            owners = cast("Mapping[SetKey, str]", zone.owners)
            count = sum(1 for key, value in sets.items() if records.get(key) == value and owners.get(key) == mark)
        found.append({"key": one.key, "zone": one.zone, "wanted": len(one.sets), "published": count})
    return found


def _shown(keys: Iterable[SetKey]) -> str:
    """The first few of some sets, and how many more there are."""
    found = sorted(keys)
    first = ", ".join(f"{name} {kind}" for name, kind, _ in found[:SHOWN])
    return first if len(found) <= SHOWN else f"{first} and {len(found) - SHOWN} more"
