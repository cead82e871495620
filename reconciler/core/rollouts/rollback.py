"""Taking a switch back: because the new revision fails while it bakes, or because a person wants it. Called by `switch`.

What had the traffic before is kept, stopped, and gets it back the way it lost it: raise, read back, lower. The revision that
failed is not tried again until its manifest changes, so the next poll of the source does not undo this.
"""

from manifests.values.desired import SECOND
from reconciler.core.model.instant import due, elapsed, instant
from reconciler.core.model.revision import Revision, Standing
from reconciler.core.replicas.roster import keeps
from reconciler.core.rollouts.revision_health import Look, Switching, health

LOW = 30 * SECOND
"""How long too few replicas of a revision that bakes must be available before the switch is taken back."""


def previous_of(it: Switching, look: Look) -> Revision | None:
    """The revision that had the traffic before and can get it back: superseded, kept, and with containers."""
    there = {one.fact.mark.revision for one in (*look.group.kept, *look.group.outgoing) if one.fact.mark is not None}
    found = [
        row
        for row in it.rollout.rows
        if row.standing is Standing.SUPERSEDED
        and keeps(row, look.workload.rollout.window, look.now)
        and row.revision in there
    ]
    return max(found, key=lambda row: (row.number, row.revision), default=None)


def take_back(it: Switching, look: Look) -> None:
    """A person wants the revision before: a waiting one is not let in any more, and the active one gives the traffic back."""
    assert it.rollout.asked is not None  # noqa: S101  (asked by the caller)
    who, reason = it.rollout.asked
    it.rollout = it.rollout._replace(asked=None)
    why = f"taken back by {who or 'somebody'}: {reason or 'no reason given'}"
    at = instant(look.now)
    for row in it.rollout.rows:
        if row.standing is Standing.SCHEDULED and row.revision != it.rollout.active:
            it.set(row, standing=Standing.FAILED, ended=at, opened=None, due=None, step=0, stepped=None, why=why)
    active, previous = it.rollout.of(it.rollout.active), previous_of(it, look)
    if active is None:
        return
    if previous is None:
        it.set(active, why="it was asked to be taken back, but no revision before it is kept")
        return
    it.set(active, standing=Standing.FAILED, why=why)
    it.rollout = it.rollout._replace(back=previous.revision, low=None)


def bake(it: Switching, look: Look) -> None:
    """Watch the revision that took over last; what it can give the traffic back to is kept for longer than that."""
    workload, now = look.workload, look.now
    row = it.rollout.of(it.rollout.active)
    if row is None or row.activated is None or row.standing is not Standing.ACTIVE or not workload.replicas:
        return
    previous = previous_of(it, look)
    end = due(row.activated, workload.rollout.bake, now)
    if previous is None or end <= now.steady:
        if it.rollout.low is not None:
            it.rollout = it.rollout._replace(low=None)
        return
    it.later(end, now)
    found = health(look.group.of(row.revision), workload.replicas, workload, now, shaken=it.rollout.shaken)
    it.until = min(it.until, found.until)
    if found.whole and row.scale != workload.replicas:
        row = it.set(row, scale=workload.replicas)
    # Replicas that were added after the switch say nothing against the revision until all of them were well once.
    floor = max(1, min(workload.replicas, row.scale or workload.replicas) - workload.max_unavailable)
    if found.available + found.unknown >= floor:
        it.rollout = it.rollout._replace(low=None)
        return
    low = it.rollout.low or instant(now)
    it.rollout = it.rollout._replace(low=low)
    if elapsed(low, now) < LOW:
        it.later(due(low, LOW, now), now)
        return
    why = (
        f"{found.available} of {workload.replicas} replicas were available after it took over, at least {floor} must be"
    )
    it.set(row, standing=Standing.FAILED, why=why)
    it.rollout = it.rollout._replace(back=previous.revision, low=None)
