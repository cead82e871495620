"""The record sets that a policy's healthy leaves make: plain ones, or a tree host -> balancer name -> place -> target.

A pure function of the policy and of which leaves are in. Every name that is pointed at is made as well, no set is ever empty,
and the host and the balancer name are there as long as there is any leaf. Called by `omission`; fitting the result to what
a provider can hold comes after (`adapt`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.dns import DNSPolicy, Publish, Routing, Target
from manifests.values.dns_names import balancer_name, place_name, target_name
from manifests.values.geo import DEFAULT
from providers.facts import RecordKey, RecordSet
from reconciler.core.dns import records

TargetAddresses = Mapping[str, frozenset[str]]
"""Target name -> its leaves that are in: addresses, or one host name (final dot)."""

CATCH_ALL = "default"
"""Which member of the balancer name is for everybody whose place has none."""

_CNAME = "CNAME"
_SIMPLE = Routing.SIMPLE


def tree(policy: DNSPolicy, target_addresses: TargetAddresses) -> dict[RecordKey, RecordSet]:
    """The wanted record sets of one policy; none at all without any leaf."""
    alive = [target for target in policy.targets if target_addresses.get(target.name)]
    if not alive:
        return {}
    if policy.routing is _SIMPLE:
        return _simple(policy, {value for target in alive for value in target_addresses[target.name]})
    top = policy.host == policy.zone
    kinds = _families(target_addresses, alive) if top else (_CNAME,)
    sets: dict[RecordKey, RecordSet] = {}
    for kind in kinds:
        _Level(policy, target_addresses, kind, sets).build(
            [one for one in alive if _has(target_addresses[one.name], kind)]
        )
    for target in alive:
        if target.publish is not Publish.HOSTNAME:
            sets.update(
                records.address_sets(target_name(policy.host, target.name), policy.ttl, target_addresses[target.name])
            )
    return sets


def _simple(policy: DNSPolicy, values: set[str]) -> dict[RecordKey, RecordSet]:
    """All addresses together at the host; a host name only where there is no address, because nothing stands beside it."""
    addresses = [value for value in values if not value.endswith(".")]
    if addresses:
        return records.address_sets(policy.host, policy.ttl, addresses)
    name = min(values)
    if policy.host == policy.zone:
        return {RecordKey(policy.host, kind): RecordSet(0, (name,), alias=True) for kind in ("A", "AAAA")}
    return {RecordKey(policy.host, _CNAME): RecordSet(policy.ttl, (name,))}


def _families(target_addresses: TargetAddresses, alive: list[Target]) -> tuple[str, ...]:
    """The address types that any leaf has. A host name may have either."""
    return tuple(kind for kind in ("A", "AAAA") if any(_has(target_addresses[target.name], kind) for target in alive))


def _has(values: frozenset[str], kind: str) -> bool:
    return kind == _CNAME or any(value.endswith(".") or records.record_type(value) == kind for value in values)


class _Place(NamedTuple):
    """A place with a target that is in: its name, and how much of the wanted weight is there."""

    geo: str
    name: str
    weight: int


class _Level:
    """The levels above the addresses, made of one type: CNAME, or at the top of a zone, where none may stand, aliases."""

    def __init__(
        self, policy: DNSPolicy, target_addresses: TargetAddresses, kind: str, sets: dict[RecordKey, RecordSet]
    ) -> None:
        self.policy, self.target_addresses, self.kind, self.sets = policy, target_addresses, kind, sets

    def build(self, alive: list[Target]) -> None:
        """Add the sets from the host down to what points at targets."""
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
        """Make the members of every place."""
        by_geo: dict[str, list[Target]] = {}
        for target in alive:
            by_geo.setdefault(target.geo, []).append(target)
        return [self._place(geo, members) for geo, members in sorted(by_geo.items())]

    def _place(self, geo: str, members: list[Target]) -> _Place:
        name = place_name(self.policy.host, geo)
        # Members of weight 0 serve when all others are out; then they share equally.
        spare = all(target.weight == 0 for target in members)
        for target in members:
            if target.publish is Publish.HOSTNAME:
                value = target.hostname
            else:
                value = target_name(self.policy.host, target.name)
            self._put(name, target.name, self.policy.tree_ttl.geo, value, weight=1 if spare else target.weight)
        return _Place(geo, name, sum(target.weight for target in members))

    def _catch_all(self, places: list[_Place]) -> str:
        """Where clients go that no place is for: the default place, else the one with the most weight."""
        usual = {target.geo for target in self.policy.targets if target.default}
        best = min(places, key=lambda place: (place.geo not in usual, -place.weight, place.geo))
        return best.name


def names_of(policy: DNSPolicy) -> frozenset[str]:
    """All names that a policy may publish, whatever the health of its targets."""
    host = policy.host
    below = {place_name(host, target.geo) for target in policy.targets}
    below |= {target_name(host, target.name) for target in policy.targets}
    return frozenset({host, balancer_name(host), *below})


def managed(policy: DNSPolicy, name: str) -> bool:
    """Whether a name belongs to what this policy publishes: its host, and everything of its tree."""
    if name == policy.host:
        return True
    balancer = balancer_name(policy.host)
    return name == balancer or name.endswith("." + balancer)


def managing(name: str) -> list[str]:
    """All hosts whose policies may have this name: where `managed` is true. There may be others among them."""
    labels = name.split(".")
    hosts = [name]
    for at, label in enumerate(labels):
        below = ".".join(labels[at + 1 :])
        if label == "klb":
            hosts.append(below)
        elif label == "klb-wildcard":
            hosts.append(f"*.{below}")
    return hosts
