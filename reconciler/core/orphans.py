"""Orphans: objects that this instance owns and no manifest names, the candidates of pruning. Called by `decide` only."""

from reconciler.core.dns import deletions
from reconciler.core.dns.names import Names
from reconciler.core.limits import approvals
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights


def of(snap: Snapshot, weights: Weights, names: Names) -> frozenset[str]:
    """The objects that carry the mark of this instance and that no manifest names."""
    workloads = {f"workload/{fact.mark.workload}" for fact in snap.roster.orphans if fact.mark}
    return frozenset(workloads | {stray.object for stray in weights.strays} | {stray.object for stray in names.strays})


def unseen(snap: Snapshot) -> frozenset[str]:
    """The workloads of this instance that no manifest names and that may have containers on nodes that cannot be read."""
    return frozenset(key for key in snap.roster.unseen.by_workload if key not in snap.roster.groups)


def items(snap: Snapshot, weights: Weights, names: Names) -> set[str]:
    """The items of all that carries the mark of this instance and that no manifest names."""
    containers = {approvals.container(fact) for fact in snap.roster.orphans if fact.mark}
    return (
        containers
        | {approvals.member(stray.provider, stray.pool, stray.endpoint) for stray in weights.strays}
        | set(deletions.of_orphans(snap, names))
    )


def owned(snap: Snapshot) -> int:
    """How many objects this instance owns: workloads, pools with members of this instance, and owners of record sets."""
    managed = {key: group for key, group in snap.roster.groups.items() if not group.workload.restart_only}
    workloads = {key for key, group in managed.items() if group.current or group.outgoing or group.surplus}
    orphaned = {f"workload/{fact.mark.workload}" for fact in snap.roster.orphans if fact.mark}
    pools = {f"pool/{key[1]}" for key, pool in snap.sight.pools.items() if any(member.ours for member in pool.members)}
    prefix = f"{snap.desired.instance.id}/"
    marks = {mark for zone in snap.sight.zones.values() for mark in zone.owners.values() if mark.startswith(prefix)}
    return len(workloads) + len(orphaned | unseen(snap)) + len(pools) + len(marks)
