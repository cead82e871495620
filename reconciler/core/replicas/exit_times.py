"""How the containers of a workload leave once its manifest is gone and cannot say any more.

What is pruned drains and stops as gently as its manifest asked for the last time. That is kept in the ledger and not on the
containers, because a manifest may change it without a new container. Lost, they leave with the defaults. `decide` calls `learn`
at every look; `underway` asks `manner_of`.
"""

from collections.abc import Iterable
from dataclasses import replace

from manifests.values.desired import SECOND, Workload
from reconciler.core.exits.grants import deadline_at
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import ExitTimes, Grant, Ledger
from reconciler.core.replicas.roster import Roster
from reconciler.core.replicas.snapshot import Snapshot

DEFAULT = ExitTimes(2 * SECOND, 10 * SECOND, 30 * SECOND)
"""How a container leaves of which no manifest was ever seen: as one whose manifest leaves drain and grace out."""


def declared_exit(workload: Workload) -> ExitTimes:
    """What the manifest of a workload says."""
    return ExitTimes(workload.drain_min, workload.drain_max, workload.template.grace)


def learn(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with what the manifests say of workloads that have containers, and what those that are gone have said."""
    known = ledger.exit_times
    said = {
        key: declared_exit(group.workload)
        for key, group in snap.roster.groups.items()
        if not group.workload.restart_only and (group.kept or group.members())
    }
    orphans = {f"workload/{fact.mark.workload}" for fact in snap.roster.orphans if fact.mark is not None}
    # Where a node cannot be seen, nobody knows who has no container any more.
    kept = known if snap.roster.unreadable_nodes else {key: known[key] for key in orphans if key in known}
    leaving = {**kept, **said}
    return ledger if leaving == known else replace(ledger, exit_times=leaving)


def exit_times_of(ledger: Ledger, key: str) -> ExitTimes:
    """How the containers of a workload leave that no manifest names."""
    return ledger.exit_times.get(key, DEFAULT)


def workload_of(grant: Grant, roster: Roster) -> Workload | None:
    """The workload of a grant, None when no manifest describes it any more."""
    group = roster.groups.get(grant.object.rpartition("/")[0])
    return None if group is None else group.workload


def soonest_end(snap: Snapshot, grants: Iterable[Grant]) -> int:
    """The steady instant at which the first of these is over at the latest; FOREVER when none of them has an end yet."""
    return min((deadline_at(grant, workload_of(grant, snap.roster), snap.now) for grant in grants), default=FOREVER)
