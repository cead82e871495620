"""Drain and grace times of workloads whose manifest is deleted.

Pruned containers drain and stop with the times of their last manifest. The ledger keeps these times, not the containers, because a
manifest may change them without a new container. Without them the defaults count. `decide` calls `learn` at every look;
`disruptions` asks `exit_times_of`.
"""

from collections.abc import Iterable
from dataclasses import replace

from manifests.values.desired import SECOND, Workload
from reconciler.core.exits.grants import allowance, deadline_at
from reconciler.core.model.instant import FOREVER, Now, due
from reconciler.core.model.ledger import ExitTimes, Grant, Ledger
from reconciler.core.replicas.roster import Roster
from reconciler.core.replicas.snapshot import Snapshot

DEFAULT = ExitTimes(2 * SECOND, 10 * SECOND, 30 * SECOND)
"""The times without a known manifest: the defaults of drain and grace."""


def declared_exit(workload: Workload) -> ExitTimes:
    """The times of a workload's manifest."""
    return ExitTimes(workload.drain_min, workload.drain_max, workload.template.grace)


def learn(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the times of workloads that have containers: declared ones now, deleted ones as declared last."""
    known = ledger.exit_times
    declared = {
        key: declared_exit(group.workload)
        for key, group in snap.roster.groups.items()
        if not group.workload.restart_only and (group.kept or group.members())
    }
    orphans = {f"workload/{fact.mark.workload}" for fact in snap.roster.orphans if fact.mark is not None}
    # A workload may have containers on nodes that cannot be read.
    unseen = snap.roster.unseen
    kept = (
        known if unseen.unlisted else {key: known[key] for key in orphans | unseen.by_workload.keys() if key in known}
    )
    times = {**kept, **declared}
    return ledger if times == known else replace(ledger, exit_times=times)


def exit_times_of(ledger: Ledger, key: str) -> ExitTimes:
    """The times of a workload that no manifest declares any more."""
    return ledger.exit_times.get(key, DEFAULT)


def workload_of(grant: Grant, roster: Roster) -> Workload | None:
    """The workload of a grant, None when no manifest declares it any more."""
    group = roster.groups.get(grant.object.rpartition("/")[0])
    return None if group is None else group.workload


def soonest_end(snap: Snapshot, grants: Iterable[Grant]) -> int:
    """The steady instant of the earliest deadline of these grants; FOREVER when none has a deadline yet."""
    return min((_end_of(snap, grant) for grant in grants), default=FOREVER)


def _end_of(snap: Snapshot, grant: Grant) -> int:
    if not snap.roster.unseen.nodes:
        return deadline_at(grant, workload_of(grant, snap.roster), snap.now)
    end = counts_until(grant, snap.roster, snap.now)
    if end == FOREVER:
        return deadline_at(grant, workload_of(grant, snap.roster), snap.now)
    return end if end > snap.now.steady else FOREVER


def counts_until(grant: Grant, roster: Roster, now: Now) -> int:
    """The steady instant until which a disruption that cannot be observed counts against limits; FOREVER for one that can.

    It counts for as long as it may take. Afterwards its container only counts as not available, like all others on that node; the
    disruption itself goes on when the node can be read again.
    """
    return due(grant.at, allowance(workload_of(grant, roster)), now) if roster.unseen.hides(grant) else FOREVER
