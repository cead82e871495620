"""Rollback: the active revision gives the traffic back, because it fails within `bake` or because an operator requests it.

The previous revision is stopped and kept, and gets the traffic back as it lost it: raise, read back, lower. The revision that
failed is not retried until its manifest changes, so the next poll of the source does not undo a rollback. Called by `revisions`.
"""

from manifests.values.desired import SECOND
from reconciler.core.model.instant import due, elapsed, instant
from reconciler.core.model.reasons import Wait, Waiting
from reconciler.core.model.revision import Revision, Rollout, Standing, keeps
from reconciler.core.rollouts.evidence import Evidence
from reconciler.core.rollouts.turn import Turn

LOW = 30 * SECOND
"""How long too few replicas must be available within `bake` before the revision is rolled back."""


def judge(turn: Turn, evidence: Evidence) -> None:
    """Answer an operator's request for a rollback, then watch the active revision."""
    if turn.rollout.asked is not None:
        _asked(turn, evidence)
    _bake(turn, evidence)


def _previous(rollout: Rollout, evidence: Evidence) -> Revision | None:
    """The revision that had the traffic before and can get it back: superseded, kept, and with containers.

    Its containers may all be on nodes that cannot be read: see `_reachable`.
    """
    window = evidence.workload.rollout.window
    rows = [
        row
        for row in rollout.rows
        if row.standing is Standing.SUPERSEDED
        and (row.revision in evidence.leftover or row.revision in evidence.unseen)
        and keeps(row, window, evidence.now)
    ]
    return max(rows, key=lambda row: (row.number, row.revision), default=None)


def _reachable(row: Revision | None, evidence: Evidence) -> bool:
    """Whether a container of the revision is on a node that can be read."""
    return row is not None and row.revision in evidence.leftover


def _asked(turn: Turn, evidence: Evidence) -> None:
    """An operator's rollback: waiting revisions fail, and the active one gives the traffic back."""
    rollout = turn.rollout
    assert rollout.asked is not None  # noqa: S101  (asked by the caller)
    active, previous = rollout.of(rollout.active), _previous(rollout, evidence)
    if active is not None and previous is not None and not _reachable(previous, evidence):
        message = (
            f"a rollback was requested; all containers of revision {previous.revision[:8]} are on nodes that cannot be read: "
            f"{', '.join(evidence.unreadable)}"
        )
        turn.waits.append(Wait(evidence.workload.key, Waiting.NODE, message))
        return
    who, reason = rollout.asked
    rollout = rollout._replace(asked=None)
    why = f"rolled back by {who or 'an operator'}: {reason or 'no reason given'}"
    for row in rollout.rows:
        if row.standing is Standing.SCHEDULED and row.revision != rollout.active:
            failed = row._replace(standing=Standing.FAILED, ended=instant(evidence.now), why=why)
            rollout = rollout.put(failed._replace(opened=None, due=None, step=0, stepped=None, rejected=True))
    if active is not None and previous is None:
        rollout = rollout.put(active._replace(why="a rollback was requested, but no earlier revision is kept"))
    elif active is not None and previous is not None:
        rollout = rollout.put(active._replace(standing=Standing.FAILED, why=why, rejected=True))
        rollout = rollout._replace(back=previous.revision, low=None)
    turn.rollout = rollout


def _bake(turn: Turn, evidence: Evidence) -> None:
    """Watch the active revision for `bake`; the previous revision is kept for longer than that."""
    rollout, workload, now = turn.rollout, evidence.workload, evidence.now
    row = rollout.of(rollout.active)
    if row is None or row.activated is None or row.standing is not Standing.ACTIVE or not workload.replicas:
        return
    previous = _previous(rollout, evidence)
    end = due(row.activated, workload.rollout.bake, now)
    if previous is None or not _reachable(previous, evidence) or end <= now.steady:
        turn.rollout = rollout if rollout.low is None else rollout._replace(low=None)
        return
    health = evidence.serving
    turn.until = min(turn.until, end, health.until)
    if health.whole and row.scale != workload.replicas:
        row = row._replace(scale=workload.replicas)
        rollout = rollout.put(row)
    # Replicas that were added after the activation prove nothing against the revision until all of them were verified once.
    floor = max(1, min(workload.replicas, row.scale or workload.replicas) - workload.max_unavailable)
    if health.available + health.unknown >= floor:
        turn.rollout = rollout._replace(low=None)
        return
    low = rollout.low or instant(now)
    if elapsed(low, now) < LOW:
        turn.rollout = rollout._replace(low=low)
        turn.until = min(turn.until, due(low, LOW, now))
        return
    why = f"{health.available} of {workload.replicas} replicas were available after it took over, at least {floor} must be"
    rollout = rollout.put(row._replace(standing=Standing.FAILED, why=why, rejected=True))
    turn.rollout = rollout._replace(back=previous.revision, low=None)
