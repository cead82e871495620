"""Fits wanted record sets to what their DNS provider supports, before they are compared with the zone.

Every difference is then in the provider's own units, so a second plan is empty. The nearest supported record set replaces an
unsupported one, with a note for the operator. `dns/policies` and `dns/plain_records` call it. It is pure and idempotent.

A name keeps its answer: weights become equal shares, places become the default place, an alias becomes a CNAME or the addresses
behind it. Only a record set without any equivalent is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from manifests.values.geo import DEFAULT
from providers.capabilities import Alias, DNSCapabilities
from providers.facts import RecordKey, RecordSet

_ADDRESSES = ("A", "AAAA")
_MAX_CHAIN = 16
"""Longest chain of names that is followed to find addresses; resolvers give up at about the same length."""


class Lack(StrEnum):
    """What the provider does not support."""

    TTL = "ttl"
    WEIGHT_RANGE = "weight-range"
    WEIGHT = "weight"
    GEO = "geo"
    ALIAS = "alias"
    TYPE = "type"


class Note(NamedTuple):
    """One difference from the manifest: the wanted record set, what the provider lacks, and what is published instead."""

    key: RecordKey
    lack: Lack
    message: str


class Adapted(NamedTuple):
    """Record sets as the provider supports them, sorted by key, and the differences from the manifest."""

    records: dict[RecordKey, RecordSet]
    notes: tuple[Note, ...]


def adapt(
    wanted: Mapping[RecordKey, RecordSet],
    zone: str,
    can: DNSCapabilities,
    geo_order: Sequence[str] = (),
    known: Mapping[str, Sequence[str]] | None = None,
) -> Adapted:
    """Fit the record sets of one zone to its provider.

    Args:
        wanted: the record sets; a routed set needs all its members, because they can stand in for one another.
        zone: the zone's name, where no CNAME may stand.
        can: what the provider supports.
        geo_order: places in the order in which they replace the default place; others follow by their codes.
        known: addresses of host names outside `wanted`, to replace a name by its addresses.
    """
    if all(_fits(key, record, can) for key, record in wanted.items()):
        return Adapted(dict(sorted(wanted.items())), ())
    fitting = _Fitting(zone, can, tuple(geo_order), known or {}, dict(sorted(wanted.items())))
    fitting.types()
    fitting.aliases()
    fitting.places()
    fitting.weights()
    fitting.ttls()
    return Adapted(dict(sorted(fitting.sets.items())), tuple(sorted(set(fitting.notes))))


def _fits(key: RecordKey, record: RecordSet, can: DNSCapabilities) -> bool:
    """Whether a record set is plain and needs no change. Almost all are, and each tick checks them."""
    if key.set_id or record.alias or (can.types and key.type not in can.types):
        return False
    return can.ttl_min <= record.ttl <= can.ttl_max


class _Fitting:
    """The record sets of a zone while they are fitted, one lack after the other."""

    def __init__(
        self,
        zone: str,
        can: DNSCapabilities,
        geo_order: tuple[str, ...],
        known: Mapping[str, Sequence[str]],
        sets: dict[RecordKey, RecordSet],
    ) -> None:
        self.zone, self.can, self.geo_order, self.known, self.sets = zone, can, geo_order, known, sets
        self.notes: list[Note] = []
        # An index by name: each step reads one name, not the whole zone.
        self.at: dict[str, dict[RecordKey, RecordSet]] = {}
        for key, record in sets.items():
            self.at.setdefault(key.name, {})[key] = record

    def put(self, key: RecordKey, record: RecordSet) -> None:
        """Add or replace a wanted record set."""
        self.sets[key] = record
        self.at.setdefault(key.name, {})[key] = record

    def drop(self, key: RecordKey) -> None:
        """Remove a wanted record set."""
        del self.sets[key]
        del self.at[key.name][key]

    def types(self) -> None:
        """Leave out record sets of types that the provider does not support."""
        for key in [key for key in self.sets if self.can.types and key.type not in self.can.types]:
            self.drop(key)
            self._note(key, Lack.TYPE, f"the provider does not support type {key.type}: left out")

    def aliases(self) -> None:
        """Replace unsupported aliases by a CNAME where one may stand, else by addresses."""
        for key, record in list(self.sets.items()):
            if not record.alias or self._can_alias(record.values):
                continue
            target = record.values[0] if record.values else ""
            lack = f"the provider cannot hold an alias of {target}"
            self.drop(key)
            if self._cname_may_stand(key.name, target):
                self.put(
                    RecordKey(key.name, "CNAME", key.set_id), record._replace(ttl=self._ttl_of(target), alias=False)
                )
                self._note(key, Lack.ALIAS, f"{lack}: published as a CNAME")
                continue
            answer = self._addresses(target, key.type)
            if answer and answer[0]:
                values, ttl = answer
                self.put(key, record._replace(ttl=ttl, values=values, alias=False))
                self._note(key, Lack.ALIAS, f"{lack}: published as its addresses")
            elif answer:
                self._note(key, Lack.ALIAS, f"{lack}, which has no {key.type} address: left out")
            else:
                self._note(key, Lack.ALIAS, f"{lack}, whose addresses are unknown: left out")

    def places(self) -> None:
        """Keep members for places that the provider supports; without any, one member stands for all places."""
        for name, kind, members in self._groups():
            if not any(record.geo for record in members.values()):
                continue
            kept = {key: record for key, record in members.items() if self.can.places(record.geo)}
            if len(kept) == len(members):
                continue
            if not kept:
                chosen = min(members, key=lambda key: self._rank(members[key].geo))
                self._remove(members)
                self.put(RecordKey(name, kind), members[chosen]._replace(geo=""))
                for key, record in members.items():
                    action = "is published for all clients" if key == chosen else "is not published"
                    self._note(key, Lack.GEO, f"the provider does not support geo routing: {record.geo} {action}")
                continue
            for key, record in members.items():
                if key not in kept:
                    self.drop(key)
                    self._note(
                        key, Lack.GEO, f"the provider does not support geo {record.geo}: its clients get other members"
                    )

    def weights(self) -> None:
        """Scale weights into the provider's range; without weights, give the members equal shares."""
        for name, kind, members in self._groups():
            if not all(record.weight is not None for record in members.values()):
                continue
            if self.can.weight is not None:
                self._scale(members, *self.can.weight)
                continue
            serving = {key: record for key, record in members.items() if record.weight} or members
            self._remove(members)
            if kind != "CNAME" and not any(record.alias for record in serving.values()):
                values = sorted({value for record in serving.values() for value in record.values})
                ttl = min(record.ttl for record in serving.values())
                self.put(RecordKey(name, kind), RecordSet(ttl, tuple(values)))
                self._note_weights(members, serving, "every member gets an equal share")
            elif not self._publish_addresses(name, members, serving):
                best = min(serving, key=lambda key: (-(serving[key].weight or 0), key.set_id))
                self.put(RecordKey(name, kind), serving[best]._replace(weight=None))
                self._note_weights(
                    members, {best: serving[best]}, "only the member with the largest weight is published"
                )

    def ttls(self) -> None:
        """Bring TTLs into the provider's range; an alias has none."""
        allowed = f"{self.can.ttl_min}-{self.can.ttl_max}"
        for key, record in list(self.sets.items()):
            ttl = 0 if record.alias else min(max(record.ttl, self.can.ttl_min), self.can.ttl_max)
            if ttl == record.ttl:
                continue
            self.put(key, record._replace(ttl=ttl))
            if not record.alias:
                self._note(key, Lack.TTL, f"TTL {ttl} instead of {record.ttl}: the provider allows {allowed}")

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _note(self, key: RecordKey, lack: Lack, message: str) -> None:
        self.notes.append(Note(key, lack, message))

    def _note_weights(self, members: Iterable[RecordKey], kept: Iterable[RecordKey], effect: str) -> None:
        """Add a note to each member: the effect on a kept one; the others are not published."""
        published = set(kept)
        for key in members:
            result = effect if key in published else f"member {key.set_id} is not published"
            self._note(key, Lack.WEIGHT, f"the provider does not support weights: {result}")

    def _remove(self, keys: Iterable[RecordKey]) -> None:
        for key in list(keys):
            self.drop(key)

    def _groups(self) -> list[tuple[str, str, dict[RecordKey, RecordSet]]]:
        """The members of each routed set: (name, type, members)."""
        groups: dict[tuple[str, str], dict[RecordKey, RecordSet]] = {}
        for key in sorted(key for key in self.sets if key.set_id):
            groups.setdefault((key.name, key.type), {})[key] = self.sets[key]
        return [(name, kind, members) for (name, kind), members in groups.items()]

    def _rank(self, geo: str) -> tuple[int, int, str]:
        place = self.geo_order.index(geo) if geo in self.geo_order else len(self.geo_order)
        return (0 if geo == DEFAULT else 1, place, geo)

    def _can_alias(self, values: Sequence[str]) -> bool:
        if self.can.alias is Alias.ZONE:
            return all(value == self.zone or value.endswith("." + self.zone) for value in values)
        return self.can.alias is Alias.ANY

    def _cname_may_stand(self, name: str, target: str) -> bool:
        """Whether a CNAME may stand: below the zone's own name, where every record set is or was an alias of the same target."""
        if name == self.zone:
            return False
        sets = self.at.get(name, {}).items()
        return all((record.alias or key.type == "CNAME") and record.values == (target,) for key, record in sets)

    def _scale(self, members: Mapping[RecordKey, RecordSet], least: int, most: int) -> None:
        """Scale weights in proportion, never a positive one to 0. Where 0 is unsupported, such a member goes, unless all have 0."""
        weights = {key: record.weight or 0 for key, record in members.items()}
        if all(least <= weight <= most for weight in weights.values()):
            return
        largest = max(weights.values())
        for key, weight in weights.items():
            record = members[key]
            if weight == 0 and least > 0 and largest > 0:
                self.drop(key)
                self._note(key, Lack.WEIGHT_RANGE, "the provider does not support weight 0: left out")
                continue
            scaled = weight if largest <= most else round(weight * most / largest)
            scaled = max(scaled, least, 1 if weight else 0)
            if scaled != weight:
                self.put(key, record._replace(weight=scaled))
                self._note(
                    key, Lack.WEIGHT_RANGE, f"weight {scaled} instead of {weight}: the provider allows {least}-{most}"
                )

    def _publish_addresses(
        self, name: str, members: Mapping[RecordKey, RecordSet], serving: Mapping[RecordKey, RecordSet]
    ) -> bool:
        """Publish the addresses behind weighted names at the name itself, if each has some."""
        if self.at.get(name):
            return False
        by_kind: dict[str, tuple[set[str], int]] = {}
        for record in serving.values():
            answers = {kind: self._addresses(record.values[0], kind) for kind in _ADDRESSES} if record.values else {}
            if not any(answer and answer[0] for answer in answers.values()):
                return False
            for kind, answer in answers.items():
                if answer and answer[0]:
                    values, ttl = by_kind.get(kind, (set(), record.ttl))
                    by_kind[kind] = (values | set(answer[0]), min(ttl, record.ttl, answer[1]))
        for kind, (values, ttl) in by_kind.items():
            self.put(RecordKey(name, kind), RecordSet(ttl, tuple(sorted(values))))
        self._note_weights(members, serving, "the addresses behind the names get an equal share")
        return True

    def _ttl_of(self, target: str) -> int:
        """The TTL (s) of the answers at a name; 60 where it is unknown, because with 0 resolvers would not cache the answer."""
        kinds = (*_ADDRESSES, "CNAME")
        sets = self.at.get(target, {})
        return min((record.ttl for key, record in sets.items() if key.type in kinds), default=0) or 60

    def _addresses(self, name: str, kind: str, depth: int = 0) -> tuple[tuple[str, ...], int] | None:
        """(addresses of one type, TTL) that a name leads to. No addresses: it has only the other type; None: unknown."""
        if depth > _MAX_CHAIN:
            return None
        sets = self.at.get(name)
        if not sets:
            known = self.known.get(name, ())
            addresses = tuple(sorted(address for address in known if (":" in address) == (kind == "AAAA")))
            return (addresses, 60) if known else None
        cnames = {key: record for key, record in sets.items() if key.type == "CNAME"}
        picked = self._serving(cnames or {key: record for key, record in sets.items() if key.type == kind})
        if not picked:
            return ((), 60) if any(key.type in _ADDRESSES for key in sets) else None
        values: set[str] = set()
        ttl = min(record.ttl for record in picked)
        for record in picked:
            if not record.alias and not cnames:
                values |= set(record.values)
                continue
            answer = self._addresses(record.values[0], kind, depth + 1) if record.values else None
            if answer is None:
                return None
            values |= set(answer[0])
            ttl = answer[1] if record.alias else min(ttl, answer[1])
        return tuple(sorted(values)), ttl

    def _serving(self, members: Mapping[RecordKey, RecordSet]) -> list[RecordSet]:
        """The members that any client may get: those of the default place, and those with weight unless none has weight."""
        places = [record for record in members.values() if record.geo]
        if places:
            return [min(places, key=lambda record: self._rank(record.geo))]
        return [record for record in members.values() if record.weight != 0] or list(members.values())
