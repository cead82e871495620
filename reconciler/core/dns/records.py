"""Record sets as plain data: address families, owner marks, what a set points at, and what differs.

All modules of this room use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from providers.facts import RecordKey, RecordSet, ZoneFact
from reconciler.core.model.reasons import Act, HeldAction, Reason

ADDRESS_TYPES = ("A", "AAAA")

Sets = dict[RecordKey, RecordSet]

ZoneKey = tuple[str, str]
"""Provider and zone."""

UNREADABLE = "?/"
"""How the owner of a set begins whose mark cannot be read: no instance has this id."""

SHOWN = 5
"""Number of names that a message about many of them lists."""


class RecordDiff(NamedTuple):
    """One record set that should be `after` (None = absent) instead of `before` (None = absent).

    `edited`: the manifest does not name the set any more, so it goes for that and not for health. `note` says what differs
    from the manifest because the provider does not support it. `adopts`: the manifest takes over this set, which has no owner mark;
    `replaces`: it has other values then, or goes, so an operator must approve that.
    """

    object: str
    provider: str
    zone: str
    key: RecordKey
    before: RecordSet | None
    after: RecordSet | None
    reason: Reason
    edited: bool = False
    note: str = ""
    adopts: bool = False
    replaces: bool = False

    @property
    def before_ttl(self) -> int:
        """The TTL (s) that the zone has now; 0 without a set."""
        return 0 if self.before is None else self.before.ttl

    @property
    def provider_zone(self) -> ZoneKey:
        """Provider and zone of the set."""
        return self.provider, self.zone

    @property
    def held(self) -> HeldAction:
        """This difference as what a hold holds: the values that would come or go."""
        before, after = (frozenset(record.values) if record else frozenset() for record in (self.before, self.after))
        return HeldAction(Act.RECORDS, host=self.key.name, addresses=tuple(sorted(before ^ after)))


class ZoneIndex:
    """The record sets of a zone by name and by owner mark. Each index is built when it is first read."""

    def __init__(self, zone: ZoneFact) -> None:
        self.zone = zone

    @cached_property
    def by_mark(self) -> Mapping[str, Sequence[RecordKey]]:
        """The existing record sets by their owner mark."""
        keys: dict[str, list[RecordKey]] = {}
        existing = self.zone.records
        for key, mark in self.zone.owners.items():
            if key in existing:
                keys.setdefault(mark, []).append(key)
        return keys

    @cached_property
    def _by_name(self) -> dict[str, list[RecordKey]]:
        keys: dict[str, list[RecordKey]] = {}
        for key in self.zone.records:
            keys.setdefault(key.name, []).append(key)
        return keys

    def at(self, name: str) -> Sequence[RecordKey]:
        """All record sets of one name."""
        return self._by_name.get(name, ())


def record_type(address: str) -> str:
    """A or AAAA, by the form of a canonical address."""
    return "AAAA" if ":" in address else "A"


def address_sets(host: str, ttl: int, addresses: Iterable[str]) -> dict[RecordKey, RecordSet]:
    """The A and AAAA record sets of a name; a family without addresses has none. TTL in seconds."""
    ordered = sorted(set(addresses))
    aaaa = [address for address in ordered if record_type(address) == "AAAA"]
    a = [address for address in ordered if record_type(address) == "A"] if aaaa else ordered
    families = (("A", a), ("AAAA", aaaa))
    return {RecordKey(host, kind): RecordSet(ttl, tuple(family)) for kind, family in families if family}


def owner_mark(instance: str, key: str) -> str:
    """The owner mark of a record set: `<instance>/<object key>`."""
    return f"{instance}/{key}"


def owner_of(mark: str) -> tuple[str, str]:
    """(instance, object key) of an owner mark; the key is empty when there is none."""
    instance, _, key = mark.partition("/")
    return instance, key


def points_at(key: RecordKey, record: RecordSet) -> tuple[str, ...]:
    """The names in a CNAME or an alias; empty for all other record sets."""
    return record.values if key.type == "CNAME" or record.alias else ()


def ttl_by_address(sets: Mapping[RecordKey, RecordSet]) -> dict[str, int]:
    """Address -> the longest TTL (s) of the sets that have it."""
    ttls: dict[str, int] = {}
    for key, record in sets.items():
        if key.type in ADDRESS_TYPES and not record.alias:
            for value in record.values:
                ttls[value] = max(ttls.get(value, 0), record.ttl)
    return ttls


def show_set(record: RecordSet | None) -> str:
    """A record set as one short text."""
    if record is None:
        return "nothing"
    weight = "" if record.weight is None else f" weight {record.weight}"
    geo = f" for {record.geo}" if record.geo else ""
    return f"{'alias of ' if record.alias else ''}{','.join(record.values)} ttl {record.ttl}{weight}{geo}"


def reason_of(before: RecordSet | None, after: RecordSet | None) -> Reason:
    """The reason of a change: new values are published, else missing values are withdrawn, else it is changed."""
    old = frozenset(before.values) if before is not None else frozenset()
    new = frozenset(after.values) if after is not None else frozenset()
    if new - old:
        return Reason.PUBLISHED
    return Reason.WITHDRAWN if old - new else Reason.CHANGED


def protected(key: RecordKey, zone: str) -> bool:
    """Whether a set is never deleted, whatever its mark: the zone's own NS and SOA, and the challenges of ACME clients."""
    return (key.name == zone and key.type in ("SOA", "NS")) or key.name.startswith("_acme-challenge")


TAKEN_OVER = "taken over: it had no owner mark"
"""The note of a change that takes over a set as it is."""


def foreign_texts(
    foreign: Sequence[RecordKey], owners: Mapping[RecordKey, str], zone: str, can_adopt: bool, alternative: str
) -> tuple[str, str]:
    """The message and the next step of a hold for record sets of other writers.

    Args:
        foreign: the sets.
        owners: the owner marks of the zone.
        zone: the zone's name.
        can_adopt: `adopt: true` in the manifest would take over those without a mark.
        alternative: what else the operator can do.
    """
    owned: dict[str, list[RecordKey]] = {}
    for key in foreign:
        owned.setdefault(owners.get(key, ""), []).append(key)
    parts: list[str] = []
    for owner, keys in sorted(owned.items()):
        listed = ", ".join(f"{key.name} {key.type}" for key in keys[:SHOWN])
        listed += f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        one = len(keys) == 1
        if owner.startswith(UNREADABLE):
            parts.append(f"{listed} in zone {zone} {'has' if one else 'have'} an unreadable owner mark")
        elif owner:
            parts.append(f"{listed} in zone {zone} {'belongs' if one else 'belong'} to {owner}")
        else:
            parts.append(f"{listed} in zone {zone} {'carries' if one else 'carry'} no owner mark")
    if any(owner.startswith(UNREADABLE) for owner in owned):
        steps = "correct the owner mark by hand"
    elif any(owned):
        steps = f"remove {'it' if len(foreign) == 1 else 'them'} from the manifests of that owner"
    elif can_adopt:
        steps = "write adopt: true in the manifest to take over existing records"
    else:
        steps = f"remove {'that record' if len(foreign) == 1 else 'these records'} by hand"
    return "; ".join(parts), f"{steps}, or {alternative}"
