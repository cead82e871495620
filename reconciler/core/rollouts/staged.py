"""Differences of a workload whose revisions stand beside each other: what waits is kept up, what is over makes way.

The ones that have the traffic are cared for like any replica. What they were made from may not be declared any more: what is gone is
made again from what is remembered of it, and what is there is never made anew. Called by `diff` only.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.desired import Workload
from providers.facts import ContainerFact, ContainerState
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.revision import Revision, Standing
from reconciler.core.replicas.roster import Group, keeps
from reconciler.core.replicas.templates import made_from

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
    waiting = [one.revision for one in rows if one.standing is Standing.SCHEDULED and group.of(one.revision)]
    for revision in dict.fromkeys([group.serving, *waiting]):
        marks = (one.fact.mark for one in group.of(revision))
        exist = frozenset(mark.ordinal for mark in marks if mark is not None)
        if revision == wanted or len(exist) >= group.workload.replicas:
            continue
        workload = made_from(ledger, group.workload, revision)
        if workload is not None:
            found.append(Older(workload, exist))
    return found


def lost(group: Group, ledger: Ledger) -> list[int]:
    """The ordinals of replicas that should have the traffic and cannot be made again."""
    gone = [] if made(group) else [one for one in range(group.workload.replicas) if one not in group.current]
    return [] if not gone or made_from(ledger, group.workload, group.serving) is not None else gone


def asleep(group: Group, grants: Mapping[str, Grant]) -> list[Belief]:
    """Waiting replicas that are down."""
    return [one for one in group.waiting if one.fact.state in DOWN and one.fact.id not in grants]


def stays(group: Group, fact: ContainerFact, ledger: Ledger, now: Now) -> Revision | None:
    """The revision of a replica that is only stopped, because it may get the traffic back; None for one that is removed."""
    rollout = ledger.rollouts.get(group.workload.key)
    row = rollout.of(fact.mark.revision) if rollout is not None and fact.mark is not None else None
    return row if row is not None and keeps(row, group.workload.rollout.window, now) else None
