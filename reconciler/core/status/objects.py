"""Status: the state of every object, derived from the stages of one decision.

`decide` keeps the counts and the results of its stages; only `rows` spells them out, for `reconcile status` and the stored decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from manifests.values.desired import Desired, Workload
from manifests.values.rollouts import STAGED
from providers.facts import ContainerFact, ContainerState, Generation, PoolFact, Probes, ProbeValue
from reconciler.core.dns import record_lists
from reconciler.core.dns.policies import Names
from reconciler.core.exits.grants import returns
from reconciler.core.health.belief import Belief, Sight
from reconciler.core.limits import suspensions
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.revision import why_failed
from reconciler.core.replicas import memory
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Roster, replica_name
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts.replacement import existing as declared
from reconciler.core.status import endpoints, revisions
from reconciler.core.status.names import check_rows, name_rows, record_rows
from reconciler.core.traffic import pools


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
    roster: Roster = field(default_factory=lambda: Roster({}, (), {}, (), ()))
    sight: Sight | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    names: Names | None = None


def _stopped(key: str, workload: Workload, ledger: Ledger, desired: Desired) -> bool:
    """Whether a suspension or the deny list stops a workload as a whole, or on one of its nodes."""
    names = {key, *(suspensions.node_key(node) for node in workload.nodes)}
    return not names.isdisjoint(ledger.suspensions) or not names.isdisjoint(desired.guard.deny)


def assess(snap: Snapshot, counts: Mapping[str, Availability], names: Names | None = None) -> Status:
    """Sum up one look."""
    ledger = snap.observed.ledger
    rows: list[WorkloadStatus] = []
    everything = snap.desired.guard.suspend or "*" in ledger.suspensions
    anything = bool(ledger.suspensions or snap.desired.guard.deny)
    for key, group in snap.roster.groups.items():
        count, workload = counts[key], group.workload
        existing = len(group.current) + len(group.outgoing) + len(group.surplus)
        if group.unreadable_nodes:
            condition = Condition.UNKNOWN
        elif everything or workload.suspend or (anything and _stopped(key, workload, ledger, snap.desired)):
            condition = Condition.SUSPENDED
        elif count.current >= workload.replicas and existing == workload.replicas:
            condition = Condition.READY
        elif workload.strategy not in STAGED and why_failed(ledger.rollouts.get(key), workload.template.revision):
            condition = Condition.DEGRADED
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
    unknown: dict[str, str] = {name: gap.reason for name, gap in snap.sight.unknown_runtimes.items()}
    unknown.update({f"{key[0]}/{key[1]}": gap.reason for key, gap in snap.sight.unknown_pools.items()})
    unknown.update({f"{key[0]}/{key[1]}": gap.reason for key, gap in snap.sight.unknown_zones.items()})
    return Status(rows, snap.desired, snap.observed, snap.roster, snap.sight, unknown, names)


class State(StrEnum):
    """The state of one replica, as the operator sees it."""

    PENDING = "Pending"
    RUNNING = "Running"
    READY = "Ready"
    NOT_READY = "NotReady"
    RESTARTING = "Restarting"
    LEAVING = "Leaving"
    FAILED = "Failed"
    HELD = "Held"


HEALTHY = frozenset({State.READY, State.LEAVING})
"""States that `reconcile status --unhealthy` leaves out."""


def state_of(belief: Belief, grant: Grant | None, *, failed: bool, held: bool) -> State:
    """The state of a replica; the first that applies counts.

    Failed: it is not restarted until the operator resumes it or its template changes. Restarting and Leaving: a disruption is
    in progress. Held: an action on it is held. Ready, NotReady: the belief about its readiness. Running: it runs, and its
    readiness has no verdict. Pending: it does not run (yet).
    """
    if failed:
        return State.FAILED
    if grant is not None:
        return State.RESTARTING if returns(grant) else State.LEAVING
    if held:
        return State.HELD
    if belief.ready is ProbeValue.PASS:
        return State.READY
    if belief.fact.state is not ContainerState.RUNNING:
        return State.PENDING if belief.fact.state is ContainerState.CREATED else State.NOT_READY
    return State.NOT_READY if belief.ready is ProbeValue.FAIL else State.RUNNING


def _probe(verdicts: Probes | None, name: str, ever_passed: bool, now: Now) -> dict[str, Any] | None:
    fact = getattr(verdicts, name) if verdicts is not None else None
    if fact is None:
        return None
    value = fact.value
    if value is ProbeValue.UNKNOWN and fact.last in {ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN} and not ever_passed:
        # A probe that never got an answer may be a wrong manifest or a dead container: it neither restarts nor promotes.
        value = ProbeValue.CANNOT_RUN
    if fact.last_at + fact.valid_for <= now.steady:
        value = ProbeValue.UNKNOWN  # lapsed: the last check is too old
    return {
        "verdict": value.value,
        "last": fact.last.value,
        "streak": f"{fact.streak}/{fact.threshold}",
        "since_wall": now.wall - now.steady + fact.since,
        "checked_wall": now.wall - now.steady + fact.last_at,
        "detail": fact.detail,
    }


class _Context(NamedTuple):
    """What the ledger and the gates say about replicas: recreations in progress, failed replicas, held replicas."""

    recreated: Mapping[str, Grant]
    failed: frozenset[str]
    held: frozenset[str]
    weights: Mapping[str, int]


def _context(status: Status, holds: Sequence[Hold], facts: Mapping[tuple[str, str], PoolFact]) -> _Context:
    grants = status.observed.ledger.grants
    recreated = {grant.object: grant for grant in grants.values() if grant.recreate}
    failed = frozenset(hold.object for hold in holds if hold.rule is Rule.FAILED)
    held = frozenset(hold.object for hold in holds)
    return _Context(recreated, failed, held, _weights(status, facts))


def _replica(status: Status, key: str, belief: Belief, role: str, context: _Context, now: Now) -> dict[str, Any]:
    fact, ledger = belief.fact, status.observed.ledger
    obj = memory.replica_of(key, fact.mark.ordinal if fact.mark else -1)
    grant = ledger.grants.get(fact.id) or (context.recreated.get(obj) if role == "current" else None)
    verdicts = status.observed.probes.get(fact.generation)
    state = state_of(belief, grant, failed=obj in context.failed, held=obj in context.held)
    return {
        "replica": obj,
        "container": fact.name,
        "node": fact.node,
        "role": role,
        "state": state.value,
        "runtime": fact.state.value,
        "reason": grant.cause.value if grant is not None else belief.reason.value,
        "address": fact.address,
        "weight": context.weights.get(fact.name),
        "probes": {
            name: _probe(verdicts, name, memory.path_of(key, name, fact.node) in ledger.passed, now)
            for name in ("startup", "liveness", "readiness")
        },
        "attempts": len(ledger.attempts.get(obj, ())),
        "runtime_restarts": fact.restarts,
        "exit": None if fact.exit_cause is None else {"code": fact.exit_code, "cause": fact.exit_cause.value},
    }


def replicas_of(status: Status) -> dict[Generation, tuple[str, ContainerFact]]:
    """Every container of a workload by its generation, with its replica's key."""
    return {
        belief.fact.generation: (
            memory.replica_of(key, belief.fact.mark.ordinal if belief.fact.mark else -1),
            belief.fact,
        )
        for key, group in status.roster.groups.items()
        for belief in group.members()
    }


def _weights(status: Status, facts: Mapping[tuple[str, str], PoolFact]) -> dict[str, int]:
    """Container -> its weight in the pools that can be read."""
    weights: dict[str, int] = {}
    if status.desired is None:
        return weights
    for service in status.desired.services:
        by_endpoint = {
            member.endpoint: member.weight
            for balancer in service.balancers
            if (balancer.provider, balancer.pool) in facts
            for member in facts[balancer.provider, balancer.pool].members
            if member.ours
        }
        for endpoint, belief in pools.endpoints(service, status.roster):
            if endpoint in by_endpoint:
                weights[belief.fact.name] = by_endpoint[endpoint]
    return weights


def _members(pool: PoolFact | None) -> list[dict[str, Any]] | None:
    """The members of a pool; None when it cannot be read."""
    if pool is None:
        return None
    return [
        {"address": member.endpoint.address, "port": member.endpoint.port, "weight": member.weight, "ours": member.ours}
        for member in pool.members
    ]


def rows(status: Status, holds: Sequence[Hold], now: Now) -> dict[str, Any]:
    """All rows as a JSON-able value: workloads with their replicas, names, and objects that cannot be read.

    Args:
        status: of one decision.
        holds: of the same decision.
        now: its instant, to convert steady instants to wall-clock ones.
    """
    desired, sight = status.desired, status.sight
    if desired is None or sight is None:
        return {"workloads": [], "services": [], "names": [], "unknown": {}}
    snap = Snapshot(desired, status.observed, sight, status.roster, now)
    context = _context(status, holds, sight.pools)
    workloads = []
    for workload in status.workloads:
        group = status.roster.groups[workload.key]
        members = [(group.current[n], "current") for n in sorted(group.current)]
        members += [(belief, "outgoing") for belief in group.outgoing]
        members += [(belief, "surplus") for belief in group.surplus]
        members += [(belief, "waiting") for belief in group.waiting]
        members += [(belief, "kept") for belief in group.kept]
        replicas = [_replica(status, workload.key, belief, role, context, now) for belief, role in members]
        expected = (
            range(workload.wanted)
            if group.unreadable_nodes or group.workload.restart_only or not group.coming
            else declared(group)
        )
        missing = [
            replica_name(group.workload, desired.instance.id, n) for n in range(workload.wanted) if n not in expected
        ]
        template = group.workload.template
        containers = [container.name for container in (template.container, *template.sidecars)]
        row = {**workload._asdict(), "condition": workload.condition.value, "containers": containers}
        workloads.append({**row, "replicas": replicas, "missing": missing})
    services = [
        {
            "key": service.key,
            "pools": [
                {
                    "provider": balancer.provider,
                    "pool": balancer.pool,
                    "members": _members(sight.pools.get((balancer.provider, balancer.pool))),
                }
                for balancer in service.balancers
            ],
        }
        for service in desired.services
    ]
    orphans = [fact.name for fact in status.roster.orphans]
    return {
        "workloads": workloads,
        "services": services,
        "endpoints": endpoints.endpoint_rows(snap),
        "names": name_rows(snap, status.names),
        "records": record_rows(snap),
        "lists": record_lists.list_rows(desired, sight.zones),
        "revisions": revisions.revision_rows(snap),
        "checks": check_rows(desired, status.observed.target_answers, now),
        "orphans": orphans,
        "suspensions": [
            {
                "object": name,
                "who": suspension.who,
                "reason": suspension.reason,
                "until_wall": suspension.until_wall or None,
                "probes": suspension.probes,
            }
            for name, suspension in sorted(status.observed.ledger.suspensions.items())
        ],
        "unknown": dict(status.unknown),
    }
