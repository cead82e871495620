"""Arrival: new replicas that are available and not yet everywhere where their traffic comes from.

An old replica of a rolling rollout leaves pools and names only after the new one that takes its place is in them: with weight, as
read back, published, and not kept from traffic by a balancer's own checks. Otherwise a name would lose an address first and win one
later, or all traffic would be on replicas that the balancer believes down. Called by `decide` before the gates, which count nobody
as available that `failing_checks` names.
"""

from collections.abc import Collection, Mapping

from manifests.values.desired import Desired
from manifests.values.rollouts import Strategy
from reconciler.core.dns.policies import Names
from reconciler.core.replicas import availability
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import balancer_checks, pools
from reconciler.core.traffic.balancer_checks import UNRELIABLE
from reconciler.core.traffic.pools import Weights

_ADDRESSES = frozenset({"A", "AAAA"})


def count(
    snap: Snapshot, counts: Mapping[str, Availability], weights: Weights, names: Names
) -> Mapping[str, Availability]:
    """The counts, with how many available new replicas have not arrived, for workloads whose replicas replace each other."""
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
            one
            for one in group.current.values()
            if availability.available_at(one, group.workload.min_ready) <= snap.now.steady
        ]
        many = sum(1 for one in available if one.fact.id in late)
        if many:
            changed[key] = counts[key]._replace(arriving=many)
    return {**counts, **changed} if changed else counts


def _late(snap: Snapshot, rolling: set[str], weights: Weights, names: Names) -> set[str]:
    """Containers without weight in a pool, not yet published in a name, or behind a zone that cannot be read."""
    joining = {
        value
        for change in names.changes
        if change.key.type in _ADDRESSES and change.after is not None
        for value in change.after.values
        if change.before is None or value not in change.before.values
    }
    late = set(names.hidden)
    for service in snap.desired.services:
        if not any(backend.workload in rolling for backend in service.backends):
            continue
        there: set[str] = set()
        for endpoint, belief in pools.endpoints(service, snap.roster):
            there.add(belief.fact.id)
            lacks = bool(service.balancers) and service.key in weights.shown(belief.fact.id).lacking
            if lacks or endpoint.address in joining:
                late.add(belief.fact.id)
        if service.balancers or _published(service.key, snap.desired):
            # An endpoint that was not observed yet cannot be anywhere.
            groups = [
                snap.roster.groups[backend.workload] for backend in service.backends if backend.workload in rolling
            ]
            late |= {one.fact.id for group in groups for one in group.current.values()} - there
    return late


def failing_checks(snap: Snapshot, workloads: Collection[str]) -> dict[str, bool]:
    """Containers, by id, behind services of these workloads that a balancer's own checks call down (True) or have not confirmed.

    A planned disruption of another one could take more from clients than the budget says: to them these are down, or soon may be.
    """
    found: dict[str, bool] = {}
    for service in snap.desired.services if workloads else ():
        if not any(backend.workload in workloads for backend in service.backends):
            continue
        for balancer in service.balancers:
            pool = snap.sight.pools.get((balancer.provider, balancer.pool))
            members = pool.members if pool is not None else ()
            words = {member.endpoint: member.operational for member in members if member.operational in UNRELIABLE}
            serving = {member.endpoint for member in members if words and balancer_checks.serves(member)}
            for endpoint, belief in pools.endpoints(service, snap.roster) if words else ():
                if endpoint in words and len(serving) > (endpoint in serving):  # beside itself
                    found[belief.fact.id] = found.get(belief.fact.id, True) and words[endpoint] == "down"
    return found


def _published(service: str, desired: Desired) -> bool:
    return any(target.service == service for policy in desired.policies for target in policy.targets)
