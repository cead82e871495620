"""A rolling rollout: how many replicas of the declared revision have replaced old ones, and whether it is stuck.

`replacement` decides which container goes next; this module keeps the history of the whole rollout. Called by `revisions`.
"""

from manifests.values.desired import SECOND, Workload
from providers.facts import ContainerState, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import Now, due_awake, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.revision import ENDED, Revision, Rollout, Standing
from reconciler.core.replicas import availability
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import start_failures
from reconciler.core.rollouts.turn import Turn


def advance(snap: Snapshot, ledger: Ledger, group: Group, turn: Turn) -> None:
    """Bring the history of one workload up to what its replicas show."""
    workload, now = group.workload, snap.now
    wanted = workload.template.revision
    rollout = _declared_last(turn.rollout, wanted, now)
    turn.rollout, row = rollout, rollout.of(wanted)
    assert row is not None  # noqa: S101  (`revisions` has declared it)
    ready = sum(1 for belief in group.current.values() if _verified(belief, workload, now))
    old_unseen = any(container.revision not in ("", wanted) for container in group.unseen)
    if not group.outgoing and not old_unseen:
        if ready >= workload.replicas or (not rollout.active and ready):
            rollout = rollout._replace(ready=0, progressed=None, back="", low=None)
            turn.rollout = _taken_over(rollout, row, now) if rollout.active != wanted else rollout
            return
        if not rollout.active:
            return
        if rollout.active == wanted:
            turn.rollout = rollout._replace(progressed=None, ready=0)
            return
    if ready + len(group.unknown) >= workload.replicas and (group.unknown or old_unseen):
        # Only nodes that cannot be read keep it from going on. That time does not count against its deadline.
        if row.standing is not Standing.FAILED:
            turn.rollout = rollout._replace(ready=ready, progressed=None)
        return
    progressed = rollout.progressed
    if progressed is None or ready > rollout.ready or row.due is None:
        if row.standing is Standing.FAILED:
            row = row._replace(standing=Standing.SCHEDULED, ended=None, why="")
        progressed = instant(now)
        row = row._replace(due=progressed)
        turn.rollout = rollout.put(row)._replace(ready=ready, progressed=progressed)
    end = due_awake(progressed, workload.rollout.progress_deadline, now, snap.observed.booted)
    if end > now.steady:
        turn.until = min(turn.until, end)
        return
    failure = None
    if row.standing is not Standing.FAILED:
        failure = start_failures.worst(group, row.revision, snap.desired.instance.id, ledger)
        row = _failed(group, row, failure, now)
        if row.standing is Standing.FAILED:
            # From here on one more ready replica counts as progress.
            turn.rollout = turn.rollout.put(row)._replace(ready=ready)
    lacking = f"{ready} of {workload.replicas} new replicas are available"
    why = row.why if row.standing is Standing.FAILED else _cause(group, failure)
    turn.holds.append(_stuck(group, row, f"{lacking}; {why}" if why else lacking))


def _declared_last(rollout: Rollout, wanted: str, now: Now) -> Rollout:
    """The history in which the declared revision has superseded those that waited before it."""
    row = rollout.of(wanted)
    if row is None:
        return rollout
    if rollout.asked is not None:
        why = "a rollback was requested, but a rolling rollout keeps no earlier revision; change the template instead"
        row = row._replace(why=why)
        rollout = rollout._replace(asked=None).put(row)
    for other in rollout.rows:
        if other.standing is Standing.SCHEDULED and other.number < row.number:
            why = f"{wanted[:8]} was declared after it"
            ended = other._replace(standing=Standing.SUPERSEDED, ended=instant(now), due=None, why=why)
            rollout = rollout.put(ended)._replace(progressed=None)
    return rollout


def _failing(group: Group) -> str:
    """The name of a running replica that fails a probe; empty when there is none."""
    sick = (belief.fact for belief in group.current.values() if ProbeValue.FAIL in (belief.ready, belief.live))
    return next((fact.name for fact in sick if fact.state is ContainerState.RUNNING), "")


def _cause(group: Group, failure: start_failures.StartFailure | None) -> str:
    """Why the revision is stuck; empty when nothing of it fails."""
    name = _failing(group)
    return failure.message if failure is not None else f"{name} fails its probe" if name else ""


def _failed(group: Group, row: Revision, failure: start_failures.StartFailure | None, now: Now) -> Revision:
    """The revision of a stuck rollout: failed when a replica fails a probe or cannot be created, started or kept up.

    A registry that does not answer, probes that cannot run, and failing balancer checks do not fail the revision. A revision that
    had the traffic before, and is declared again during the next one's rollout, keeps its standing.
    """
    certain = bool(_failing(group)) or (failure is not None and failure.certain)
    if row.standing is not Standing.SCHEDULED or not certain:
        return row
    return row._replace(standing=Standing.FAILED, ended=instant(now), why=_cause(group, failure))


def _stuck(group: Group, row: Revision, lacking: str) -> Hold:
    """The hold of a rolling rollout that has made no progress for too long."""
    workload = group.workload
    message = (
        f"revision {row.revision[:8]} has made no progress for {workload.rollout.progress_deadline // SECOND}s: {lacking}"
        f"{'; the old replicas keep running' if group.outgoing else ''}"
    )
    next_step = (
        f"correct the template of {workload.key} (its rollout starts at once), or remove the cause and run: "
        f"reconcile resume {workload.key}"
    )
    return Hold(workload.key, f"roll out {row.revision[:8]}", Rule.PROGRESS, message, next_step=next_step)


def _verified(belief: Belief, workload: Workload, now: Now) -> bool:
    return belief.live is not ProbeValue.FAIL and availability.available_at(belief, workload.min_ready) <= now.steady


def _taken_over(rollout: Rollout, row: Revision, now: Now) -> Rollout:
    """The history after a complete rolling rollout: no old replica is left."""
    at = instant(now)
    for other in rollout.rows:
        if other.revision != row.revision and other.standing not in ENDED:
            why = f"{row.revision[:8]} took its place"
            rollout = rollout.put(other._replace(standing=Standing.SUPERSEDED, ended=at, due=None, why=why))
    done = row._replace(standing=Standing.ACTIVE, activated=at, ended=None, due=None, why="")
    return rollout.put(done)._replace(active=row.revision)
