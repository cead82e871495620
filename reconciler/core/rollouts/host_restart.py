"""What the host did is not held against a revision: a reboot, or an engine that went away and took its containers along.

They come back all at once, and with whatever time they need for it. Until all of them were well again, at most for as long as a
restart may take, a replica whose life began after that is not known to be unwell; one that ends by itself counts as ever. `revisions`
notes when it happened; `health` asks who was struck. The rollout history keeps it: lost, replicas count as ever.
"""

from manifests.values.desired import Workload
from providers.facts import ContainerState, ExitCause, ProbeValue
from reconciler.core.exits import grants
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import Instant, Now, due, elapsed, instant
from reconciler.core.model.revision import Rollout, Standing
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def note(snap: Snapshot, rollout: Rollout, group: Group, rebooted: bool) -> Rollout:
    """The books with when the host took replicas along, as long as that matters: a revision waits or bakes, and not all are well.

    A reboot is told by the boot id, also where the engine has started everything again by then; an engine that was away by a
    node that could not be read, which counts for lives that began since then; and both by how containers ended.
    """
    before, now = rollout.host_restarted, snap.now
    if not _at_stake(rollout, group.workload, now):
        at = None
    elif rebooted:
        at = Instant(now.wall - now.steady, 0, now.boot)  # what runs was started after it
    elif before is None and group.unreadable_nodes:
        since = min(snap.sight.unknown_runtimes[node].since for node in group.unreadable_nodes)
        at = Instant(now.wall - now.steady + since, since, now.boot)
    elif before is None:
        at = instant(now) if any(_ended_with_host(member) for member in group.members()) else None
    elif group.unreadable_nodes or any(struck(member, before, now) and not _well(member) for member in group.members()):
        at = before
    else:
        at = None
    return rollout if at == before else rollout._replace(host_restarted=at)


def excused_until(host_restarted: Instant | None, workload: Workload, now: Now) -> int:
    """The steady instant until which replicas that the host took along are not held against their revision; 0 = they are."""
    if host_restarted is None:
        return 0
    until = due(host_restarted, grants.allowance(workload), now)
    return until if until > now.steady else 0


def struck(belief: Belief, host_restarted: Instant, now: Now) -> bool:
    """Whether the host took this replica along: it is down with it, or its present life began after it."""
    fact = belief.fact
    if _ended_with_host(belief):
        return True
    if host_restarted.boot != now.boot or fact.state is ContainerState.EXITED:
        return False
    # The engine is about to start again what it took along: then it says nothing of its life.
    return fact.state is ContainerState.RESTARTING or fact.running_since >= host_restarted.steady


def _ended_with_host(belief: Belief) -> bool:
    return belief.fact.state is not ContainerState.RUNNING and belief.fact.exit_cause is ExitCause.HOST_RESTARTED


def _well(belief: Belief) -> bool:
    return belief.ready is ProbeValue.PASS and belief.live is ProbeValue.PASS


def _at_stake(rollout: Rollout, workload: Workload, now: Now) -> bool:
    """Whether a revision waits for the traffic, or may still give it back."""
    active = rollout.of(rollout.active)
    if active is not None and active.activated is not None and elapsed(active.activated, now) < workload.rollout.bake:
        return True
    return any(row.standing is Standing.SCHEDULED and row.revision != rollout.active for row in rollout.rows)
