"""Rollout: in which order revisions replace each other. Rolling, create first, one replica more than wanted at a time; or
`recreate`, where an old replica goes as soon as the budget allows it and the new one is started in its place. That one is created
before, without being started, so that what keeps it from being made (an image that is not there) costs nobody the old one.

A new replica is created while at most `replicas + 1` exist; an old one goes only when an available new one takes its place
and the workload keeps its budget. A new revision that does not become available stops the rollout by itself: the old one
keeps serving, and a still newer template takes over at once. Called by `gates` only.
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
from reconciler.core.replicas import templates
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Group

SURGE = 1
"""How many replicas more than wanted may exist while a revision replaces another."""


def may_create(group: Group, counts: Availability, created: int) -> str:
    """Empty when one more replica of the new revision may be created now, else what that waits for.

    Args:
        created: how many this decision creates already.
    """
    if not group.outgoing or group.workload.strategy in STAGED or group.workload.strategy is Strategy.RECREATE:
        return ""
    existing = len(group.current) + len(group.outgoing) + created
    room = group.workload.replicas + SURGE
    if existing >= room:
        return f"{existing} replicas exist, and at most {room} may exist during a rollout"
    waiting = len(group.current) + created - counts.current
    if waiting > 0:
        return f"{waiting} new replica{'' if waiting == 1 else 's'} must become available first"
    return ""


def may_start(group: Group, fact: ContainerFact | None) -> str:
    """Empty when a container may be started, else what that waits for: one that was made before its time waits for its place."""
    if group.workload.strategy is not Strategy.RECREATE or fact is None or fact.state is not ContainerState.CREATED:
        return ""
    for one in group.outgoing:
        same = one.fact.mark is not None and fact.mark is not None and one.fact.mark.ordinal == fact.mark.ordinal
        if same and one.fact.id != fact.id and one.fact.state is not ContainerState.CREATED:
            return "the replica of the old revision has not been removed yet"
    return ""


def replaced(group: Group, counts: Availability, retiring: int) -> str:
    """Empty when an available new replica takes the place of one more old one, else what that waits for.

    Args:
        retiring: old replicas that go already (open grants and this decision).
    """
    wanted = group.workload.replicas
    if group.workload.strategy in STAGED:
        return ""  # an old one has no traffic any more when it leaves
    arrived = counts.current - counts.arriving
    if group.outgoing and wanted and len(group.outgoing) - retiring + arrived <= wanted:
        if counts.arriving:
            return f"{counts.arriving} of {counts.current} available new replicas do not get traffic from every pool and name yet"
        return f"{counts.current} of {wanted} new replicas are available; the next old replica waits for one more"
    return ""


def over_budget(group: Group, counts: Availability, available: bool, unknown: bool, leaving_available: int) -> str:
    """Empty when the workload keeps enough available replicas without this one, else the numbers.

    Args:
        available: whether the one that would go counts as available.
        unknown: whether that is not known; then it is protected like an available one.
        leaving_available: how many available ones this decision takes away already.
    """
    workload = group.workload
    wanted = workload.replicas
    left = counts.total - leaving_available - (1 if available else 0)
    floor = max(0, wanted - workload.max_unavailable)
    if (available or unknown) and left < min(floor, wanted):
        return f"{left} of {wanted} replicas would be available, at least {floor} must be"
    return ""


DOWN = {ContainerState.CREATED, ContainerState.EXITED}


def made(group: Group) -> bool:
    """Whether replicas that have the traffic can be made anew: they are of the declared revision."""
    return group.serving == group.workload.template.revision


def there(group: Group) -> frozenset[int]:
    """The ordinals of the declared revision's replicas that exist."""
    wanted = group.workload.template.revision
    marks = (one.fact.mark for one in group.of(wanted))
    return frozenset(mark.ordinal for mark in marks if mark is not None)


class Older(NamedTuple):
    """A revision that is not declared any more: the workload as it was with it, and the ordinals of its replicas that exist."""

    workload: Workload
    there: frozenset[int]


def older(group: Group, ledger: Ledger) -> list[Older]:
    """What lacks replicas, has the traffic or waits for it, and is remembered though another revision is declared."""
    found: list[Older] = []
    rollout, wanted = ledger.rollouts.get(group.workload.key), group.workload.template.revision
    rows = rollout.rows if rollout is not None else ()
    waiting = [row.revision for row in rows if row.standing is Standing.SCHEDULED and group.of(row.revision)]
    for revision in dict.fromkeys([group.serving, *waiting]):
        marks = (one.fact.mark for one in group.of(revision))
        exist = frozenset(mark.ordinal for mark in marks if mark is not None)
        if revision == wanted or len(exist) >= group.workload.replicas:
            continue
        workload = templates.made_from(ledger, group.workload, revision)
        if workload is not None:
            found.append(Older(workload, exist))
    return found


def lost(group: Group, ledger: Ledger) -> list[int]:
    """The ordinals of replicas that should have the traffic and cannot be made again."""
    gone = [] if made(group) else [one for one in range(group.workload.replicas) if one not in group.current]
    return [] if not gone or templates.made_from(ledger, group.workload, group.serving) is not None else gone


def asleep(group: Group, grants: Mapping[str, Grant]) -> list[Belief]:
    """Waiting replicas that are down."""
    return [one for one in group.waiting if one.fact.state in DOWN and one.fact.id not in grants]


def stays(group: Group, fact: ContainerFact, ledger: Ledger, now: Now) -> Revision | None:
    """The revision of a replica that is only stopped, because it may get the traffic back; None for one that is removed."""
    rollout = ledger.rollouts.get(group.workload.key)
    row = rollout.of(fact.mark.revision) if rollout is not None and fact.mark is not None else None
    return row if row is not None and keeps(row, group.workload.rollout.window, now) else None
