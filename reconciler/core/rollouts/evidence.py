"""Evidence: all facts about the revisions of one workload, gathered once, before any rule judges them.

`rollback` and `activate` use no other facts; they change the rollout history only. Called by `revisions` for
workloads whose revisions stand beside each other.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND, Container, Workload
from manifests.values.limits import Held
from reconciler.core.limits import suspensions, windows
from reconciler.core.model.instant import Now, next_after
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Act, HeldAction, Hold, Rule
from reconciler.core.model.revision import Rollout, Standing, due_at
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import health, host_restart, read_back, start_failures
from reconciler.core.rollouts import recheck as rechecks
from reconciler.core.rollouts.health import Health
from reconciler.core.rollouts.recheck import Recheck
from reconciler.core.rollouts.start_failures import StartFailure

_ACTIVATE = HeldAction(Act.ACTIVATE)


class Evidence(NamedTuple):
    """The facts by which one workload is judged.

    health: revision -> its replicas that have the traffic or may get it; leaving replicas count as unknown. serving: the replicas
    of the revision that has the traffic, or may take it first; leaving replicas count by their probes. stopped: the revisions of
    replicas that are stopped and kept. leftover: the same, and the revisions of outgoing replicas. unseen: the revisions of containers
    on nodes that cannot be read, `unreadable` are these nodes. start_failures: of waiting
    revisions. carrying, raised, short: as in `ReadBack`. holds: the suspensions and windows, or the clock jump, that hold a due
    activation, whatever the health; `activate` fills in their action. rechecks: revision -> the answers of its replicas since they are asked once
    more. probed: the probes of all of them.
    """

    workload: Workload
    now: Now
    health: Mapping[str, Health]
    serving: Health
    stopped: frozenset[str]
    leftover: frozenset[str]
    unseen: frozenset[str]
    unreadable: tuple[str, ...]
    start_failures: Mapping[str, StartFailure | None]
    carrying: frozenset[str]
    raised: frozenset[str]
    short: frozenset[str]
    holds: tuple[Hold, ...]
    rechecks: Mapping[str, Recheck]
    probed: tuple[Container, ...]


def gather(snap: Snapshot, ledger: Ledger, group: Group, rollout: Rollout, jumped: bool) -> Evidence:
    """Gather the facts of all revisions of one workload. `jumped`: the wall clock jumped against the steady clock since the last look."""
    workload, now = group.workload, snap.now
    first = rollout.active or workload.template.revision
    waiting = [row for row in rollout.rows if row.standing is Standing.SCHEDULED]
    due = any(due_at(row, now) <= now.steady for row in waiting) or bool(rollout.back)
    holds = _holds(snap, ledger, workload, jumped) if due else ()
    excused = host_restart.excused(snap, rollout, group)
    read = due or any(row.opened is not None for row in rollout.rows)
    pools = read_back.read_back(snap, group, [row.revision for row in rollout.rows]) if read else read_back.NOTHING
    stopped = frozenset(health.revision_of(belief) for belief in group.kept)
    return Evidence(
        workload=workload,
        now=now,
        health={
            row.revision: health.health(
                group.of(row.revision), workload, now, ledger.grants, excused, *_unseen(group, row.revision)
            )
            for row in rollout.rows
        },
        serving=health.health(
            group.of(first),
            workload,
            now,
            frozenset(),
            excused if rollout.active else host_restart.NONE_EXCUSED,
            *_unseen(group, first),
        ),
        stopped=stopped,
        leftover=stopped | {health.revision_of(belief) for belief in group.outgoing},
        unseen=frozenset(container.revision for container in group.unseen),
        unreadable=group.unreadable_nodes,
        start_failures={
            row.revision: start_failures.worst(group, row.revision, snap.desired.instance.id, ledger) for row in waiting
        },
        carrying=pools.carrying,
        raised=pools.raised,
        short=pools.short,
        holds=holds,
        probed=group.probed,
        rechecks={
            row.revision: answers
            for row in rollout.rows
            if row.rechecked is not None and (answers := rechecks.recheck(snap, group, row)) is not None
        },
    )


def _unseen(group: Group, revision: str) -> tuple[int, int]:
    """How many replicas of a revision may be on nodes that cannot be read, and how many containers of it were observed there."""
    return len(group.unknown_of(revision)), len(group.unseen_of(revision))


def _holds(snap: Snapshot, ledger: Ledger, workload: Workload, jumped: bool) -> tuple[Hold, ...]:
    """The holds of an activation that do not depend on the replicas: a clock jump, or suspensions and windows."""
    key, now = workload.key, snap.now
    if jumped:
        message = "the wall clock jumped against the steady clock, so due activations are checked again"
        return (Hold(key, "", Rule.CLOCK_JUMP, message, until=next_after(0, SECOND, now), held=_ACTIVATE),)
    subject = suspensions.Subject(key, key, by_manifest=workload.suspend)
    return (
        *suspensions.suspended(snap.desired, ledger, subject, "", now, _ACTIVATE),
        *windows.holds(snap.desired, Held.ROLLOUT, key, "", now, _ACTIVATE),
    )
