"""Availability, the third stage: how many replicas of each workload serve; every budget uses these counts.

Available = running, effectively ready for `minReadySeconds`, and not leaving. Unknown never counts as available. Called by `decide`
only.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.desired import Workload
from manifests.values.rollouts import STAGED
from providers.facts import ContainerState, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot

_PASS, _UNKNOWN = ProbeValue.PASS, ProbeValue.UNKNOWN


class Availability(NamedTuple):
    """Counts of one workload. `until` is the steady instant at which a count changes on the same facts.

    `current` counts available replicas of the desired revision, `total` those of every revision; `leaving` counts open
    grants; `unknown` counts replicas of unknown readiness, among them those on nodes that cannot be read. `arriving` counts available current ones that are not in every pool and
    name yet, while replicas replace each other.
    """

    current: int
    total: int
    leaving: int
    unknown: int
    until: int
    arriving: int = 0


def available_at(belief: Belief, min_ready: int) -> int:
    """The steady instant from which this container is available, FOREVER while it is not ready."""
    return belief.since + min_ready if belief.ready is _PASS else FOREVER


def may_serve(belief: Belief) -> bool:
    """Whether a container serves, or may do so by itself: it runs, and its health has not failed. One that is only not ready may be soon."""
    return belief.fact.state is ContainerState.RUNNING and belief.live is not ProbeValue.FAIL


def published_floor(workload: Workload) -> int:
    """How many addresses of a workload a name keeps through planned steps."""
    return max(1, workload.replicas - workload.max_unavailable) if workload.replicas else 0


def count_all(snap: Snapshot, ledger: Ledger) -> Mapping[str, Availability]:
    """Count every workload, by its key."""
    return {key: count(group, ledger.grants, snap.now) for key, group in snap.roster.groups.items()}


def count(group: Group, grants: Mapping[str, Grant], now: Now) -> Availability:
    """Count one workload."""
    min_ready, steady = group.workload.min_ready, now.steady
    current = total = leaving = unknown = 0
    until = FOREVER
    # With `activate` and `canary` only the revision that has the traffic serves.
    others = group.outgoing if group.workload.strategy not in STAGED else []
    for beliefs, is_current in ((group.current.values(), True), (others, False), (group.surplus, False)):
        for belief in beliefs:
            until = min(until, belief.until)
            if grants and belief.fact.id in grants:
                leaving += 1
                continue
            if belief.ready is _UNKNOWN:
                unknown += 1
                continue
            available_from = available_at(belief, min_ready)
            if available_from <= steady:
                total += 1
                current += is_current
            else:
                until = min(until, available_from)
    return Availability(current, total, leaving, unknown + len(group.unknown), until)
