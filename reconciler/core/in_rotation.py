"""In rotation: which available new replicas do not get traffic from every pool and name yet.

An old replica of a rolling rollout leaves pools and names only after the new one that takes its place is in them: with weight, as
read back, published, and not kept from traffic by a balancer's own checks. Otherwise a name would lose an address first and gain
one later, or all traffic would go to replicas that fail the balancer's checks. Called by `decide` before the gates, which count no
replica of `failing_checks` as available.
"""

from collections.abc import Collection, Mapping

from manifests.values.desired import Desired
from manifests.values.rollouts import Strategy
from providers.facts import ProbeValue
from reconciler.core.dns.names import Names
from reconciler.core.replicas import availability
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import balancer_checks, pools
from reconciler.core.traffic.balancer_checks import UNRELIABLE
from reconciler.core.traffic.weights import Weights

_ADDRESSES = frozenset({"A", "AAAA"})


def count(
    snap: Snapshot, counts: Mapping[str, Availability], weights: Weights, names: Names
) -> Mapping[str, Availability]:
    """The counts, with the number of available new replicas that are not in rotation yet, for workloads in a rolling rollout."""
    rolling = {
        key: group
        for key, group in snap.roster.groups.items()
        if group.outgoing and group.workload.strategy is Strategy.ROLLING
    }
    if not rolling:
        return counts
    late = _late(snap, set(rolling), weights, names) | failing_checks(snap, set(rolling)).keys()
    changed: dict[str, Availability] = {}
    for key, group in rolling.items():
        available = [
            belief
            for belief in group.current.values()
            if availability.available_at(belief, group.workload.min_ready) <= snap.now.steady
        ]
        arriving = sum(1 for belief in available if belief.fact.id in late)
        if arriving:
            changed[key] = counts[key]._replace(arriving=arriving)
    return {**counts, **changed} if changed else counts


def _late(snap: Snapshot, rolling: set[str], weights: Weights, names: Names) -> set[str]:
    """Containers without weight in a pool, not yet published in a name or checked for it, or behind a zone that cannot be read."""
    joining = {
        value
        for change in names.changes
        if change.key.type in _ADDRESSES and change.after is not None
        for value in change.after.values
        if change.before is None or value not in change.before.values
    }
    late = set(names.hidden)
    for outcome in names.policies.values():
        for target_address in outcome.target_addresses:
            pending = target_address.unchecked and target_address.value is ProbeValue.UNKNOWN
            if pending and outcome.published is not None and target_address.address not in outcome.published:
                late.update(target_address.behind)
    for service in snap.desired.services:
        if not any(backend.workload in rolling for backend in service.backends):
            continue
        observed: set[str] = set()
        for endpoint, belief in pools.endpoints(service, snap.roster):
            observed.add(belief.fact.id)
            lacks = bool(service.balancers) and service.key in weights.shown(belief.fact.id).lacking
            if lacks or endpoint.address in joining:
                late.add(belief.fact.id)
        if service.balancers or _published(service.key, snap.desired):
            # An endpoint that was not observed yet cannot be anywhere.
            groups = [
                snap.roster.groups[backend.workload] for backend in service.backends if backend.workload in rolling
            ]
            late |= {belief.fact.id for group in groups for belief in group.current.values()} - observed
    return late


def failing_checks(snap: Snapshot, workloads: Collection[str]) -> dict[str, bool]:
    """Containers by id behind services of these workloads that fail a balancer's own checks (True) or have not passed them yet.

    Clients do not reach them now, or soon may not: a planned disruption of another one could cost more than the budget allows.
    """
    failing: dict[str, bool] = {}
    for service in snap.desired.services if workloads else ():
        if not any(backend.workload in workloads for backend in service.backends):
            continue
        for balancer in service.balancers:
            pool = snap.sight.pools.get((balancer.provider, balancer.pool))
            members = pool.members if pool is not None else ()
            checks = {member.endpoint: member.operational for member in members if member.operational in UNRELIABLE}
            serving = {member.endpoint for member in members if checks and balancer_checks.serves(member)}
            for endpoint, belief in pools.endpoints(service, snap.roster) if checks else ():
                if endpoint in checks and len(serving) > (endpoint in serving):  # beside itself
                    failing[belief.fact.id] = failing.get(belief.fact.id, True) and checks[endpoint] == "down"
    return failing


def _published(service: str, desired: Desired) -> bool:
    return any(target.service == service for policy in desired.policies for target in policy.targets)
