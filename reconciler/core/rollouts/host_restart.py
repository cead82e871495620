"""Host restarts: a reboot, or an engine that stopped with its containers, does not count against a revision.

All containers come back at once and need time. Until all of them are ready again, at most for as long as a restart may take, a
failing replica that was started after the host restart counts as unknown; a replica that exits by itself counts as failing.
`revisions` notes the instant in the rollout history; `evidence` asks which replicas it excuses. Without the history, no replica is
excused.
"""

from typing import NamedTuple

from manifests.values.desired import Workload
from providers.facts import ContainerState, ExitCause, ProbeValue
from reconciler.core.exits import grants
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed, instant
from reconciler.core.model.revision import Rollout, Standing
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def note(snap: Snapshot, rollout: Rollout, group: Group, rebooted: bool) -> Rollout:
    """The history with the instant of the host restart, while a revision waits or can be rolled back, and not all replicas are ready.

    The instant of the host's boot shows a reboot, even when the engine has started everything again. A node with containers of the workload that
    cannot be read shows that its engine was away: that excuses containers that were started since then. The exit cause of containers
    shows both.
    """
    before, now = rollout.host_restarted, snap.now
    if not _at_stake(rollout, group.workload, now):
        at = None
    elif rebooted:
        booted = snap.observed.booted
        at = Instant(
            now.wall - now.steady + booted, booted, now.lineage
        )  # all running containers were started after it
    elif before is None and group.unseen:
        since = _silent_since(snap, group)
        at = Instant(now.wall - now.steady + since, since, now.lineage)
    elif before is None:
        at = instant(now) if any(_ended_with_host(member) for member in group.members()) else None
    elif group.unseen or any(_affected(member, before) and not _ready(member) for member in group.members()):
        at = before
    else:
        at = None
    return rollout if at == before else rollout._replace(host_restarted=at)


class Excused(NamedTuple):
    """The containers, by id, that do not count as failing because the host stopped them, and the steady instant until which."""

    containers: frozenset[str]
    until: int


NONE_EXCUSED = Excused(frozenset(), FOREVER)


def _silent_since(snap: Snapshot, group: Group) -> int:
    """Since when (steady) the first of the nodes with unseen containers of the workload cannot be read."""
    return min(snap.sight.unknown_runtimes[container.node].since for container in group.unseen)


def excused(snap: Snapshot, rollout: Rollout, group: Group) -> Excused:
    """The replicas that the last host restart excuses, for at most as long as a restart may take.

    While an engine is away it excuses nothing: its own containers are unknown, and those on other nodes have nothing to do with it.
    """
    at, now = rollout.host_restarted, snap.now
    if at is not None and group.unseen and at.lineage == now.lineage and at.steady == _silent_since(snap, group):
        return NONE_EXCUSED
    until = due(at, grants.allowance(group.workload), now) if at is not None else 0
    if at is None or until <= now.steady:
        return NONE_EXCUSED
    replicas = (*group.current.values(), *group.waiting)
    return Excused(frozenset(belief.fact.id for belief in replicas if _affected(belief, at)), until)


def _affected(belief: Belief, host_restarted: Instant) -> bool:
    """Whether the host restart affected this replica: it ended with the host, or its container was started after that."""
    fact = belief.fact
    if _ended_with_host(belief):
        return True
    if fact.state is ContainerState.EXITED:
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
