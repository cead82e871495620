"""Omission, the fifth stage: which addresses each name should have, against what the zone has.

An address joins after its endpoint is ready and carries weight, and leaves on fresh evidence only. A name that has addresses
never becomes empty for health or for a planned step: without a ready one left, what is published stays. Record sets without
our owner mark are never touched. Called by `decide` only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from manifests.desired import SECOND, Desired, Service
from manifests.dns import DNSPolicy, Publish, Target
from providers.facts import ProbeValue, RecordKey, RecordSet, ZoneFact
from reconciler.core.activation import Roster
from reconciler.core.instant import Now
from reconciler.core.ledger import Grant
from reconciler.core.records import address_sets, owner_mark, owner_of
from reconciler.core.trust import Sight
from reconciler.core.verdict import Hold, Reason, Rule
from reconciler.core.weights import Weights, endpoints

_TYPES = ("A", "AAAA")


class RecordDiff(NamedTuple):
    """One record set that should be `after` (None = absent) instead of `before` (None = absent)."""

    object: str
    provider: str
    zone: str
    key: RecordKey
    before: RecordSet | None
    after: RecordSet | None
    reason: Reason


@dataclass(slots=True)
class Names:
    """The answer for all names. Filled while this stage runs, read-only after it.

    `named`: container -> TTL (ns) of the names that publish its address for it and should not any more, or would not if it
    left. `kept`: containers that a name keeps because they are its last. `hidden`: container -> zone that cannot be read. All by container id.
    `wanted`: all addresses that names should have. `strays`: record sets of ours that no policy wants: removing them is pruning.
    """

    changes: list[RecordDiff] = field(default_factory=list)
    strays: list[RecordDiff] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    hidden: dict[str, str] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)


class _Opinion(NamedTuple):
    """Addresses of one target: sure to be in, in only while they are published already, and who is behind each."""

    sure: frozenset[str]
    unsure: frozenset[str]
    behind: Mapping[str, tuple[str, ...]]


def _endpoints_of(service: Service, roster: Roster, weights: Weights, grants: Mapping[str, Grant]) -> _Opinion:
    """Distinct addresses with a ready endpoint that carries weight."""
    sure: set[str] = set()
    unsure: set[str] = set()
    behind: dict[str, tuple[str, ...]] = {}
    for endpoint, belief in endpoints(service, roster):
        name, address = belief.fact.id, endpoint.address
        behind[address] = (*behind.get(address, ()), name)
        if grants and name in grants:
            continue
        if belief.ready is ProbeValue.PASS:
            if (service.key, name) not in weights.lacking or not service.balancers:
                sure.add(address)
            else:
                unsure.add(address)
        elif belief.ready is ProbeValue.UNKNOWN or name in weights.suspect:
            unsure.add(address)
    return _Opinion(frozenset(sure), frozenset(unsure - sure), behind)


def _balancers_of(service: Service, roster: Roster, weights: Weights, grants: Mapping[str, Grant]) -> _Opinion:
    """The balancers' addresses, healthy while at least one endpoint is ready and carries weight."""
    addresses = frozenset(address for balancer in service.balancers for address in balancer.addresses)
    opinion = _endpoints_of(service, roster, weights, grants)
    if opinion.sure:
        return _Opinion(addresses, frozenset(), {})
    return _Opinion(frozenset(), addresses if opinion.unsure else frozenset(), {})


def _ask(
    target: Target, services: Mapping[str, Service], roster: Roster, weights: Weights, grants: Mapping[str, Grant]
) -> _Opinion:
    if target.publish is Publish.ADDRESSES:
        return _Opinion(frozenset(target.addresses), frozenset(), {})
    service = services.get(target.service)
    if service is None:
        return _Opinion(frozenset(), frozenset(), {})
    if target.publish is Publish.BALANCER:
        return _balancers_of(service, roster, weights, grants)
    return _endpoints_of(service, roster, weights, grants)


def _published(policy: DNSPolicy, zone: ZoneFact, mark: str) -> dict[RecordKey, RecordSet]:
    """What the zone has at the policy's name under our mark."""
    keys = (RecordKey(policy.host, kind) for kind in _TYPES)
    return {key: zone.records[key] for key in keys if key in zone.records and zone.owners.get(key) == mark}


def _foreign(policy: DNSPolicy, zone: ZoneFact, mark: str) -> list[RecordKey]:
    """Record sets of others that stand where the policy wants to publish."""
    keys = (RecordKey(policy.host, kind) for kind in (*_TYPES, "CNAME"))
    return [key for key in keys if key in zone.records and zone.owners.get(key) != mark]


def _blind(policy: DNSPolicy, opinions: list[_Opinion], out: Names) -> None:
    for opinion in opinions:
        for names in opinion.behind.values():
            for name in names:
                out.hidden.setdefault(name, policy.zone)


def _judge(policy: DNSPolicy, zone: ZoneFact, opinions: list[_Opinion], mark: str, blind: bool, out: Names) -> None:
    """Compare one name with its zone."""
    foreign = _foreign(policy, zone, mark)
    if foreign:
        listed = ", ".join(f"{key.name} {key.type}" for key in foreign)
        message = f"{listed} in zone {policy.zone} carries no owner mark of {mark}"
        person = "remove that record by hand, or give the policy another host"
        out.holds.append(Hold(policy.key, f"publish {policy.host}", Rule.FOREIGN_RECORD, message, person=person))
        return
    published = _published(policy, zone, mark)
    there = frozenset(value for record in published.values() for value in record.values)
    sure = frozenset().union(*(opinion.sure for opinion in opinions))
    unsure = frozenset().union(*(opinion.unsure for opinion in opinions))
    # On a node that cannot be seen an address without a container may well be alive.
    wanted = sure | (unsure & there) | (there if blind else frozenset())
    kept: frozenset[str] = frozenset()
    if there and not sure and wanted != there:
        # Unknown addresses do not count as survivors: the side that holds.
        kept = there - wanted
        wanted = there
        message = (
            f"no address of {policy.host} is sure to be ready, so what is published stays: {', '.join(sorted(there))}"
        )
        person = f"bring an endpoint of {policy.key} back, or delete the policy to remove the name"
        action = f"withdraw {', '.join(sorted(kept))}"
        out.holds.append(Hold(policy.key, action, Rule.LAST_RECORD, message, person=person))
    for opinion in opinions:
        for address, names in opinion.behind.items():
            if address not in there or (address in sure and address not in opinion.sure):
                continue
            for name in names:
                # Where another endpoint shares the address, it does not disappear and nobody waits for a TTL.
                if address in kept or address not in wanted:
                    out.named[name] = max(out.named.get(name, 0), policy.ttl * SECOND)
                if address in kept:
                    out.kept.add(name)
    out.wanted |= wanted
    after = address_sets(policy.host, policy.ttl, wanted)
    for key in sorted(set(after) | set(published)):
        if after.get(key) != published.get(key):
            before, now_wanted = published.get(key), after.get(key)
            out.changes.append(
                RecordDiff(policy.key, policy.provider, policy.zone, key, before, now_wanted, _why(before, now_wanted))
            )


def _why(before: RecordSet | None, after: RecordSet | None) -> Reason:
    """What a change of a record set amounts to."""
    old = frozenset(before.values) if before is not None else frozenset()
    new = frozenset(after.values) if after is not None else frozenset()
    if new - old:
        return Reason.PUBLISHED
    return Reason.WITHDRAWN if old - new else Reason.CHANGED


def name_all(
    desired: Desired, roster: Roster, seen: Sight, weights: Weights, grants: Mapping[str, Grant], now: Now
) -> Names:
    """Compare all policies with their zones, then look for record sets of ours that no policy wants."""
    del now  # evidence ages in the stages before; kept so that every stage reads alike
    out = Names()
    services = {service.key: service for service in desired.services}
    wanted_keys: set[tuple[str, str, RecordKey, str]] = set()
    for policy in sorted(desired.policies, key=lambda one: one.key):
        mark = owner_mark(desired.instance.id, policy.key)
        opinions = [_ask(target, services, roster, weights, grants) for target in policy.targets]
        for kind in _TYPES:
            wanted_keys.add((policy.provider, policy.zone, RecordKey(policy.host, kind), mark))
        zone = seen.zones.get((policy.provider, policy.zone))
        if zone is None:
            _blind(policy, opinions, out)
            continue
        _judge(policy, zone, opinions, mark, bool(roster.blind), out)
    _strays(desired, seen, wanted_keys, out)
    if roster.orphans:
        _orphans(desired, roster, seen, out)
    return out


def _strays(desired: Desired, seen: Sight, wanted_keys: set[tuple[str, str, RecordKey, str]], out: Names) -> None:
    """Record sets under our mark that no policy wants."""
    for (provider, zone_name), zone in seen.zones.items():
        for key, mark in zone.owners.items():
            instance, owner_key = owner_of(mark)
            if instance != desired.instance.id or (provider, zone_name, key, mark) in wanted_keys:
                continue
            if key in zone.records:
                out.strays.append(
                    RecordDiff(owner_key, provider, zone_name, key, zone.records[key], None, Reason.PRUNED)
                )
    out.strays.sort(key=lambda one: (one.provider, one.zone, one.key))


def _orphans(desired: Desired, roster: Roster, seen: Sight, out: Names) -> None:
    """Orphans whose address is still published under our mark, by whatever policy published it."""
    published: dict[str, int] = {}
    for zone in seen.zones.values():
        for key, mark in zone.owners.items():
            record = zone.records.get(key)
            if record is None or key.type not in _TYPES or owner_of(mark)[0] != desired.instance.id:
                continue
            for value in record.values:
                published[value] = max(published.get(value, 0), record.ttl * SECOND)
    hidden = next(iter(sorted(zone for _, zone in seen.unknown_zones)), "")
    for fact in roster.orphans:
        if hidden:
            out.hidden[fact.id] = hidden
        for port in fact.ports:
            if port.address in published and port.address not in out.wanted:
                out.named[fact.id] = max(out.named.get(fact.id, 0), published[port.address])
