"""Grants: the permission for one disruption, what it may cut meanwhile, and when it is over at the latest. Called by all rules that ask what is leaving."""

from collections.abc import Iterable
from typing import NamedTuple

from manifests.values.desired import SECOND, Workload
from providers.facts import ContainerState
from reconciler.core.model.instant import FOREVER, Now, due, elapsed
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason

URGENT = frozenset({Reason.LIVENESS_FAILED, Reason.STARTUP_FAILED, Reason.RECREATE})
"""Causes that lie in failed health: the replica serves nobody, so no TTL is waited for, and recovering calls them off."""


RESTARTS = frozenset({Reason.LIVENESS_FAILED, Reason.STARTUP_FAILED, Reason.REQUESTED})
"""Causes that end in a new generation of the same container."""


DELETIONS = frozenset({Reason.PRUNED, Reason.DESTROYED})
"""Causes that a container without a manifest may leave for."""


DEADLINE = 600 * SECOND
"""A restart or recreation that has not become available by then is over; the next one goes through the gates again. It runs
from the grant, or from weight 0 where names and TTLs are waited for before."""


SLACK = 300 * SECOND
"""How much longer it may take than the manifest's own times for drain, stop, startup and readiness add up to, if that is later."""


CUTTING = 10 * SECOND
"""How long ending what is still under way after a drain may take; then the stop ends it."""


UP = {ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING}


class Drain(NamedTuple):
    """How requests in flight are waited for (ns): none must be there for `quiet`, which is waited for until `longest`."""

    quiet: int
    longest: int


def drain_of(workload: Workload) -> Drain:
    """What the manifest of a workload says of draining."""
    return Drain(workload.drain_min, workload.drain_max)


def returns(grant: Grant) -> bool:
    """Whether the replica comes back after it: a restart or a recreation."""
    return grant.recreate or grant.cause in RESTARTS


def may_cut(grant: Grant, now: Now) -> bool:
    """Whether its weight may go to 0: at once for failed health, after the name is out and its TTL over for a planned exit."""
    if grant.cause in URGENT:
        return True
    return grant.names_out is not None and elapsed(grant.names_out, now) >= grant.ttl


def may_empty(grant: Grant, workload: Workload | None) -> bool:
    """Whether it may take the last weight of a pool: for failed health, and where the budget allows that no replica is available."""
    if grant.cause in URGENT:
        return True
    return returns(grant) and workload is not None and workload.max_unavailable >= workload.replicas


def allowance(workload: Workload | None) -> int:
    """How long a restart or recreation of this workload may take (ns): what its manifest allows for is never cut short."""
    if workload is None:
        return DEADLINE
    template, container = workload.template, workload.template.container
    probes = [one for one in (container.startup, container.liveness, container.readiness) if one is not None]
    grace = max([template.grace, *(probe.grace for probe in probes)])
    # The longest that the verdict of a healthy but slow application can take, probe after probe.
    verdicts = sum(
        probe.initial_delay + probe.period * max(probe.failure_threshold, probe.success_threshold) for probe in probes
    )
    return max(DEADLINE, workload.drain_max + grace + verdicts + workload.min_ready + SLACK)


def deadline_at(grant: Grant, workload: Workload | None, now: Now) -> int:
    """The steady instant at which a restart or recreation is over whatever became of it; FOREVER for those that have no end."""
    if not returns(grant):
        return FOREVER
    begun = grant.at if grant.cause in URGENT else grant.weight_out
    return FOREVER if begun is None else due(begun, allowance(workload), now)


def in_flight(grants: Iterable[Grant], prefix: str) -> int:
    """How many disruptions of this workload (its key and a slash) are under way."""
    return sum(1 for grant in grants if grant.object.startswith(prefix))
