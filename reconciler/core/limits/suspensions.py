"""What stops an action of any kind: the Guard, an operator's suspension, a call without an outcome, failed tries.

Called by `gates` for candidates, by `disruptions` for the next step of a disruption, by `changes` for pools and by `dns/publish`
for names.
"""

from collections.abc import Iterable
from typing import NamedTuple

from manifests.values.desired import SECOND, Desired
from reconciler.core.limits import backoff
from reconciler.core.model.instant import Now, next_after
from reconciler.core.model.ledger import Ledger, StepFailure
from reconciler.core.model.reasons import UNSPECIFIED, HeldAction, Hold, Rule
from reconciler.core.model.suspension_scope import Scope, key_of, resume_command, shown


def node_key(node: str) -> str:
    """The key under which a whole node is suspended or denied."""
    return f"node/{node}"


class Subject(NamedTuple):
    """What an action is about: the document, such as `workload/web`; the object, such as `workload/web/0`; and its node.

    `by_manifest` says that the document itself has `suspend: true`, where that stops the action. `heals`: the manifests did not ask for
    the action, so what suspends healing stops it too.
    """

    key: str
    object: str
    node: str = ""
    by_manifest: bool = False
    heals: bool = False


def suspended(
    desired: Desired, ledger: Ledger, subject: Subject, action: str, now: Now, held: HeldAction = UNSPECIFIED
) -> list[Hold]:
    """The holds of the Guard, of suspensions and of the manifest on an object, most general first; empty when nothing stops it.

    All of them, because each of them alone stops the action: the end of one says nothing while another one has no end.
    """
    holds: list[Hold] = []
    if desired.guard.suspend:
        next_step = "set spec.suspend of the Guard to false"
        message = "the Guard suspends all actions"
        holds.append(Hold(subject.object, action, Rule.SUSPENDED, message, next_step=next_step, held=held))
    if subject.heals and desired.guard.suspend_healing:
        next_step = "set spec.suspendHealing of the Guard to false"
        message = "the Guard suspends healing"
        holds.append(Hold(subject.object, action, Rule.SUSPENDED, message, next_step=next_step, held=held))
    keys = dict.fromkeys(("*", node_key(subject.node), subject.key, subject.object))
    if subject.heals:
        keys |= dict.fromkeys([key_of(Scope.HEALING, key) for key in keys])
    holds += _by_key(desired, ledger, keys, subject.object, action, now, held)
    if subject.by_manifest:
        next_step = f"set spec.suspend of {subject.key} to false"
        message = f"the manifest suspends {subject.key}"
        holds.append(Hold(subject.object, action, Rule.SUSPENDED, message, next_step=next_step, held=held))
    return holds


def _by_key(
    desired: Desired, ledger: Ledger, keys: Iterable[str], obj: str, action: str, now: Now, held: HeldAction
) -> list[Hold]:
    """The holds of the deny list and of suspensions on these keys."""
    holds: list[Hold] = []
    for key in keys:
        if key in desired.guard.deny:
            next_step = f"remove {key} from spec.deny of the Guard"
            message = f"spec.deny of the Guard names {key}"
            holds.append(Hold(obj, action, Rule.DENIED, message, next_step=next_step, held=held))
        suspension = ledger.suspensions.get(key)
        if suspension is not None:
            reason = suspension.reason or "no reason given"
            message = f"{suspension.who or 'an operator'} suspended {shown(key)}: {reason}"
            until = now.steady + suspension.until_wall - now.wall if suspension.until_wall else None
            resume = resume_command(key)
            holds.append(Hold(obj, action, Rule.SUSPENDED, message, until=until, next_step=resume, held=held))
    return holds


def probes_suspended(ledger: Ledger, now: Now) -> frozenset[str]:
    """The keys of suspensions that stop probes as well: `*`, nodes, workloads, replicas."""
    return frozenset(
        key
        for key, suspension in ledger.suspensions.items()
        if suspension.probes and (not suspension.until_wall or suspension.until_wall > now.wall)
    )


def suspended_document(
    desired: Desired, ledger: Ledger, key: str, action: str, now: Now, held: HeldAction = UNSPECIFIED
) -> list[Hold]:
    """The holds on a Service or DNSPolicy itself. Suspending workloads does not stop weights and names."""
    return _by_key(desired, ledger, (key,), key, action, now, held)


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
