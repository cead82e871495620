"""Steps that begin in this decision: weights that differ, and containers that passed the gates.

`disruptions` carries on earlier steps; `dns/publish` handles record sets. Called by `decide` only.
"""

from reconciler.core.actions import steps
from reconciler.core.actions.outbox import Outbox
from reconciler.core.gates import Gated
from reconciler.core.limits import approval_classes, approvals, prune_guard, suspensions
from reconciler.core.limits.prune_guard import Pruning
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights


def members(snap: Snapshot, weights: Weights, pruning: Pruning, out: Outbox) -> None:
    """Pools: members whose weight differs, and members that no manifest names."""
    links = steps.Links(snap)
    for change in weights.changes:
        action = f"weight of {change.container} in pool {change.pool}"
        holds = suspensions.suspended_document(snap.desired, out.ledger, change.object, action, out.now, change.held)
        if holds:
            out.holds.extend(holds)
        else:
            out.put(steps.weight(change, links))
    for stray in weights.strays:
        action = f"withdraw {stray.container} from {stray.provider}/{stray.pool}"
        item = approvals.member(stray.provider, stray.pool, stray.endpoint)
        hold = prune_guard.hold(snap.desired, out.ledger, pruning, stray.object, action, item, out.now)
        if hold is None:
            subject = approval_classes.member(stray.provider, stray.pool, stray.endpoint)
            given = pruning.approvals
            hold = approval_classes.hold(
                snap.desired, pruning.classes, given, subject, stray.object, action, item=item, held=stray.held
            )
        if hold is None:
            out.put(steps.weight(stray, links))
        else:
            out.holds.append(hold)


def containers(snap: Snapshot, gated: Gated, out: Outbox) -> None:
    """Creates, starts and changes in place."""
    links = steps.Links(snap)
    for want in gated.creates:
        step = steps.create(snap.desired, want, out.ledger)
        if step is not None:
            out.put(step)
    for want in gated.starts:
        if want.fact is not None:
            out.put(steps.start(want, want.fact, links))
    for want in gated.updates:
        update = steps.update(want, want.fact, out.ledger) if want.fact is not None else None
        if update is not None:
            out.put(update)
