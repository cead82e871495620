"""What a zone has of one policy: where its host leads to, which addresses it holds, which names may be its own. Pure.

Used by `names` before and after it decides what should be there instead.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from manifests.values.dns import DNSPolicy
from manifests.values.dns_names import balancer_name, place_name, target_name
from providers.facts import ProbeValue, RecordKey, RecordSet, ZoneFact
from reconciler.core.dns import records
from reconciler.core.dns.targets import TargetAddress

_TYPES = ("A", "AAAA")

Sets = dict[RecordKey, RecordSet]


class ByName:
    """The record sets of a zone by their name; made when it is first asked, because mostly nobody asks."""

    def __init__(self, zone: ZoneFact) -> None:
        self.zone = zone

    @cached_property
    def _keys(self) -> dict[str, list[RecordKey]]:
        found: dict[str, list[RecordKey]] = {}
        for key in self.zone.records:
            found.setdefault(key.name, []).append(key)
        return found

    def at(self, name: str) -> Sequence[RecordKey]:
        """All record sets of one name."""
        return self._keys.get(name, ())


def names_of(policy: DNSPolicy) -> frozenset[str]:
    """All names that a policy may publish, whatever is healthy."""
    host = policy.host
    below = {place_name(host, target.geo) for target in policy.targets}
    below |= {target_name(host, target.name) for target in policy.targets}
    return frozenset({host, balancer_name(host), *below})


def reached(host: str, current: Sets) -> frozenset[str]:
    """Addresses and outside names that the host leads to: what clients can get."""
    at: dict[str, list[tuple[RecordKey, RecordSet]]] = {}
    for key, record in current.items():
        at.setdefault(key.name, []).append((key, record))
    found: set[str] = set()
    waiting, done = [host], {host}
    while waiting:
        for key, record in at.get(waiting.pop(), ()):
            targets = records.points_at(key, record)
            if not targets:
                if key.type in _TYPES:
                    found.update(record.values)
                continue
            for name in targets:
                if name not in at:
                    found.add(name)
                elif name not in done:
                    done.add(name)
                    waiting.append(name)
    return frozenset(found)


def unseen(
    policy: DNSPolicy, target_addresses: tuple[TargetAddress, ...], there: frozenset[str]
) -> list[TargetAddress]:
    """Published addresses without an endpoint that can be seen, while a node cannot: they may well be alive."""
    target = next((one for one in policy.targets if one.publish == "endpoints"), None)
    if target is None:
        return []
    alive = {target_address.address for target_address in target_addresses}
    return [
        TargetAddress(target.name, address, ProbeValue.UNKNOWN, service=ProbeValue.UNKNOWN)
        for address in sorted(there - alive)
        if not address.endswith(".")
    ]


def addresses(sets: Mapping[RecordKey, RecordSet]) -> dict[str, int]:
    """Address -> the longest TTL (s) of the sets that have it."""
    found: dict[str, int] = {}
    for key, record in sets.items():
        if key.type in _TYPES and not record.alias:
            for value in record.values:
                found[value] = max(found.get(value, 0), record.ttl)
    return found
