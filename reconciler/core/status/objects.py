"""Status: the state of every object, derived from the stages of one decision.

`decide` calls `assess`, which only keeps the counts and the results of the stages. `rows` spells them out where they are needed:
for `reconcile status` and the stored decision.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from manifests.values.desired import Desired
from manifests.values.image_choice import IMAGE_POLICY, ImageChoice
from manifests.values.rollouts import STAGED
from providers.facts import ContainerFact, ContainerState, Generation, PoolFact, Probes, ProbeValue
from reconciler.core.dns import record_lists
from reconciler.core.dns.names import Names
from reconciler.core.exits.grants import returns
from reconciler.core.health.belief import Belief, Sight
from reconciler.core.limits import suspensions
from reconciler.core.model import suspension_scope
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Grant
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Act, Hold, Rule
from reconciler.core.model.revision import why_failed
from reconciler.core.replicas import memory, passed_probes, placement
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Group, Roster, nodes_in_use, replica_name
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import replacement
from reconciler.core.status import endpoints, revisions, serving
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


def _suspended(group: Group, placed: Mapping[str, str], stopped: Container[str]) -> bool:
    """Whether a suspension or the deny list (`stopped`: their keys) stops a workload, or a node that its replicas use."""
    if group.workload.key in stopped:
        return True
    return any(suspensions.node_key(node) in stopped for node in nodes_in_use(group, placed))


def assess(snap: Snapshot, counts: Mapping[str, Availability], names: Names | None = None) -> Status:
    """The status of one decision."""
    ledger = snap.observed.ledger
    rows: list[WorkloadStatus] = []
    all_suspended = snap.desired.guard.suspend or "*" in ledger.suspensions
    stopped = {*ledger.suspensions, *snap.desired.guard.deny}
    for key, group in snap.roster.groups.items():
        count, workload = counts[key], group.workload
        existing = len(group.current) + len(group.outgoing) + len(group.surplus)
        if group.unknown or group.unseen:
            condition = Condition.UNKNOWN
        elif all_suspended or workload.suspend or (stopped and _suspended(group, snap.roster.placed, stopped)):
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
    unknown: dict[str, str] = {node: fact.reason for node, fact in snap.sight.unknown_runtimes.items()}
    unknown.update({f"{provider}/{pool}": fact.reason for (provider, pool), fact in snap.sight.unknown_pools.items()})
    unknown.update({f"{provider}/{zone}": fact.reason for (provider, zone), fact in snap.sight.unknown_zones.items()})
    return Status(rows, snap.desired, snap.observed, snap.roster, snap.sight, unknown, names)


class State(StrEnum):
    """The state of one replica."""

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
    """The state of a replica: the first of these that applies.

    Failed: it is not restarted again until an operator resumes it or its template changes. Restarting, Leaving: a disruption is
    in progress. Ready: it may serve, also while an action on it is held, such as its replacement. Held: it is not known to be ready, and
    an action on it is held. NotReady: its readiness fails. Running: it runs, and its readiness is unknown. Pending: it was created and
    does not run yet.
    """
    if failed:
        return State.FAILED
    if grant is not None:
        return State.RESTARTING if returns(grant) else State.LEAVING
    if belief.ready is ProbeValue.PASS:
        return State.READY
    if held:
        return State.HELD
    if belief.fact.state is not ContainerState.RUNNING:
        return State.PENDING if belief.fact.state is ContainerState.CREATED else State.NOT_READY
    return State.NOT_READY if belief.ready is ProbeValue.FAIL else State.RUNNING


def _probe(verdicts: Probes | None, name: str, ever_passed: bool, now: Now) -> dict[str, Any] | None:
    fact = getattr(verdicts, name) if verdicts is not None else None
    if fact is None:
        return None
    value = fact.value
    if value is ProbeValue.UNKNOWN and fact.last in {ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN} and not ever_passed:
        # A probe that never reached its target may be a wrong manifest: it neither restarts nor promotes anything.
        value = ProbeValue.CANNOT_RUN
    if fact.last_at + fact.valid_for <= now.steady:
        value = ProbeValue.UNKNOWN  # the last probe is too old
    return {
        "verdict": value.value,
        "last": fact.last.value,
        "streak": f"{fact.streak}/{fact.threshold}",
        "since_wall": now.wall - now.steady + fact.since,
        "checked_wall": now.wall - now.steady + fact.last_at,
        "detail": fact.detail,
    }


class _Context(NamedTuple):
    """Facts about all replicas: grants of recreations by replica, weights by container, what gets traffic, and what is held.

    failed, held: ids of containers whose restarts have stopped, or of which an action is held. asked: replicas with a hold that is about
    no container, such as an operator's drain. stopped: the keys of suspensions and of the deny list.
    """

    recreated: Mapping[str, Grant]
    failed: frozenset[str]
    held: frozenset[str]
    asked: frozenset[str]
    weights: Mapping[str, int]
    carrying: Mapping[str, bool | None]
    stopped: frozenset[str]


def _context(status: Status, holds: Sequence[Hold], facts: Mapping[tuple[str, str], PoolFact]) -> _Context:
    grants, desired, sight = status.observed.ledger.grants, status.desired, status.sight
    carrying = {} if desired is None or sight is None else serving.carrying(desired, sight, status.roster)
    recreated = {grant.object: grant for grant in grants.values() if grant.recreate}
    failed = frozenset(container for hold in holds if hold.rule is Rule.FAILED for container in hold.held.containers)
    held = frozenset(container for hold in holds for container in hold.held.containers)
    asked = frozenset(hold.object for hold in holds if not hold.held.containers and hold.held.act is not Act.CREATE)
    stopped = frozenset([*status.observed.ledger.suspensions, *(() if desired is None else desired.guard.deny)])
    return _Context(recreated, failed, held, asked, _weights(status, facts), carrying, stopped)


def _replica(
    status: Status, group: Group, belief: Belief, role: str, context: _Context, spread: Mapping[str, int], now: Now
) -> dict[str, Any]:
    key = group.workload.key
    fact, ledger = belief.fact, status.observed.ledger
    replica = memory.replica_of(key, fact.mark.ordinal if fact.mark else -1)
    grant = ledger.grants.get(fact.id) or (context.recreated.get(replica) if role == "current" else None)
    verdicts = status.observed.probes.get(fact.generation)
    held = fact.id in context.held or (role == "current" and replica in context.asked)
    state = state_of(belief, grant, failed=fact.id in context.failed, held=held)
    return {
        "replica": replica,
        "container": fact.name,
        "node": fact.node,
        "placement": placement.why(group.workload, fact.node, status.roster.placed.get(replica), spread),
        "role": role,
        "state": state.value,
        "runtime": fact.state.value,
        "reason": grant.cause.value if grant is not None else belief.reason.value,
        "address": fact.address,
        "weight": context.weights.get(fact.name),
        "probes": {
            name: _probe(verdicts, name, passed_probes.has_passed(ledger, key, fact, name), now)
            for name in ("startup", "liveness", "readiness")
        },
        "attempts": len(ledger.attempts.get(replica, ())),
        "runtime_restarts": fact.restarts,
        "exit": None if fact.exit_cause is None else {"code": fact.exit_code, "cause": fact.exit_cause.value},
    }


def _workload(status: Status, workload: WorkloadStatus, instance: str, context: _Context, now: Now) -> dict[str, Any]:
    """One workload with its replicas, the containers that do not exist yet, and the replicas on nodes that cannot be read."""
    group = status.roster.groups[workload.key]
    members = [(group.current[ordinal], "current") for ordinal in sorted(group.current)]
    members += [(belief, "outgoing") for belief in group.outgoing]
    members += [(belief, "surplus") for belief in group.surplus]
    members += [(belief, "waiting") for belief in group.waiting]
    members += [(belief, "kept") for belief in group.kept]
    template = group.workload.template
    unknown = group.unknown_of(template.revision)
    if group.workload.restart_only or not group.coming:
        existing: Container[int] = range(workload.wanted)
    else:
        existing = replacement.existing(group) | unknown.keys()
    spread = placement.spread(group.workload, status.roster.placed)
    return {
        **workload._asdict(),
        "condition": workload.condition.value,
        "containers": [container.name for container in (template.container, *template.sidecars)],
        "replicas": [_replica(status, group, belief, role, context, spread, now) for belief, role in members],
        "serving": serving.rows(status.observed.ledger, group, context.carrying),
        "suspended_by": _suspended_by(status, group, context.stopped, now),
        "images": [_image(choice) for choice in group.workload.image_choices if choice.image or choice.taken_back],
        "missing": [
            replica_name(group.workload, instance, ordinal)
            for ordinal in range(workload.wanted)
            if ordinal not in existing
        ],
        "unreadable": [
            {
                "replica": memory.replica_of(workload.key, ordinal),
                "container": replica_name(group.workload, instance, ordinal),
                "node": unknown[ordinal],
            }
            for ordinal in sorted(unknown)
        ],
    }


def _image(choice: ImageChoice) -> dict[str, Any]:
    """What an image policy chose for a container without a commit, and what was taken back, the newest last."""
    return {
        "container": choice.container,
        "image": choice.image or None,
        "origin": IMAGE_POLICY if choice.image else None,
        "policy": choice.rule,
        "why": choice.why,
        "declared": choice.declared,
        "chosen_wall": choice.at_wall if choice.image else None,
        "taken_back": [
            {"image": taken.image, "why": taken.why, "at_wall": taken.at_wall} for taken in choice.taken_back
        ],
    }


def _suspended_by(status: Status, group: Group, stopped: Container[str], now: Now) -> list[dict[str, Any]]:
    """Everything that suspends a workload or a node that it uses, each with its end (wall clock, ns; None: no end) and the next step.

    `stopped`: the keys of all suspensions and of the deny list. `declared` says that the manifests do, so that only a change of them ends it.
    """
    desired, ledger, workload = status.desired, status.observed.ledger, group.workload
    if desired is None:
        return []
    nodes = nodes_in_use(group, status.roster.placed) if stopped else []
    nodes = [node for node in nodes if suspensions.node_key(node) in stopped]
    holds: dict[Hold, None] = {}
    declared: set[Hold] = set()
    for node in nodes or ("",):
        subject = suspensions.Subject(workload.key, workload.key, node, workload.suspend)
        holds |= dict.fromkeys(suspensions.suspended(desired, ledger, subject, "", now))
        declared |= set(suspensions.suspended(desired, replace(ledger, suspensions={}), subject, "", now))
    return [
        {
            "message": hold.message,
            "declared": hold in declared,
            "until_wall": None if hold.until is None else now.wall + hold.until - now.steady,
            "next_step": hold.next_step or None,
        }
        for hold in holds
    ]


def replicas_of(status: Status) -> dict[Generation, tuple[str, ContainerFact]]:
    """Every container of a workload by its generation, with the key of its replica."""
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
    """The members of a pool; None while it cannot be read."""
    if pool is None:
        return None
    return [
        {"address": member.endpoint.address, "port": member.endpoint.port, "weight": member.weight, "ours": member.ours}
        for member in pool.members
    ]


def rows(status: Status, holds: Sequence[Hold], now: Now) -> dict[str, Any]:
    """The whole status as a JSON value: every object with its state, and what cannot be read.

    Args:
        status: of one decision.
        holds: of the same decision.
        now: the instant of the decision, to convert steady instants to wall-clock ones.
    """
    desired, sight = status.desired, status.sight
    if desired is None or sight is None:
        return {"workloads": [], "services": [], "names": [], "unknown": {}}
    snap = Snapshot(desired, status.observed, sight, status.roster, now)
    context = _context(status, holds, sight.pools)
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
    return {
        "workloads": [_workload(status, workload, desired.instance.id, context, now) for workload in status.workloads],
        "services": services,
        "endpoints": endpoints.endpoint_rows(snap),
        "names": name_rows(snap, status.names),
        "records": record_rows(snap),
        "lists": record_lists.list_rows(desired, sight.zones),
        "revisions": revisions.revision_rows(snap),
        "checks": check_rows(desired, status.observed.target_answers, now),
        "orphans": [fact.name for fact in status.roster.orphans],
        "renamed": [
            {"container": name, "node": node, "replica": replica}
            for (node, name), replica in sorted(status.roster.renamed.items())
        ],
        "copies": [f"{fact.name} on {fact.node}" for fact in status.roster.copies],
        "suspensions": [
            {
                "object": suspension_scope.parse(key).object,
                "scope": suspension_scope.parse(key).scope.value,
                "who": suspension.who,
                "reason": suspension.reason,
                "until_wall": suspension.until_wall or None,
                "probes": suspension.probes,
            }
            for key, suspension in sorted(status.observed.ledger.suspensions.items())
        ],
        "unknown": dict(status.unknown),
    }
