"""Grants: the permission for one disruption, which weights it may cut, and when it is over at the latest.

Called by every rule that asks which containers leave.
"""

from collections.abc import Iterable
from typing import NamedTuple

from manifests.values.desired import SECOND, Workload
from providers.facts import ContainerState
from reconciler.core.model.instant import FOREVER, Now, due, elapsed
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason

URGENT = frozenset({Reason.LIVENESS_FAILED, Reason.STARTUP_FAILED, Reason.RECREATE})
"""Causes that lie in failed health: the replica serves no requests, so no TTL is waited for, and a recovery calls them off."""


RESTARTS = frozenset({Reason.LIVENESS_FAILED, Reason.STARTUP_FAILED, Reason.REQUESTED, Reason.DRAIN_DEADLINE})
"""Causes that end in a new generation of the same container."""


AT_ONCE = URGENT | {Reason.VOLUME_IN_USE}
"""Causes that do not wait for a TTL: failed health, and a second container with an exclusive volume, which damages data."""


REPLACED = frozenset({Reason.TEMPLATE_CHANGED, Reason.NODE_CHANGED})
"""Causes for which another container takes the place of this one."""


DELETIONS = frozenset({Reason.PRUNED, Reason.DESTROYED})
"""Causes for which a container without a manifest may leave."""


DEADLINE = 600 * SECOND
"""A restart or recreation whose replica is not available by then is over; the next one goes through the gates again. The time runs
from the grant, or from weight 0 where names and TTLs are waited for before."""


SLACK = 300 * SECOND
"""Added to the manifest's own times for drain, stop, startup and readiness; the later of this sum and `DEADLINE` counts."""


CUTTING = 10 * SECOND
"""How long cutting the requests that remain after a drain may take; then the stop ends them."""


UP = {ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING}


class Drain(NamedTuple):
    """How long to wait for requests in flight (ns): there must be none for `quiet`, which is waited for until `longest`."""

    quiet: int
    longest: int


def drain_of(workload: Workload) -> Drain:
    """The drain of a workload, from its manifest."""
    return Drain(workload.drain_min, workload.drain_max)


def returns(grant: Grant) -> bool:
    """Whether the replica comes back afterwards: a restart or a recreation."""
    return grant.recreate or grant.cause in RESTARTS


def may_cut(grant: Grant, now: Now) -> bool:
    """Whether the weight may go to 0: at once for failed health; for a planned exit after its name is out and the TTL over."""
    if grant.cause in AT_ONCE:
        return True
    return grant.names_out is not None and elapsed(grant.names_out, now) >= grant.ttl


def next_cut(grants: Iterable[Grant], now: Now) -> int:
    """The first steady instant after now at which a TTL is over, so that a weight may go to 0; FOREVER without one."""
    ends = [due(grant.names_out, grant.ttl, now) for grant in grants if grant.names_out is not None]
    return min((end for end in ends if end > now.steady), default=FOREVER)


def may_empty(grant: Grant, workload: Workload | None) -> bool:
    """Whether the exit may take the last weight of a pool, and the last replica that a name publishes.

    That is so for failed health, for a second container with an exclusive volume, for a replica that has been out of traffic by its own push for too long, and where the budget
    allows 0 available replicas.
    """
    if grant.cause in AT_ONCE or grant.cause is Reason.DRAIN_DEADLINE:
        return True
    return returns(grant) and workload is not None and workload.max_unavailable >= workload.replicas


def startup(workload: Workload) -> int:
    """How long (ns) a stop takes at most, and then the start of a healthy but slow application until it is ready."""
    template, container = workload.template, workload.template.container
    probes = [probe for probe in (container.startup, container.liveness, container.readiness) if probe is not None]
    grace = max([template.grace, *(probe.grace for probe in probes)])
    # The longest time until the verdict of a healthy but slow application, probe after probe.
    verdicts = sum(
        probe.initial_delay + probe.period * max(probe.failure_threshold, probe.success_threshold) for probe in probes
    )
    pushes = workload.push.startup_deadline if workload.push is not None else 0
    return grace + max(verdicts, pushes)


def allowance(workload: Workload | None) -> int:
    """How long a restart or recreation of this workload may take (ns), never less than the times of its manifest."""
    if workload is None:
        return DEADLINE
    return max(DEADLINE, workload.drain_max + startup(workload) + workload.min_ready + SLACK)


def deadline_at(grant: Grant, workload: Workload | None, now: Now) -> int:
    """The steady instant at which a restart or recreation is over, available or not; FOREVER while it has no end."""
    if not returns(grant):
        return FOREVER
    begun = grant.at if grant.cause in URGENT else grant.weight_out
    return FOREVER if begun is None else due(begun, allowance(workload), now)
