"""Switches: what stops an action whatever it is: the Guard, a person's word, a call without an outcome, failed tries.

Called by `gates` for candidates, by `underway` for the next step of a disruption, and by `decide` for pools and names.
"""

from typing import NamedTuple

from manifests.values.desired import SECOND, Desired
from reconciler.core.limits import backoff
from reconciler.core.model.instant import Now, next_after
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule


def node_key(node: str) -> str:
    """The name under which a whole node is suspended or denied."""
    return f"node/{node}"


class Subject(NamedTuple):
    """What an action is about: the document, such as `workload/web`; the object, such as `workload/web/0`; and its node."""

    key: str
    object: str
    node: str = ""


def suspended(desired: Desired, ledger: Ledger, subject: Subject, action: str, now: Now) -> Hold | None:
    """The hold of a suspension or the deny list on an object, most general first; None when nothing stops it."""
    if desired.guard.suspend:
        next_step = "set spec.suspend of the Guard to false"
        return Hold(subject.object, action, Rule.SUSPENDED, "the Guard suspends everything", next_step=next_step)
    names = ("*", node_key(subject.node), subject.key, subject.object)
    return _named(desired, ledger, names, subject.object, action, now)


def _named(desired: Desired, ledger: Ledger, names: tuple[str, ...], obj: str, action: str, now: Now) -> Hold | None:
    """The hold of a person's word on one of these names."""
    for name in names:
        if name in desired.guard.deny:
            return Hold(
                obj, action, Rule.DENIED, f"the Guard denies {name}", next_step="take it off spec.deny of the Guard"
            )
        one = ledger.suspensions.get(name)
        if one is not None:
            message = f"{name} was suspended by {one.who or 'somebody'}: {one.reason or 'no reason given'}"
            until = now.steady + one.until_wall - now.wall if one.until_wall else None
            resume = "reconcile resume --all" if name == "*" else f"reconcile resume {name}"
            return Hold(obj, action, Rule.SUSPENDED, message, until=until, next_step=resume)
    return None


def probes_suspended(ledger: Ledger, now: Now) -> frozenset[str]:
    """The keys whose probes a person stopped as well: `*`, nodes, workloads, replicas."""
    return frozenset(
        key
        for key, one in ledger.suspensions.items()
        if one.probes and (not one.until_wall or one.until_wall > now.wall)
    )


def suspended_document(desired: Desired, ledger: Ledger, key: str, action: str, now: Now) -> Hold | None:
    """The hold of a person's word on a Service or DNSPolicy itself. Suspending workloads does not stop weights and names."""
    return _named(desired, ledger, (key,), key, action, now)


def busy_or_failed(ledger: Ledger, busy: frozenset[str], step: str, target: str, obj: str, now: Now) -> Hold | None:
    """What holds back one step whatever it is: a call on its target without an outcome, or its own failed tries."""
    if target in busy:
        message = f"an earlier call on {target} has no known outcome yet"
        return Hold(obj, step, Rule.BUSY, message, until=next_after(0, SECOND, now))
    failure = ledger.step_failures.get(step)
    if failure is None:
        return None
    at = backoff.step_at(step, failure, now)
    if at <= now.steady:
        return None
    next_step = "remove the cause; the step is tried again by itself" if failure.stop else ""
    return Hold(obj, step, Rule.STEP_FAILED, failure.message, until=at, next_step=next_step)
