"""Classes of changes that an operator must approve (`approve` of the Guard), and the changes that a saved plan allows.

`core/approvable` finds the changes of one decision, once. `gates`, `changes` and `dns/publish` ask `hold` about each change that they
would let go ahead, after all other rules. Restarts for health are no subject of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

from manifests.values.desired import Desired, Guard
from manifests.values.limits import Approve
from providers.facts import ContainerFact, Endpoint, RecordKey, fingerprint
from reconciler.core.limits.approvals import Approvals
from reconciler.core.model.reasons import UNSPECIFIED, HeldAction, Hold, Reason, Rule

Subject = tuple[str, ...]
"""What a change is about: a container, a pool member, a record set, or a revision of a workload."""

PLANNED = frozenset(
    {
        Reason.TEMPLATE_CHANGED,
        Reason.SUPERSEDED,
        Reason.SURPLUS,
        Reason.NODE_CHANGED,
        Reason.SECRET_CHANGED,
        Reason.RELEASED,
        Reason.PRUNED,
        Reason.DESTROYED,
    }
)
"""Causes for which the manifests, and not the health of a container, end it. Failed revisions, requested restarts and two containers
with one exclusive volume are not among them: a rule or an operator has decided those already."""

REPLACED = frozenset({Reason.TEMPLATE_CHANGED, Reason.SECRET_CHANGED, Reason.NODE_CHANGED})
"""Of these, those for which the replica comes back."""


class Change(NamedTuple):
    """One change of a class: its item for `limits/approvals`, its object, and what it does in a few words."""

    item: str
    class_: Approve
    object: str
    text: str


@dataclass(frozen=True, slots=True)
class Classified:
    """The changes of one decision that a class of the Guard names, by what they are about."""

    changes: Mapping[Subject, tuple[Change, ...]] = field(default_factory=dict)

    @property
    def items(self) -> set[str]:
        """The items of all changes."""
        return {change.item for of_subject in self.changes.values() for change in of_subject}

    def uncovered(self, given: Approvals) -> tuple[Change, ...]:
        """The changes that nothing approves yet, in order."""
        of_all = {change for of_subject in self.changes.values() for change in of_subject}
        return tuple(sorted(change for change in of_all if change.item not in given.covered))


NOTHING = Classified()


def container(fact: ContainerFact) -> Subject:
    """The end of a container."""
    return "container", fact.node, fact.id


def member(provider: str, pool: str, endpoint: Endpoint) -> Subject:
    """The removal of a pool member."""
    return "member", provider, pool, endpoint.address, str(endpoint.port)


def record_set(provider: str, zone: str, key: RecordKey) -> Subject:
    """The deletion of a record set."""
    return "set", provider, zone, key.name, key.type, key.set_id


def revision(workload: str, name: str) -> Subject:
    """The containers of a revision."""
    return "revision", workload, name


def policy_digest(guard: Guard) -> str:
    """The digest of all limits of the Guard: an approval, and a saved plan, count under the same ones only."""
    return fingerprint(_text(guard))


def _text(value: Any) -> str:
    """A value as text that is the same in every process."""
    if isinstance(value, Enum):
        return repr(value.value)
    if is_dataclass(value):
        return f"{type(value).__name__}({','.join(_text(getattr(value, part.name)) for part in fields(value))})"
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_text(key)}:{_text(item)}' for key, item in value.items()))}}}"
    if isinstance(value, (frozenset, set)):
        return f"{{{','.join(sorted(map(_text, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_text, value))})"
    return repr(value)


def hold(
    desired: Desired,
    classes: Classified,
    given: Approvals,
    subject: Subject,
    obj: str,
    action: str,
    *,
    item: str = "",
    held: HeldAction = UNSPECIFIED,
) -> Hold | None:
    """The hold of a change that the saved plan of this run does not have, or that waits for an approval; None when it may go ahead.

    Args:
        item: of a change that removes or disrupts something, as `core/outcome` makes it from a plan; empty for another one.
    """
    if desired.planned is not None and item and item not in desired.planned:
        message = f"the saved plan does not have this change of {obj}, so it was not reviewed"
        next_step = "make a new plan, and apply it: reconcile plan PATH --out FILE"
        return Hold(obj, action, Rule.NOT_IN_PLAN, message, next_step=next_step, held=held)
    waiting = [change for change in classes.changes.get(subject, ()) if change.item not in given.covered]
    if not waiting:
        return None
    names = " and ".join(change.class_.value for change in waiting)
    why = f"spec.approve of the Guard names {names}, so it needs approval (hash {waiting[0].item})"
    message = f"{waiting[0].text}; {why}"
    if given.unused:
        message += f"; the approval of {given.unused} is for other changes"
    next_step = f"to approve all that waits, run: {command(desired, given)}"
    return Hold(obj, action, Rule.APPROVAL_REQUIRED, message, next_step=next_step, held=held, item=waiting[0].item)


def command(desired: Desired, given: Approvals) -> str:
    """The command line that approves everything that needs it now."""
    return f"reconcile approve {desired.where or f'--instance-id {desired.instance.id}'} {given.hash}"
