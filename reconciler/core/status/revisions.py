"""Rows of revisions for `reconcile get revisions`, from the rollout history in the ledger and the observed containers.

`status/objects` calls it. Instants are wall-clock ns, so that they stay true in a stored decision.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from manifests.values.desired import Workload
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerState, ProbeFact, Probes, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.revision import Revision, Rollout, Standing, keeps
from reconciler.core.replicas import image_pins
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import start_failures
from reconciler.core.traffic import pools

_UP = {ContainerState.RUNNING, ContainerState.PAUSED}
_DOWN = {ContainerState.EXITED, ContainerState.CREATED}


def revision_rows(snap: Snapshot) -> list[dict[str, Any]]:
    """All revisions in the rollout history and the declared one, by workload, the newest first."""
    addresses = _addresses(snap)
    rows: list[dict[str, Any]] = []
    for key, group in sorted(snap.roster.groups.items()):
        if group.workload.restart_only:
            continue
        rollout = snap.observed.ledger.rollouts.get(key, Rollout())
        revisions = _all(group, rollout, snap.observed.ledger, snap.now)
        for revision in sorted(revisions, key=lambda revision: (-revision.number, revision.revision)):
            rows.append(_row(snap, group, rollout, revision, addresses, snap.desired.instance.id))
    return rows


def _all(group: Group, rollout: Rollout, ledger: Ledger, now: Now) -> list[Revision]:
    """The rollout history, and a row for the declared revision while the history has none."""
    wanted = group.workload.template.revision
    if rollout.of(wanted) is not None:
        return list(rollout.rows)
    mark = ledger.revisions.get(group.workload.key)
    number = 0 if mark is None else mark.number
    image = group.workload.template.container.engine.image
    at = Instant(now.wall, now.steady, now.lineage)
    return [*rollout.rows, Revision(wanted, number, Standing.SCHEDULED, at, image)]


def _addresses(snap: Snapshot) -> Mapping[str, Sequence[str]]:
    """Container id -> the endpoints of its services as `address:port`."""
    addresses: dict[str, list[str]] = {}
    for service in snap.desired.services:
        for endpoint, belief in pools.endpoints(service, snap.roster):
            host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
            text = f"{host}:{endpoint.port}"
            if text not in addresses.setdefault(belief.fact.id, []):
                addresses[belief.fact.id].append(text)
    return addresses


def _row(
    snap: Snapshot, group: Group, rollout: Rollout, row: Revision, addresses: Mapping[str, Sequence[str]], instance: str
) -> dict[str, Any]:
    workload = group.workload
    members = (*group.members(), *group.kept)
    beliefs = [
        belief for belief in members if belief.fact.mark is not None and belief.fact.mark.revision == row.revision
    ]
    beliefs.sort(key=lambda belief: (belief.fact.name, belief.fact.node))
    facts = [belief.fact for belief in beliefs]
    verdicts = [probes for fact in facts if (probes := snap.observed.probes.get(fact.generation)) is not None]
    last = max((probe.last_at for probes in verdicts for probe in _each(probes)), default=0)
    started = [fact.started_at for fact in facts if fact.started_at]
    digest = dict(image_pins.pins_of(snap.observed.ledger, workload.key, row.revision)).get("", "")
    change, change_at = _next(workload, rollout, row, snap.now)
    unseen = bool(group.unseen_of(row.revision))
    return {
        "workload": workload.key,
        "revision": row.revision,
        "number": row.number,
        "status": row.standing.value,
        "declared": row.revision == workload.template.revision,
        "resource_health": _resources(beliefs, unseen),
        "application_health": _application(beliefs, unseen),
        "last_check_wall": snap.now.wall + last - snap.now.steady if last else None,
        "created_wall": row.created.wall,
        "started_wall": min(started, default=None),
        "due_wall": _due(workload, row),
        "activated_wall": _wall(row.activated),
        "ended_wall": _wall(row.ended),
        "addresses": sorted({text for fact in facts if fact.state in _UP for text in addresses.get(fact.id, ())}),
        "image": row.image or next((fact.image for fact in facts if fact.image), "") or None,
        "digest": digest or None,
        "containers": [
            {"name": fact.name, "id": fact.id, "node": fact.node, "state": fact.state.value} for fact in facts
        ],
        "why": _why(group, row, snap.observed, instance) or None,
        "next": change or None,
        "next_wall": change_at,
    }


def _why(group: Group, row: Revision, observed: Observed, instance: str) -> str:
    """The cause of the last change of a revision; of a scheduled one, the start failure that holds it up."""
    failure = None
    if row.standing is Standing.SCHEDULED:
        failure = start_failures.worst(group, row.revision, instance, observed.ledger)
    return failure.message if failure is not None else row.why


def _each(probes: Probes) -> Iterable[ProbeFact]:
    return (probe for probe in (probes.startup, probes.liveness, probes.readiness) if probe is not None)


def _resources(beliefs: Sequence[Belief], unseen: bool) -> str:
    """The containers together, as the runtime reports them: all run, some do not, none does, or there are none.

    With `unseen` ones, on nodes that cannot be read, it is unknown whether all run, or whether none does.
    """
    if not beliefs:
        return "unknown" if unseen else "none"
    facts = [belief.fact for belief in beliefs]
    sick = any(fact.health is not None and fact.health.value is ProbeValue.FAIL for fact in facts)
    running = sum(fact.state is ContainerState.RUNNING for fact in facts)
    if running == len(facts):
        return "unhealthy" if sick else "unknown" if unseen else "healthy"
    if all(fact.state in _DOWN for fact in facts):
        return "unknown" if unseen else "stopped"
    return "unhealthy" if sick or not running else "degraded"


def _application(beliefs: Sequence[Belief], unseen: bool) -> str:
    """The applications together, by their probes and pushes. An unknown verdict is neither healthy nor unhealthy.

    `unseen`: some are on nodes that cannot be read.
    """
    running = [belief for belief in beliefs if belief.fact.state is ContainerState.RUNNING]
    if not running:
        return "unknown" if unseen else "none"
    if any(ProbeValue.FAIL in (belief.ready, belief.live) for belief in running):
        return "unhealthy"
    healthy = all(belief.ready is ProbeValue.PASS and belief.live is ProbeValue.PASS for belief in running)
    return "healthy" if healthy and not unseen else "unknown"


def _wall(at: Instant | None) -> int | None:
    return None if at is None else at.wall


def _due(workload: Workload, row: Revision) -> int | None:
    """When a revision may take over, or might when it did (wall-clock ns). None without such a time, as for the first one."""
    if workload.strategy not in STAGED:
        return None
    due = row.at or row.created.wall + row.delay
    early = row.activated is not None and row.activated.wall < due and row.standing is not Standing.SCHEDULED
    return None if early else due


def _next(workload: Workload, rollout: Rollout, row: Revision, now: Now) -> tuple[str, int | None]:
    """The next automatic change and its wall-clock instant (None: it follows an event). Empty when there is none."""
    times, due = workload.rollout, _due(workload, row)
    if rollout.back == row.revision:
        return "gets the traffic back once it is available", None
    if row.standing is Standing.SCHEDULED:
        if due is None or not rollout.active:
            return "takes over as its replicas become available", None
        if row.opened is not None:
            return "is being activated", None
        if row.due is None:
            return "takes over", max(due, now.wall)
        return "expires unless its replicas are verified", row.due.wall + times.pending_grace
    if row.standing is Standing.ACTIVE and workload.strategy in STAGED and row.activated is not None:
        end = row.activated.wall + times.bake
        others = any(other.revision != row.revision and keeps(other, times.window, now) for other in rollout.rows)
        return ("automatic rollback ends", end) if others and end > now.wall else ("", None)
    if row.standing in {Standing.FAILED, Standing.EXPIRED} and row.revision == workload.template.revision:
        # It waits for an operator: no instant and no event of the workload itself changes it.
        retry = "of its activation time" if workload.strategy in STAGED else f"for: reconcile resume {workload.key}"
        return f"waits for a change of the template, or {retry}", None
    if workload.strategy in STAGED and row.ended is not None and keeps(row, times.window, now):
        return "is removed", row.ended.wall + times.window
    if row.standing is Standing.ACTIVE and row.revision != workload.template.revision:
        return ("is replaced" if workload.strategy in {Strategy.ROLLING, Strategy.RECREATE} else ""), None
    return "", None
