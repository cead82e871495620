"""Checks of routed and alias sets against the capabilities of their provider. Pure; used by `change.py`.

A provider refuses a set that it does not support instead of writing another one: the core adapts records before they are
compared, and adapted records pass these checks.
"""

from collections.abc import Iterable, Mapping

from manifests.values.geo import geo_kind
from providers.capabilities import Alias, DNSCapabilities
from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet

ALIAS_TYPES = frozenset({"A", "AAAA"})
"""Types that an alias set may have: it stands for addresses."""

MAX_SET_ID = 128
"""Characters of a set identifier (the limit of Amazon Route 53)."""


def label(key: RecordKey) -> str:
    """A record set in messages: name, type, and the set identifier where it has one."""
    return f"{key.name} {key.type} set {key.set_id!r}" if key.set_id else f"{key.name} {key.type}"


def check_set(key: RecordKey, record: RecordSet, zone: str, can: DNSCapabilities) -> None:
    """Raise `Rejected` unless a provider with these capabilities supports this set."""
    target = label(key)
    if can.types and key.type not in can.types:
        raise Rejected(target, f"the provider does not support type {key.type}", "use another type or provider")
    if record.alias:
        _check_alias(key, record, zone, can)
    elif not can.ttl_min <= record.ttl <= can.ttl_max:
        cause = f"the provider does not support a TTL of {record.ttl} seconds"
        raise Rejected(target, cause, f"use a TTL of {can.ttl_min} to {can.ttl_max}")
    routed = (record.weight is not None) + bool(record.geo)
    if not key.set_id:
        if routed:
            raise Rejected(target, "has a weight or a place, but no set identifier", "set an identifier for the member")
        return
    if len(key.set_id) > MAX_SET_ID or not key.set_id.isprintable():
        raise Rejected(target, f"a set identifier has at most {MAX_SET_ID} printable characters", "shorten it")
    if routed != 1:
        cause = "a member of a routed set has either a weight or a place" + (", not both" if routed else "")
        raise Rejected(target, cause, "route by place to names, and by weight at each of these names")
    if record.weight is not None:
        _check_weight(target, record.weight, can)
    else:
        _check_geo(target, record.geo, can)


def check_policies(groups: Mapping[tuple[str, str], Mapping[RecordKey, RecordSet]]) -> None:
    """Raise `Rejected` unless all sets of each name and type follow one policy after the change."""
    for (name, kind), members in groups.items():
        target = f"{name} {kind}"
        policies = {_policy(key, record) for key, record in members.items()}
        if len(policies) > 1:
            cause = f"sets of one name and type must follow one policy, but these would follow {' and '.join(sorted(policies))}"
            raise Rejected(target, cause, "remove the others in the same change, or use another name")
        duplicate = _duplicate(record.geo for record in members.values() if record.geo)
        if duplicate:
            raise Rejected(target, f"two members have the place {duplicate}", "use each place for one member")


def _check_alias(key: RecordKey, record: RecordSet, zone: str, can: DNSCapabilities) -> None:
    target = label(key)
    if can.alias is Alias.NONE:
        raise Rejected(target, "the provider does not support alias sets", "publish the addresses, or a CNAME")
    if key.type not in ALIAS_TYPES:
        raise Rejected(target, "only sets of type A and AAAA can be an alias", "use a CNAME")
    if len(record.values) != 1:
        raise Rejected(target, "an alias has exactly one value, a name", "publish one name")
    if record.ttl != 0:
        raise Rejected(target, "an alias has no TTL of its own", "use TTL 0")
    name = record.values[0]
    if can.alias is Alias.ZONE and name != zone and not name.endswith("." + zone):
        raise Rejected(target, f"an alias cannot point at {name} outside the zone {zone}", "publish its addresses")
    if name == key.name:
        raise Rejected(target, "an alias cannot point at itself", "name another name")


def _check_weight(target: str, weight: int, can: DNSCapabilities) -> None:
    if can.weight is None:
        raise Rejected(target, "the provider does not support weights", "publish the values in one plain set")
    least, most = can.weight
    if not least <= weight <= most:
        raise Rejected(
            target, f"the provider does not support a weight of {weight}", f"use a weight of {least} to {most}"
        )


def _check_geo(target: str, geo: str, can: DNSCapabilities) -> None:
    if not can.geo:
        raise Rejected(target, "the provider does not support routing by place", "publish one plain set")
    kind = geo_kind(geo)
    if kind is None:
        raise Rejected(
            target, f"{geo!r} is not a place", "use *, a continent, a country, or a subdivision such as US-CA"
        )
    if not can.places(geo):
        kinds = ", ".join(sorted(can.geo))
        raise Rejected(target, f"the provider does not know the {kind} {geo}", f"use a place of another kind: {kinds}")


def _policy(key: RecordKey, record: RecordSet) -> str:
    if not key.set_id:
        return "a plain set"
    if record.weight is not None:
        return "weights"
    return "places" if record.geo else "an unknown policy"


def _duplicate(places: Iterable[str]) -> str:
    checked: set[str] = set()
    for place in sorted(places):
        if place in checked:
            return place
        checked.add(place)
    return ""
