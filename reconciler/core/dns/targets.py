"""Target addresses: every address and host name that a policy may publish, with its health. `dns/policies` calls it.

An endpoint's address is healthy while a container behind it is ready and carries weight, a balancer's address while at least one
endpoint is. The check decides about fixed addresses and host names. A service's address with a check needs both.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from manifests.values.desired import AddressFrom, Service
from manifests.values.dns import DNSPolicy, HealthCheck, Publish, Target
from providers.facts import ContainerFact, ContainerState, Endpoint, ProbeFact, ProbeValue
from reconciler.core.dns import target_health
from reconciler.core.dns.target_health import AddressVerdict
from reconciler.core.health import overrides
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.override import Override
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas import availability
from reconciler.core.replicas.roster import Roster
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
_RUNNING = ContainerState.RUNNING
_ADDRESSES, _HOSTNAME, _ENDPOINTS = Publish.ADDRESSES, Publish.HOSTNAME, Publish.ENDPOINTS


class TargetAddress(NamedTuple):
    """One address or host name of one target.

    `value` is pass, fail or unknown, until the steady instant `until`. `service` is the health by the service behind it, `probe`
    what is probed; None without one. `leaving`: nothing behind it can serve, or a planned step takes it out, so it never joins.
    `behind` are ids of containers. `without_weight`: the containers behind it carry no weight yet, so a passing check does not
    let it in. `force` is `up` or `down` when the target is forced, else empty; `override` is the operator's override that forces
    it, None where the manifest does. `unchecked`: the service is ready but its check has no verdict yet, so the address stays
    where it is published and joins nowhere (see `until_checked`). `floor` is how many addresses its target must have before this one
    leaves: its container serves, and only lost its share of the traffic to another revision; else 0. `held_until`: it is healthy,
    but stays out until this steady instant, because it failed `failures` times in a row (`dns/flapping`); 0 = it does not.
    """

    target: str
    address: str
    value: ProbeValue
    until: int = FOREVER
    service: ProbeValue | None = None
    probe: TargetProbe | None = None
    leaving: bool = False
    behind: tuple[str, ...] = ()
    without_weight: bool = False
    force: str = ""
    unchecked: bool = False
    override: Override | None = None
    floor: int = 0
    held_until: int = 0
    failures: int = 0


class TargetContext(NamedTuple):
    """What decides about target addresses besides their policy."""

    services: Mapping[str, Service]
    checks: Mapping[str, HealthCheck]
    roster: Roster
    weights: Weights
    ledger: Ledger
    answers: Mapping[TargetProbe, ProbeFact]
    now: Now


def context_of(snap: Snapshot, ledger: Ledger, weights: Weights) -> TargetContext:
    """Collect the context once for all policies of a decision."""
    services = {service.key: service for service in snap.desired.services}
    return TargetContext(
        services,
        {check.key: check for check in snap.desired.checks},
        snap.roster,
        weights,
        ledger,
        snap.observed.target_answers,
        snap.now,
    )


def target_addresses_of(policy: DNSPolicy, context: TargetContext) -> tuple[TargetAddress, ...]:
    """All target addresses of a policy, in the order of its targets."""
    of_policy: list[TargetAddress] = []
    for target in policy.targets:
        target_addresses = _of_target(target, context)
        if policy.check is not None or target.check:
            target_addresses = [
                _with_verdict(policy, target, target_address, context) for target_address in target_addresses
            ]
        override = None
        if context.ledger.overrides:
            key = overrides.target_key(policy.key, target.name)
            override = overrides.in_force(context.ledger.overrides, key, context.now)
        if target.force or override is not None:
            target_addresses = [
                _with_force(target, target_address, override, context.now) for target_address in target_addresses
            ]
        of_policy += target_addresses
    return tuple(of_policy)


def _with_force(target: Target, target_address: TargetAddress, override: Override | None, now: Now) -> TargetAddress:
    """Apply the override, or the `force` of the target. `up` does not help an address that leaves or is not in traffic yet."""
    force = target.force if override is None else override.force.value
    until = FOREVER if override is None else overrides.expires_at(override, now)
    if force == "down":
        return target_address._replace(value=_FAIL, until=until, leaving=True, force="down", override=override, floor=0)
    if force == "up" and not target_address.leaving and not target_address.without_weight:
        return target_address._replace(value=_PASS, until=until, force="up", override=override)
    return target_address if override is None else target_address._replace(until=min(target_address.until, until))


def _with_verdict(
    policy: DNSPolicy, target: Target, target_address: TargetAddress, context: TargetContext
) -> TargetAddress:
    """Apply the verdict of the check, if the target address has one."""
    probe = target_health.probe_of(policy, target, target_address.address, context.checks, context.ledger.checks)
    if probe is None:
        return target_address
    answer = target_health.verdict(context.answers, probe, context.now.steady)
    if answer.value is _FAIL:
        target_address = target_address._replace(floor=0)
    unchecked = target_address.service is not None and answer.value is _UNKNOWN and _pending(context.answers.get(probe))
    if target_address.service is not None:
        answer = target_health.combined(answer, AddressVerdict(target_address.service, FOREVER))
    if target_address.without_weight and answer.value is _PASS:
        answer = answer._replace(value=_UNKNOWN)
    return target_address._replace(value=answer.value, until=answer.until, probe=probe, unchecked=unchecked)


def _pending(fact: ProbeFact | None) -> bool:
    """Whether a check without a verdict will get one. After a start of the process that is every check: an address that its
    check withdrew must not come back before the first probe. Where a check cannot run, the service decides alone."""
    return fact is None or fact.last in (_PASS, _FAIL)


def until_checked(target_address: TargetAddress, published: Container[str]) -> TargetAddress:
    """Make an unpublished address unknown until the first success of its check; a published one keeps its health."""
    waits = (
        target_address.unchecked
        and not target_address.force
        and target_address.value is _PASS
        and target_address.address not in published
    )
    return target_address._replace(value=_UNKNOWN) if waits else target_address


def _of_target(target: Target, context: TargetContext) -> list[TargetAddress]:
    publish = target.publish
    if publish is _ADDRESSES:
        return [TargetAddress(target.name, address, _PASS) for address in target.addresses]
    if publish is _HOSTNAME:
        return [TargetAddress(target.name, target.hostname, _PASS)]
    service = context.services.get(target.service)
    if service is None:
        return []
    endpoints = _endpoints(target, service, context)
    if publish is _ENDPOINTS:
        return endpoints
    value = _best(endpoint for endpoint in endpoints if not endpoint.leaving)
    if value is _FAIL and may_have_more(service, context.roster):
        value = _UNKNOWN
    without_weight = value is _UNKNOWN and any(endpoint.without_weight for endpoint in endpoints)
    addresses = sorted({address for balancer in service.balancers for address in balancer.addresses})
    return [
        TargetAddress(target.name, address, value, service=value, without_weight=without_weight)
        for address in addresses
    ]


def may_have_more(service: Service, roster: Roster) -> bool:
    """Whether endpoints of a service may be on nodes that cannot be read."""
    if not roster.unseen.nodes:
        return False
    groups = (roster.groups.get(backend.workload) for backend in service.backends)
    return any(group is not None and group.partly_unseen for group in groups)


def partly_unseen(policy: DNSPolicy, services: Mapping[str, Service], roster: Roster) -> bool:
    """Whether a target of a policy may publish endpoints on nodes that cannot be read."""
    if not roster.unseen.nodes:
        return False
    published = (services.get(target.service) for target in policy.targets if target.publish is _ENDPOINTS)
    return any(service is not None and may_have_more(service, roster) for service in published)


def unseen_addresses(policy: DNSPolicy, published: Iterable[str], context: TargetContext) -> list[TargetAddress]:
    """Published addresses of endpoints on nodes that cannot be read: they may be alive, so their health is unknown.

    Where the ledger does not list what is on such a node, every published address that no endpoint has may be one.
    """
    unseen, found = context.roster.unseen, []
    left = sorted(address for address in published if not address.endswith(".")) if unseen.any else []
    for target in policy.targets:
        service = context.services.get(target.service)
        if (
            not left
            or target.publish is not _ENDPOINTS
            or service is None
            or not may_have_more(service, context.roster)
        ):
            continue
        groups = [context.roster.groups.get(backend.workload) for backend in service.backends]
        known = {
            place.rpartition(":")[0] if service.address_from is AddressFrom.HOST else place
            for group in groups
            for container in (() if group is None else group.unseen)
            for place in container.reach
        }
        unlisted = any(group is not None and group.unlisted for group in groups)
        override = None
        if context.ledger.overrides:
            key = overrides.target_key(policy.key, target.name)
            override = overrides.in_force(context.ledger.overrides, key, context.now)
        for address in [address for address in left if unlisted or address in known]:
            left.remove(address)
            target_address = TargetAddress(target.name, address, _UNKNOWN, service=_UNKNOWN)
            found.append(_with_force(target, target_address, override, context.now))
    return found


def _endpoints(target: Target, service: Service, context: TargetContext) -> list[TargetAddress]:
    """The distinct addresses of endpoints; of endpoints that share an address the best counts."""
    grants, suspect = context.ledger.grants, context.weights.suspect
    pooled = bool(service.balancers)
    by_address: dict[str, list[TargetAddress]] = {}
    found: Sequence[tuple[Endpoint, Belief]] = context.weights.endpoints[service.key]
    if context.roster.asked:
        found = (*found, *_unplaced(service, found, context.roster))
    for endpoint, belief in found:
        fact, value = belief.fact, belief.ready
        name, share = fact.id, context.roster.share(fact)
        without_weight = share is None or (
            value is _PASS and pooled and service.key in context.weights.shown(name).lacking
        )
        if without_weight or (value is _FAIL and name in suspect):
            value = _UNKNOWN
        stops = name in grants or fact.state is not _RUNNING
        out, floor = share == 0 or stops, 0
        if out:
            floor = 0 if stops or value is not _PASS else _floor(fact, context)
            value, without_weight = _FAIL, False
        target_address = TargetAddress(
            target.name, endpoint.address, value, FOREVER, value, None, out, (name,), without_weight, floor=floor
        )
        by_address.setdefault(endpoint.address, []).append(target_address)
    return [shared[0] if len(shared) == 1 else _merged(shared) for _, shared in sorted(by_address.items())]


def _unplaced(
    service: Service, found: Iterable[tuple[Endpoint, Belief]], roster: Roster
) -> Iterator[tuple[Endpoint, Belief]]:
    """Containers whose port is not known any more, because the ledger was lost: a name needs their address only. Port 0."""
    placed = {belief.fact.id for _, belief in found}
    for backend in service.backends:
        group = roster.groups.get(backend.workload)
        for belief in () if group is None else group.members():
            fact, own = belief.fact, roster.asked.get(belief.fact.id)
            if own is None or own.container is not None or fact.id in placed:
                continue
            host = service.address_from is AddressFrom.HOST
            address = next((port.address for port in fact.published), "") if host else fact.address
            if service.network and not host:
                address = dict(fact.addresses).get(service.network, "")
            if address:
                yield Endpoint(address, 0), belief


def _merged(shared: list[TargetAddress]) -> TargetAddress:
    """Merge the target addresses of several endpoints with the same address."""
    value = _best(shared)
    leaving = all(target_address.leaving for target_address in shared)
    without_weight = value is _UNKNOWN and any(target_address.without_weight for target_address in shared)
    behind = tuple(name for target_address in shared for name in target_address.behind)
    floor = max(target_address.floor for target_address in shared) if leaving else 0
    return shared[0]._replace(
        value=value, service=value, leaving=leaving, behind=behind, without_weight=without_weight, floor=floor
    )


def _floor(fact: ContainerFact, context: TargetContext) -> int:
    """How many addresses a name keeps of the workload of a container."""
    group = context.roster.groups.get(f"workload/{fact.mark.workload}") if fact.mark is not None else None
    return 0 if group is None else availability.published_floor(group.workload)


def _best(target_addresses: Iterable[TargetAddress]) -> ProbeValue:
    """Pass if any passes, fail only if all fail."""
    values = {target_address.value for target_address in target_addresses}
    return _PASS if _PASS in values else _UNKNOWN if _UNKNOWN in values else _FAIL
