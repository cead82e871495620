"""Leaves: every address and host name that a policy may publish, with what is known of its health. Called by `omission`.

An endpoint's leaf is healthy when a container behind it is ready and carries weight; a balancer's address while at least one
endpoint is; fixed addresses and host names as their check says. Where a check is asked as well, both must hold.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import Service
from manifests.values.dns import DNSPolicy, HealthCheck, Publish, Target
from providers.facts import ContainerState, ProbeFact, ProbeValue
from reconciler.core.dns import target_health
from reconciler.core.dns.target_health import AddressVerdict
from reconciler.core.health import overrides
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.override import Override
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas.roster import Roster
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.pools import Weights

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
_RUNNING = ContainerState.RUNNING
_ADDRESSES, _HOSTNAME, _ENDPOINTS = Publish.ADDRESSES, Publish.HOSTNAME, Publish.ENDPOINTS


class TargetAddress(NamedTuple):
    """One address or host name of one target.

    `value` is pass, fail or unknown, until the steady instant `until`. `service` is the opinion of the service behind it, None
    without one; `probe` what is asked, None without a check. `leaving`: nothing that could serve is behind it any more, or a
    planned step takes it out, so it is never published anew. `behind` are ids of containers. `early`:
    what is behind it carries no weight yet, so a check that passes does not let it in. `force`: a person's word that made
    `value` what it is, `up` or `down`; empty without one. `order`: that word, where it is an order and not the manifest's. `unproven`: its service says that it is ready and its check has not
    said yet what it says, so it stays where it is published and joins nowhere (see `proven`).
    """

    target: str
    address: str
    value: ProbeValue
    until: int = FOREVER
    service: ProbeValue | None = None
    probe: TargetProbe | None = None
    leaving: bool = False
    behind: tuple[str, ...] = ()
    early: bool = False
    force: str = ""
    unproven: bool = False
    order: Override | None = None


class Around(NamedTuple):
    """What leaves are judged by besides their policy."""

    services: Mapping[str, Service]
    checks: Mapping[str, HealthCheck]
    roster: Roster
    weights: Weights
    ledger: Ledger
    answers: Mapping[TargetProbe, ProbeFact]
    now: Now


def around(snap: Snapshot, ledger: Ledger, weights: Weights) -> Around:
    """Everything once, for all policies of one decision."""
    services = {service.key: service for service in snap.desired.services}
    return Around(
        services,
        {check.key: check for check in snap.desired.checks},
        snap.roster,
        weights,
        ledger,
        snap.observed.target_answers,
        snap.now,
    )


def target_addresses_of(policy: DNSPolicy, here: Around) -> tuple[TargetAddress, ...]:
    """All leaves of a policy, by target and address."""
    found: list[TargetAddress] = []
    for target in policy.targets:
        target_addresses = _of_target(target, here)
        if policy.check is not None or target.check:
            target_addresses = [_asked(policy, target, target_address, here) for target_address in target_addresses]
        orders = here.ledger.overrides
        order = overrides.in_force(orders, overrides.target_key(policy.key, target.name), here.now) if orders else None
        if target.force or order is not None:
            target_addresses = [_forced(target, target_address, order, here.now) for target_address in target_addresses]
        found += target_addresses
    return tuple(found)


def _forced(target: Target, target_address: TargetAddress, order: Override | None, now: Now) -> TargetAddress:
    """The leaf with a person's word on it. What leaves or is not in traffic yet does not become healthy by a word."""
    force = target.force if order is None else order.force.value
    until = FOREVER if order is None else overrides.expires_at(order, now)
    if force == "down":
        return target_address._replace(value=_FAIL, until=until, leaving=True, force="down", order=order)
    if force == "up" and not target_address.leaving and not target_address.early:
        return target_address._replace(value=_PASS, until=until, force="up", order=order)
    return target_address if order is None else target_address._replace(until=min(target_address.until, until))


def _asked(policy: DNSPolicy, target: Target, target_address: TargetAddress, here: Around) -> TargetAddress:
    """The leaf with the answer of its check, if one is asked."""
    probe = target_health.probe_of(policy, target, target_address.address, here.checks)
    if probe is None:
        return target_address
    answer = target_health.verdict(here.answers, probe, here.now.steady)
    unproven = target_address.service is not None and answer.value is _UNKNOWN and _pending(here.answers.get(probe))
    if target_address.service is not None:
        answer = target_health.both(answer, AddressVerdict(target_address.service, FOREVER))
    if target_address.early and answer.value is _PASS:
        answer = answer._replace(value=_UNKNOWN)
    return target_address._replace(value=answer.value, until=answer.until, probe=probe, unproven=unproven)


def _pending(fact: ProbeFact | None) -> bool:
    """Whether a check without a verdict is on its way to one. After a start of this program all are: what had been withdrawn
    for its check must not come back because nobody has asked yet. A check that cannot be made leaves the service to decide."""
    return fact is None or fact.last in (_PASS, _FAIL)


def proven(target_address: TargetAddress, published: Container[str]) -> TargetAddress:
    """The leaf as it counts: what is not published joins after the first success of its check."""
    waits = (
        target_address.unproven
        and not target_address.force
        and target_address.value is _PASS
        and target_address.address not in published
    )
    return target_address._replace(value=_UNKNOWN) if waits else target_address


def _of_target(target: Target, here: Around) -> list[TargetAddress]:
    publish = target.publish
    if publish is _ADDRESSES:
        return [TargetAddress(target.name, address, _PASS) for address in target.addresses]
    if publish is _HOSTNAME:
        return [TargetAddress(target.name, target.hostname, _PASS)]
    service = here.services.get(target.service)
    if service is None:
        return []
    found = _endpoints(target, service, here)
    if publish is _ENDPOINTS:
        return found
    value = _best(target_address for target_address in found if not target_address.leaving)
    early = value is _UNKNOWN and any(target_address.early for target_address in found)
    addresses = sorted({address for balancer in service.balancers for address in balancer.addresses})
    return [TargetAddress(target.name, address, value, service=value, early=early) for address in addresses]


def _endpoints(target: Target, service: Service, here: Around) -> list[TargetAddress]:
    """Distinct addresses of endpoints; the best of those that share an address counts."""
    grants, suspect = here.ledger.grants, here.weights.suspect
    pooled = bool(service.balancers)
    found: dict[str, list[TargetAddress]] = {}
    for endpoint, belief in here.weights.endpoints[service.key]:
        fact, value = belief.fact, belief.ready
        name, share = fact.id, here.roster.share(fact)
        early = share is None or (value is _PASS and pooled and service.key in here.weights.shown(name).lacking)
        if early or (value is _FAIL and name in suspect):
            value = _UNKNOWN
        out = share == 0 or name in grants or fact.state is not _RUNNING
        if out:
            value, early = _FAIL, False
        target_address = TargetAddress(target.name, endpoint.address, value, FOREVER, value, None, out, (name,), early)
        found.setdefault(endpoint.address, []).append(target_address)
    return [many[0] if len(many) == 1 else _shared(many) for _, many in sorted(found.items())]


def _shared(many: list[TargetAddress]) -> TargetAddress:
    """One leaf of several endpoints that have the same address."""
    value = _best(many)
    leaving = all(one.leaving for one in many)
    early = value is _UNKNOWN and any(one.early for one in many)
    behind = tuple(name for one in many for name in one.behind)
    return many[0]._replace(value=value, service=value, leaving=leaving, behind=behind, early=early)


def _best(target_addresses: Iterable[TargetAddress]) -> ProbeValue:
    """Passes if any does, and fails only if all do."""
    values = {target_address.value for target_address in target_addresses}
    return _PASS if _PASS in values else _UNKNOWN if _UNKNOWN in values else _FAIL
