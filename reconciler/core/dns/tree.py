"""Builds the record sets of a policy's chosen target addresses: plain ones, or a tree host -> balancer name -> place -> target.

Pure. Every name that a record set points at has record sets, no set is empty, and the host and the balancer name exist while
there is any target address. `dns/policies` calls it, then fits the result to the provider (`dns/capabilities_fit`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.dns import DNSPolicy, Publish, Routing, Target
from manifests.values.dns_names import balancer_name, place_name, target_name
from manifests.values.geo import DEFAULT
from providers.facts import RecordKey, RecordSet
from reconciler.core.dns import records

TargetAddresses = Mapping[str, frozenset[str]]
"""Target name -> its chosen target addresses: addresses, or one host name (final dot)."""

CATCH_ALL = "default"
"""The member of the balancer name for clients whose place has no member."""

_CNAME = "CNAME"
_SIMPLE = Routing.SIMPLE


def build(
    policy: DNSPolicy, target_addresses: TargetAddresses, spare: frozenset[str] = frozenset()
) -> dict[RecordKey, RecordSet]:
    """The wanted record sets of one policy; none without target addresses. `spare` as in `publication.Answer`."""
    alive = [target for target in policy.targets if target_addresses.get(target.name)]
    if not alive:
        return {}
    if policy.routing is _SIMPLE:
        return _simple(policy, {value for target in alive for value in target_addresses[target.name]})
    top = policy.host == policy.zone
    kinds = _families(target_addresses, alive) if top else (_CNAME,)
    sets: dict[RecordKey, RecordSet] = {}
    for kind in kinds:
        _Level(policy, target_addresses, kind, sets, spare).build(
            [target for target in alive if _has(target_addresses[target.name], kind)]
        )
    for target in alive:
        if target.publish is not Publish.HOSTNAME:
            sets.update(
                records.address_sets(target_name(policy.host, target.name), policy.ttl, target_addresses[target.name])
            )
    return sets


def _simple(policy: DNSPolicy, values: set[str]) -> dict[RecordKey, RecordSet]:
    """All addresses at the host; a host name only without any address, because nothing may stand beside a CNAME."""
    addresses = [value for value in values if not value.endswith(".")]
    if addresses:
        return records.address_sets(policy.host, policy.ttl, addresses)
    name = min(values)
    if policy.host == policy.zone:
        return {RecordKey(policy.host, kind): RecordSet(0, (name,), alias=True) for kind in ("A", "AAAA")}
    return {RecordKey(policy.host, _CNAME): RecordSet(policy.ttl, (name,))}


def _families(target_addresses: TargetAddresses, alive: list[Target]) -> tuple[str, ...]:
    """The address types of the target addresses. A host name may have both."""
    return tuple(kind for kind in ("A", "AAAA") if any(_has(target_addresses[target.name], kind) for target in alive))


def _has(values: frozenset[str], kind: str) -> bool:
    return kind == _CNAME or any(value.endswith(".") or records.record_type(value) == kind for value in values)


class _Place(NamedTuple):
    """A place with a chosen target: its DNS name, the sum of the weights of its chosen targets, and whether all of them are spare."""

    geo: str
    name: str
    weight: int
    spare: bool


class _Level:
    """The levels above the addresses, all of one type: CNAME, or aliases at the top of a zone, where no CNAME may stand."""

    def __init__(
        self,
        policy: DNSPolicy,
        target_addresses: TargetAddresses,
        kind: str,
        sets: dict[RecordKey, RecordSet],
        spare: frozenset[str],
    ) -> None:
        self.policy, self.target_addresses, self.kind, self.sets = policy, target_addresses, kind, sets
        self.spare = spare

    def build(self, alive: list[Target]) -> None:
        """Add the record sets from the host down to those that point at targets."""
        policy = self.policy
        balancer = balancer_name(policy.host)
        self._put(policy.host, "", policy.tree_ttl.host, balancer)
        places = self._places(alive)
        if policy.routing is Routing.WEIGHTED:
            self._put(balancer, "", policy.tree_ttl.balancer, places[0].name)
            return
        for place in places:
            if place.geo:
                self._put(balancer, place.geo, policy.tree_ttl.balancer, place.name, geo=place.geo)
        self._put(balancer, CATCH_ALL, policy.tree_ttl.balancer, self._catch_all(places), geo=DEFAULT)

    def _put(self, name: str, set_id: str, ttl: int, value: str, weight: int | None = None, geo: str = "") -> None:
        alias = self.kind != _CNAME
        self.sets[RecordKey(name, self.kind, set_id)] = RecordSet(0 if alias else ttl, (value,), weight, geo, alias)

    def _places(self, alive: list[Target]) -> list[_Place]:
        """Add the members of every place."""
        by_geo: dict[str, list[Target]] = {}
        for target in alive:
            by_geo.setdefault(target.geo, []).append(target)
        return [self._place(geo, members) for geo, members in sorted(by_geo.items())]

    def _place(self, geo: str, members: list[Target]) -> _Place:
        name = place_name(self.policy.host, geo)
        # Members of weight 0 serve when all others are withdrawn; then they share equally.
        equal = all(target.weight == 0 for target in members)
        for target in members:
            if target.publish is Publish.HOSTNAME:
                value = target.hostname
            else:
                value = target_name(self.policy.host, target.name)
            self._put(name, target.name, self.policy.tree_ttl.geo, value, weight=1 if equal else target.weight)
        spare = all(target.name in self.spare for target in members)
        return _Place(geo, name, sum(target.weight for target in members), spare)

    def _catch_all(self, places: list[_Place]) -> str:
        """The name for clients without a place: the default place, else the place with the most weight."""
        usual = {target.geo for target in self.policy.targets if target.default}
        best = min(places, key=lambda place: (place.spare, place.geo not in usual, -place.weight, place.geo))
        return best.name


def names_of(policy: DNSPolicy) -> frozenset[str]:
    """All names that a policy may publish, whatever the health of its targets."""
    host = policy.host
    below = {place_name(host, target.geo) for target in policy.targets}
    below |= {target_name(host, target.name) for target in policy.targets}
    return frozenset({host, balancer_name(host), *below})


def manages(policy: DNSPolicy, name: str) -> bool:
    """Whether a name belongs to a policy: its host, and every name of its tree."""
    if name == policy.host:
        return True
    balancer = balancer_name(policy.host)
    return name == balancer or name.endswith("." + balancer)


def possible_hosts(name: str) -> list[str]:
    """The hosts whose policies may manage this name: all for which `manages` is true, and perhaps others."""
    labels = name.split(".")
    hosts = [name]
    for at, label in enumerate(labels):
        below = ".".join(labels[at + 1 :])
        if label == "klb":
            hosts.append(below)
        elif label == "klb-wildcard":
            hosts.append(f"*.{below}")
    return hosts
