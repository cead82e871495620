"""What the policy of the Guard forbids after it came into force: kept as it runs, and not created again. Called by `gates`.

New manifests that violate the policy never come into force, so a workload is marked only in manifests that were in force before the
policy. Its containers go on: they are probed, weighed, started and restarted, because all that gives no container more than it has. A
container that would be created for it is held. So is a recreation, before the old container stops: nothing could take its place.
"""

from collections.abc import Iterable

from manifests.values.desired import Desired, Workload
from manifests.values.privileges import engine_sockets
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.want import Kind, Want

_CREATES = frozenset({Kind.CREATE, Kind.RECREATE})


def hold(want: Want, declared: Workload, desired: Desired, leaving: Iterable[Grant]) -> Hold | None:
    """The hold of a candidate that would create a container which the policy forbids.

    Args:
        want: the candidate; its workload has the template that the container would be created from.
        declared: the same workload as it is declared.
        leaving: the open grants; a replica whose old container was already given up gets its new one.
    """
    workload = want.workload
    if workload is None or want.kind not in _CREATES:
        return None
    reason = workload.forbidden
    if workload.template.revision != declared.template.revision:
        # The manifests say nothing of the template of an earlier revision, which comes from the ledger.
        reason = desired.guard.policy.refusal(workload.name, workload.template, engine_sockets(desired.providers))
    if not reason or (want.kind is Kind.CREATE and any(grant.object == want.object for grant in leaving)):
        return None
    message = f"{reason}; running containers are kept, and none is created"
    next_step = f"change {workload.key}, or allow it in spec.policy of the Guard"
    return Hold(want.object, want.id, Rule.POLICY_VIOLATION, message, next_step=next_step, held=want.held)
