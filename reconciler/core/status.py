"""Status: the state of every object in the words of people, derived from the stages of one decision.

Building it costs nothing until somebody asks: `decide` keeps the counts and the stages' outputs, `rows` spells them out for
`reconcile status` and the stored decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from manifests.desired import Desired
from providers.facts import PoolFact, Probes, ProbeValue
from reconciler.core.activation import Roster, replica_name
from reconciler.core.availability import Availability
from reconciler.core.history import path_of, replica_of
from reconciler.core.observed import Observed
from reconciler.core.trust import Belief, Sight
from reconciler.core.weights import endpoints


class Condition(StrEnum):
    """The state of a workload, from good to bad."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"
    UNKNOWN = "Unknown"


class WorkloadStatus(NamedTuple):
    """One workload in numbers."""

    key: str
    condition: Condition
    wanted: int
    existing: int
    available: int
    unknown: int
    revision: str
    number: int


@dataclass(frozen=True, slots=True)
class Status:
    """The state of everything at one decision."""

    workloads: Sequence[WorkloadStatus] = ()
    desired: Desired | None = None
    observed: Observed = field(default_factory=Observed)
    crew: Roster = field(default_factory=lambda: Roster({}, (), {}, (), ()))
    seen: Sight | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


def assess(
    desired: Desired, observed: Observed, crew: Roster, seen: Sight, counts: Mapping[str, Availability]
) -> Status:
    """Sum up one look."""
    ledger = observed.ledger
    rows: list[WorkloadStatus] = []
    everything = desired.guard.suspend or "*" in ledger.suspensions
    for key, group in crew.groups.items():
        count, workload = counts[key], group.workload
        existing = len(group.current) + len(group.outgoing) + len(group.surplus)
        if group.blind:
            condition = Condition.UNKNOWN
        elif everything or workload.suspend or key in ledger.suspensions or key in desired.guard.deny:
            condition = Condition.SUSPENDED
        elif count.current >= workload.replicas and existing == workload.replicas:
            condition = Condition.READY
        elif group.outgoing or group.surplus or count.leaving or count.unknown or existing < workload.replicas:
            condition = Condition.PROGRESSING
        else:
            condition = Condition.DEGRADED
        mark = ledger.revisions.get(key)
        rows.append(
            WorkloadStatus(
                key,
                condition,
                workload.replicas,
                existing,
                count.total,
                count.unknown,
                workload.template.revision,
                0 if mark is None else mark.number,
            )
        )
    unknown: dict[str, str] = {name: one.reason for name, one in seen.unknown_runtimes.items()}
    unknown.update({f"{key[0]}/{key[1]}": one.reason for key, one in seen.unknown_pools.items()})
    unknown.update({f"{key[0]}/{key[1]}": one.reason for key, one in seen.unknown_zones.items()})
    return Status(rows, desired, observed, crew, seen, unknown)


def _probe(verdicts: Probes | None, name: str, ever_passed: bool) -> dict[str, Any] | None:
    fact = getattr(verdicts, name) if verdicts is not None else None
    if fact is None:
        return None
    value = fact.value
    if value is ProbeValue.UNKNOWN and fact.last in {ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN} and not ever_passed:
        # What was never reached may be a wrong manifest as well as a dead container: it neither restarts nor promotes.
        value = ProbeValue.CANNOT_RUN
    return {"verdict": value.value, "streak": f"{fact.streak}/{fact.threshold}", "detail": fact.detail}


def _replica(status: Status, key: str, belief: Belief, weights: Mapping[str, int], role: str) -> dict[str, Any]:
    fact, ledger = belief.fact, status.observed.ledger
    grant = ledger.grants.get(fact.id)
    verdicts = status.observed.probes.get(fact.generation)
    state = "Ready" if belief.ready is ProbeValue.PASS else "NotReady" if belief.ready is ProbeValue.FAIL else "Pending"
    if grant is not None:
        state = "Restarting" if grant.cause.value.endswith("Failed") else "Leaving"
    return {
        "replica": replica_of(key, fact.mark.ordinal if fact.mark else -1),
        "container": fact.name,
        "node": fact.node,
        "role": role,
        "state": state,
        "runtime": fact.state.value,
        "reason": grant.cause.value if grant is not None else belief.reason.value,
        "address": fact.address,
        "weight": weights.get(fact.name),
        "probes": {
            name: _probe(verdicts, name, path_of(key, name, fact.node) in ledger.passed)
            for name in ("startup", "liveness", "readiness")
        },
        "attempts": len(ledger.attempts.get(replica_of(key, fact.mark.ordinal if fact.mark else -1), ())),
    }


def _weights(status: Status, pools: Mapping[tuple[str, str], PoolFact]) -> dict[str, int]:
    """Container -> its weight in the pools that can be read."""
    found: dict[str, int] = {}
    if status.desired is None:
        return found
    for service in status.desired.services:
        by_endpoint = {
            member.endpoint: member.weight
            for balancer in service.balancers
            if (balancer.provider, balancer.pool) in pools
            for member in pools[balancer.provider, balancer.pool].members
            if member.ours
        }
        for endpoint, belief in endpoints(service, status.crew):
            if endpoint in by_endpoint:
                found[belief.fact.name] = by_endpoint[endpoint]
    return found


def _members(pool: PoolFact | None) -> list[dict[str, Any]] | None:
    """The members of a pool; None when it cannot be read."""
    if pool is None:
        return None
    return [
        {"address": one.endpoint.address, "port": one.endpoint.port, "weight": one.weight, "ours": one.ours}
        for one in pool.members
    ]


def rows(status: Status) -> dict[str, Any]:
    """Everything spelled out as a JSON-able value: workloads with their replicas, names, and what cannot be read."""
    desired, seen = status.desired, status.seen
    if desired is None or seen is None:
        return {"workloads": [], "services": [], "names": [], "unknown": {}}
    weights = _weights(status, seen.pools)
    workloads = []
    for one in status.workloads:
        group = status.crew.groups[one.key]
        replicas = [_replica(status, one.key, group.current[n], weights, "current") for n in sorted(group.current)]
        replicas += [_replica(status, one.key, belief, weights, "outgoing") for belief in group.outgoing]
        replicas += [_replica(status, one.key, belief, weights, "surplus") for belief in group.surplus]
        missing = [
            replica_name(group.workload, desired.instance.id, n)
            for n in range(one.wanted)
            if n not in group.current and not group.blind
        ]
        workloads.append({**one._asdict(), "condition": one.condition.value, "replicas": replicas, "missing": missing})
    names = []
    for policy in desired.policies:
        zone = seen.zones.get((policy.provider, policy.zone))
        values = None
        if zone is not None:
            values = sorted(
                value
                for key, record in zone.records.items()
                if key.name == policy.host and key.type in {"A", "AAAA"}
                for value in record.values
            )
        names.append({"key": policy.key, "host": policy.host, "zone": policy.zone, "published": values})
    services = [
        {
            "key": service.key,
            "pools": [
                {
                    "provider": balancer.provider,
                    "pool": balancer.pool,
                    "members": _members(seen.pools.get((balancer.provider, balancer.pool))),
                }
                for balancer in service.balancers
            ],
        }
        for service in desired.services
    ]
    orphans = [fact.name for fact in status.crew.orphans]
    return {
        "workloads": workloads,
        "services": services,
        "names": names,
        "orphans": orphans,
        "unknown": dict(status.unknown),
    }
