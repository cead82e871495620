"""Host restarts: a reboot, or an engine that stopped with its containers, does not count against a revision.

All containers come back at once and need time. Until all of them are ready again, at most for as long as a restart may take, a
failing replica that was started after the host restart counts as unknown; a replica that exits by itself counts as failing.
`revisions` notes the instant in the rollout history; `health` asks which replicas were affected. Without the history, no replica is
excused.
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
    """The history with the instant of the host restart, while a revision waits or can be rolled back, and not all replicas are ready.

    A new boot id shows a reboot, even when the engine has started everything again. An unreadable node shows that the engine was
    away: it excuses containers that were started since then. The exit cause of containers shows both.
    """
    before, now = rollout.host_restarted, snap.now
    if not _at_stake(rollout, group.workload, now):
        at = None
    elif rebooted:
        at = Instant(now.wall - now.steady, 0, now.boot)  # all running containers were started after it
    elif before is None and group.unreadable_nodes:
        since = min(snap.sight.unknown_runtimes[node].since for node in group.unreadable_nodes)
        at = Instant(now.wall - now.steady + since, since, now.boot)
    elif before is None:
        at = instant(now) if any(_ended_with_host(member) for member in group.members()) else None
    elif group.unreadable_nodes or any(
        affected(member, before, now) and not _ready(member) for member in group.members()
    ):
        at = before
    else:
        at = None
    return rollout if at == before else rollout._replace(host_restarted=at)


def excused_until(host_restarted: Instant | None, workload: Workload, now: Now) -> int:
    """The steady instant until which replicas that the host restart affected do not count as failing; 0 when they count."""
    if host_restarted is None:
        return 0
    until = due(host_restarted, grants.allowance(workload), now)
    return until if until > now.steady else 0


def affected(belief: Belief, host_restarted: Instant, now: Now) -> bool:
    """Whether the host restart affected this replica: it ended with the host, or its container was started after that."""
    fact = belief.fact
    if _ended_with_host(belief):
        return True
    if host_restarted.boot != now.boot or fact.state is ContainerState.EXITED:
        return False
    # The engine is about to start it again and reports no start time yet.
    return fact.state is ContainerState.RESTARTING or fact.running_since >= host_restarted.steady


def _ended_with_host(belief: Belief) -> bool:
    return belief.fact.state is not ContainerState.RUNNING and belief.fact.exit_cause is ExitCause.HOST_RESTARTED


def _ready(belief: Belief) -> bool:
    return belief.ready is ProbeValue.PASS and belief.live is ProbeValue.PASS


def _at_stake(rollout: Rollout, workload: Workload, now: Now) -> bool:
    """Whether a revision waits for the traffic, or can still be rolled back automatically."""
    active = rollout.of(rollout.active)
    if active is not None and active.activated is not None and elapsed(active.activated, now) < workload.rollout.bake:
        return True
    return any(row.standing is Standing.SCHEDULED and row.revision != rollout.active for row in rollout.rows)
