"""Replacement: which replicas of a workload are created, started, kept or removed while revisions replace each other.

Rolling creates first: a new replica while at most `replicas + 1` exist; an old one goes only when an available new one takes its
place and the workload keeps its budget. With `recreate` an old replica goes as soon as the budget allows it. Its successor is
created before, without being started, so that an image that is missing costs no old replica. A new revision that does not become
available stops the rollout: the old one keeps serving, and a still newer template takes over at once. With `activate` and `canary`
all replicas of a waiting revision exist beside the active one, and replicas of both are created again from templates in the ledger.

`differences` asks which replicas are missing, down or kept; `gates` asks which create, start or removal may go ahead now.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.desired import Workload
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerFact, ContainerState
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.revision import Revision, Standing, keeps
from reconciler.core.replicas import claims, templates
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Group

SURGE = 1
"""How many replicas more than wanted may exist while a revision replaces another."""

DOWN = {ContainerState.CREATED, ContainerState.EXITED}
"""States of a container that is down and can be started."""


def active_is_declared(group: Group) -> bool:
    """Whether the revision that has the traffic is the declared one, so that its replicas can be created from the manifest."""
    return group.serving == group.workload.template.revision


def existing(group: Group) -> frozenset[int]:
    """The ordinals of the declared revision's replicas that exist."""
    return _ordinals(group, group.workload.template.revision)


def _ordinals(group: Group, revision: str) -> frozenset[int]:
    marks = (belief.fact.mark for belief in group.of(revision))
    return frozenset(mark.ordinal for mark in marks if mark is not None)


class Older(NamedTuple):
    """A revision that is no longer declared: its workload with the old template, and the ordinals of its replicas that exist."""

    workload: Workload
    existing: frozenset[int]


def older(group: Group, ledger: Ledger) -> list[Older]:
    """Undeclared revisions that have the traffic or wait for it, lack replicas, and whose template is in the ledger."""
    lacking: list[Older] = []
    rollout, wanted = ledger.rollouts.get(group.workload.key), group.workload.template.revision
    rows = rollout.rows if rollout is not None else ()
    waiting = [row.revision for row in rows if row.standing is Standing.SCHEDULED and group.of(row.revision)]
    for revision in dict.fromkeys([group.serving, *waiting]):
        ordinals = _ordinals(group, revision)
        if revision == wanted or len(ordinals) >= group.workload.replicas:
            continue
        workload = templates.made_from(ledger, group.workload, revision)
        if workload is not None:
            lacking.append(Older(workload, ordinals))
    return lacking


def lost(group: Group, ledger: Ledger) -> list[int]:
    """The ordinals of missing replicas of the active revision that cannot be created again: its template is not known."""
    if active_is_declared(group):
        return []
    exist = group.current.keys() | group.unknown.keys()
    gone = [ordinal for ordinal in range(group.workload.replicas) if ordinal not in exist]
    return [] if not gone or templates.made_from(ledger, group.workload, group.serving) is not None else gone


def down_while_waiting(group: Group, grants: Mapping[str, Grant]) -> list[Belief]:
    """Replicas of waiting revisions that are down."""
    return [belief for belief in group.waiting if belief.fact.state in DOWN and belief.fact.id not in grants]


def kept_revision(group: Group, fact: ContainerFact, ledger: Ledger, now: Now) -> Revision | None:
    """The revision of a replica that is stopped and kept, because it may get the traffic back; None when the replica is removed."""
    rollout = ledger.rollouts.get(group.workload.key)
    row = rollout.of(fact.mark.revision) if rollout is not None and fact.mark is not None else None
    return row if row is not None and keeps(row, group.workload.rollout.window, now) else None


def may_create(group: Group, counts: Availability, created: int, overdue: int = 0) -> str:
    """Empty when one more replica of the new revision may be created now, else why not yet.

    Args:
        created: how many this decision creates already.
        overdue: new replicas that pushed draining and do not exit: the rollout does not wait for them, and
            they take no room.
    """
    if not group.outgoing or group.workload.strategy in STAGED or group.workload.strategy is Strategy.RECREATE:
        return ""
    total = len(group.current) + len(group.outgoing) + len(group.unseen_ordinals) + created
    room = group.workload.replicas + SURGE + overdue
    if total >= room:
        return f"{total} replicas exist, and at most {room} may exist during a rollout"
    waiting = len(group.current) + created - counts.current - overdue
    if waiting > 0:
        return f"{waiting} new replica{'' if waiting == 1 else 's'} must become available first"
    return ""


def may_start(group: Group, fact: ContainerFact | None) -> str:
    """Empty when a container may be started, else why not yet: a container created early waits until its predecessor is removed."""
    if group.workload.strategy is not Strategy.RECREATE or fact is None or fact.state is not ContainerState.CREATED:
        return ""
    for belief in group.outgoing:
        old = belief.fact
        same = old.mark is not None and fact.mark is not None and old.mark.ordinal == fact.mark.ordinal
        if same and old.id != fact.id and old.state is not ContainerState.CREATED:
            return "the replica of the old revision has not been removed yet"
    # With an exclusive volume, the check of every start holds this one, and says what ends that.
    for container in () if claims.of_workload(group.workload).volumes else group.unseen:
        if fact.mark is not None and container.ordinal == fact.mark.ordinal and container.id != fact.id:
            return f"an earlier container of this replica is on node {container.node}, which cannot be read"
    return ""


def replaced(group: Group, counts: Availability, retiring: int) -> str:
    """Empty when an available new replica takes the place of one more old one, else why not yet.

    Args:
        retiring: old replicas that are leaving already (open grants and this decision).
    """
    wanted = group.workload.replicas
    if group.workload.strategy in STAGED:
        return ""  # an old replica has no traffic when it leaves
    arrived = counts.current - counts.arriving
    # Replicas on nodes that cannot be read exist, as far as is known. Whether they are available is not: the budget counts that.
    exist = len(group.outgoing) - retiring + arrived + len(group.unseen_ordinals)
    if group.outgoing and wanted and exist <= wanted:
        if counts.arriving:
            return f"{counts.arriving} of {counts.current} available new replicas do not get traffic from every pool and name yet"
        return f"{counts.current} of {wanted} new replicas are available; the next old replica waits for one more"
    return ""


def over_budget(group: Group, counts: Availability, available: bool, unknown: bool, leaving_available: int) -> str:
    """Empty when the workload keeps enough available replicas without this replica, else the numbers.

    Args:
        available: whether the replica that would go counts as available.
        unknown: whether that is unknown; then it is protected like an available one.
        leaving_available: how many available replicas this decision disrupts already.
    """
    workload = group.workload
    wanted = workload.replicas
    left = counts.total - leaving_available - (1 if available else 0)
    floor = max(0, wanted - workload.max_unavailable)
    if (available or unknown) and left < min(floor, wanted):
        return f"{left} of {wanted} replicas would be available, at least {floor} must be"
    return ""
