"""What stops an action of any kind: the Guard, an operator's suspension, a call without an outcome, failed tries.

Called by `gates` for candidates, by `disruptions` for the next step of a disruption, by `changes` for pools and by `dns/publish`
for names.
"""

from typing import NamedTuple

from manifests.values.desired import SECOND, Desired
from reconciler.core.limits import backoff
from reconciler.core.model.instant import Now, next_after
from reconciler.core.model.ledger import Ledger, StepFailure
from reconciler.core.model.reasons import Hold, Rule


def node_key(node: str) -> str:
    """The key under which a whole node is suspended or denied."""
    return f"node/{node}"


class Subject(NamedTuple):
    """What an action is about: the document, such as `workload/web`; the object, such as `workload/web/0`; and its node."""

    key: str
    object: str
    node: str = ""


def suspended(desired: Desired, ledger: Ledger, subject: Subject, action: str, now: Now) -> Hold | None:
    """The hold of the Guard or of a suspension on an object, most general first; None when nothing stops it."""
    if desired.guard.suspend:
        next_step = "set spec.suspend of the Guard to false"
        return Hold(subject.object, action, Rule.SUSPENDED, "the Guard suspends all actions", next_step=next_step)
    keys = ("*", node_key(subject.node), subject.key, subject.object)
    return _by_key(desired, ledger, keys, subject.object, action, now)


def _by_key(desired: Desired, ledger: Ledger, keys: tuple[str, ...], obj: str, action: str, now: Now) -> Hold | None:
    """The hold of the deny list or of a suspension on one of these keys."""
    for key in keys:
        if key in desired.guard.deny:
            next_step = f"remove {key} from spec.deny of the Guard"
            return Hold(obj, action, Rule.DENIED, f"spec.deny of the Guard names {key}", next_step=next_step)
        suspension = ledger.suspensions.get(key)
        if suspension is not None:
            reason = suspension.reason or "no reason given"
            message = f"{suspension.who or 'an operator'} suspended {'everything' if key == '*' else key}: {reason}"
            until = now.steady + suspension.until_wall - now.wall if suspension.until_wall else None
            resume = "reconcile resume --all" if key == "*" else f"reconcile resume {key}"
            return Hold(obj, action, Rule.SUSPENDED, message, until=until, next_step=resume)
    return None


def probes_suspended(ledger: Ledger, now: Now) -> frozenset[str]:
    """The keys of suspensions that stop probes as well: `*`, nodes, workloads, replicas."""
    return frozenset(
        key
        for key, suspension in ledger.suspensions.items()
        if suspension.probes and (not suspension.until_wall or suspension.until_wall > now.wall)
    )


def suspended_document(desired: Desired, ledger: Ledger, key: str, action: str, now: Now) -> Hold | None:
    """The hold on a Service or DNSPolicy itself. Suspending workloads does not stop weights and names."""
    return _by_key(desired, ledger, (key,), key, action, now)


def busy(names: frozenset[str], step: str, target: str, obj: str, now: Now) -> Hold | None:
    """The hold on a step whose target has a call without an outcome."""
    if target not in names:
        return None
    message = f"the outcome of an earlier call on {target} is not known yet"
    return Hold(obj, step, Rule.BUSY, message, until=next_after(0, SECOND, now))


def failed(failure: StepFailure, step: str, obj: str, asked: str, now: Now) -> Hold | None:
    """The hold on a step after its failed tries; None when it asks for something else now (`asked`), or is due."""
    if failure.asked and failure.asked != asked:
        return None
    at = backoff.step_at(step, failure, now)
    if at <= now.steady:
        return None
    next_step = "remove the cause; the step is retried automatically" if failure.refused else ""
    return Hold(obj, step, Rule.STEP_FAILED, failure.message, until=at, next_step=next_step)
