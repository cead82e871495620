"""Health of target addresses: which probes run for the addresses of names, and what their results mean.

The shell runs the probes of `target_probes`; `dns/targets` and `status/names` read `verdict`. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from manifests.values.desired import Desired, Service
from manifests.values.dns import Check, DNSPolicy, HealthCheck, Publish, Target
from providers.facts import ProbeFact, ProbeValue
from reconciler.core.model.dns_memory import CheckRow
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas.roster import Roster
from reconciler.core.traffic import pools


class AddressVerdict(NamedTuple):
    """The health of a target address: pass, fail or unknown, and the steady instant until which it holds on the same facts."""

    value: ProbeValue
    until: int


_TIMES = ("interval", "timeout", "failure_threshold", "success_threshold")
"""Fields of a check that say when and how often it asks, not what."""

_NO_ROWS: Mapping[str, CheckRow] = {}


def same_request(check: Check | None, other: Check | None) -> bool:
    """Whether two checks send the same request, whatever their times and thresholds."""
    return check is other or (check is not None and other is not None and tuned(check, other) == other)


def tuned(check: Check | None, other: Check) -> Check | None:
    """A check with the times and thresholds of another one."""
    return None if check is None else replace(check, **{name: getattr(other, name) for name in _TIMES})


def deciding(row: CheckRow | None, declared: Check, address: str) -> Check | None:
    """The check that decides about an address now; `check_trials` has the rules."""
    if row is None or address in row.proven or same_request(row.check, declared):
        return declared
    return tuned(row.check, declared)


def target_probes(
    desired: Desired, roster: Roster | None = None, rows: Mapping[str, CheckRow] = _NO_ROWS
) -> tuple[TargetProbe, ...]:
    """Every distinct probe, sorted by address: those that decide, and those that are tried beside them.

    Args:
        desired: the manifests in force.
        roster: the containers (`Decision.status.roster`), for targets that publish the endpoints of a service: only a look
            knows their addresses. Without a roster those targets have no probes.
        rows: the checks that decide, from the ledger.
    """
    services = {service.key: service for service in desired.services}
    checks = {check.key: check for check in desired.checks}
    probes = {TargetProbe(check.address, check.check) for check in desired.checks}
    for check in desired.checks:
        earlier = deciding(rows.get(check.key), check.check, check.address)
        probes |= {TargetProbe(check.address, earlier)} if earlier is not None else set()
    for policy in desired.policies:
        for target in policy.targets:
            if not is_probed(policy, target):
                continue
            for address in _addresses(target, services.get(target.service), roster):
                pair = (probe_of(policy, target, address, checks, known) for known in (_NO_ROWS, rows))
                probes |= {probe for probe in pair if probe is not None}
    return tuple(sorted(probes, key=_order))


def is_probed(policy: DNSPolicy, target: Target) -> bool:
    """Whether a target is probed: the fallback is not, because it is published only when nothing else is left."""
    return target.name != policy.fallback


def checked_addresses(policy: DNSPolicy, desired: Desired, roster: Roster) -> frozenset[str]:
    """The addresses about which the policy's own check decides."""
    services = {service.key: service for service in desired.services}
    return frozenset(
        address
        for target in policy.targets
        if is_probed(policy, target) and not target.check
        for address in _addresses(target, services.get(target.service), roster)
    )


def probe_of(
    policy: DNSPolicy,
    target: Target,
    address: str,
    checks: Mapping[str, HealthCheck],
    rows: Mapping[str, CheckRow] = _NO_ROWS,
) -> TargetProbe | None:
    """The probe that decides about one target address: of the HealthCheck that its target names, else of the policy.

    None without either, and where the only one is still tried. Without `rows` the declared one.
    """
    if not is_probed(policy, target):
        return None
    if target.check:
        named = checks.get(target.check)
        return None if named is None else _probe(rows.get(named.key), named.check, named.address)
    return None if policy.check is None else _probe(rows.get(policy.key), policy.check, address)


def _probe(row: CheckRow | None, declared: Check, address: str) -> TargetProbe | None:
    check = deciding(row, declared, address)
    return None if check is None else TargetProbe(address, check)


def verdict(answers: Mapping[TargetProbe, ProbeFact], probe: TargetProbe, steady: int) -> AddressVerdict:
    """The health by the latest results of a probe. Without a result, or with one that is too old, it is unknown."""
    fact = answers.get(probe)
    if fact is None:
        return AddressVerdict(ProbeValue.UNKNOWN, FOREVER)
    limit = fact.last_at + fact.valid_for
    if limit <= steady:
        return AddressVerdict(ProbeValue.UNKNOWN, FOREVER)
    if fact.value is ProbeValue.PASS or fact.value is ProbeValue.FAIL:
        return AddressVerdict(fact.value, limit)
    return AddressVerdict(ProbeValue.UNKNOWN, limit)


def combined(verdict: AddressVerdict, other: AddressVerdict) -> AddressVerdict:
    """Two verdicts on one target address: both must pass; where one is unknown, the other decides."""
    until = min(verdict.until, other.until)
    values = {verdict.value, other.value}
    if ProbeValue.FAIL in values:
        return AddressVerdict(ProbeValue.FAIL, until)
    return AddressVerdict(ProbeValue.PASS if ProbeValue.PASS in values else ProbeValue.UNKNOWN, until)


def _addresses(target: Target, service: Service | None, roster: Roster | None) -> Iterator[str]:
    """The known addresses and host names of a target."""
    yield from target.addresses
    if target.publish is Publish.HOSTNAME:
        yield target.hostname
    if service is None:
        return
    if target.publish is Publish.BALANCER:
        for balancer in service.balancers:
            yield from balancer.addresses
    elif target.publish is Publish.ENDPOINTS and roster is not None:
        for endpoint, _ in pools.endpoints(service, roster):
            yield endpoint.address


def _order(probe: TargetProbe) -> tuple[str, str]:
    return probe.address, repr(probe.check)
