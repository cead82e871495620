"""Outcome: what a plan changes, without its order, times and messages, and without what follows health.

Two plans with the same outcome do the same to containers, pools and zones. `forecast` makes the outcome of each plan; a saved plan
keeps it, and `reconcile apply --plan` compares it with that of a plan made again. Left out is what health may change at any time:
weights, starts of containers that are down, restarts for health, and the values of a DNSPolicy.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from providers.actions import (
    ChangeRecords,
    CreateContainer,
    RemoveContainer,
    RemoveEndpoint,
    StopContainer,
    UpdateContainer,
)
from reconciler.core.dns.records import show_set
from reconciler.core.limits import approvals
from reconciler.core.limits.approval_classes import PLANNED
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step

_POLICY = "dnspolicy/"


class Outcome(NamedTuple):
    """One change: its item (a digest of exactly what changes), its object, and the change in a few words.

    The item of a removal is that of `limits/approvals`. `compared` is False for what health alone may cause: it may happen, and a
    plan without it is not another one.
    """

    object: str
    text: str
    item: str
    compared: bool = True


def of_steps(steps: Iterable[Step]) -> tuple[Outcome, ...]:
    """What these steps change, sorted; the stop and the removal of one container are one change."""
    listed = list(steps)
    recreated = {
        (step.action.node, step.action.name)
        for step in listed
        if isinstance(step.action, RemoveContainer) and step.cause not in PLANNED
    }
    return tuple(sorted({outcome for step in listed for outcome in _of_step(step, recreated)}))


def _of_step(step: Step, recreated: Collection[tuple[str, str]]) -> Iterable[Outcome]:
    """The changes of one step. `recreated`: node and name of the containers that are created again for their health."""
    action = step.action
    match action:
        case CreateContainer() if (action.node, action.name) not in recreated:
            revision = action.mark.revision
            text = f"create {action.name} on {action.node} of revision {revision[:8]}"
            yield Outcome(step.object, text, approvals.item("create", action.node, action.name, revision))
        case StopContainer() | RemoveContainer() if step.cause in PLANNED:
            text = f"end {action.name} on {action.node} ({step.cause.value})"
            yield Outcome(step.object, text, approvals.item("container", action.node, action.expect.container_id))
        case UpdateContainer() if step.cause is Reason.SETTINGS_CHANGED:
            settings = ", ".join(
                f"{live.container} {live.cpu} {live.memory} {live.restart}".strip() for live in action.live
            )
            item = approvals.item("update", action.node, action.expect.container_id, settings)
            yield Outcome(step.object, f"update {action.name} on {action.node}: {settings}", item)
        case RemoveEndpoint() if step.cause is Reason.PRUNED:
            where = f"{action.endpoint.address}:{action.endpoint.port} from {action.provider}/{action.pool}"
            item = approvals.item("member", action.provider, action.pool, *action.endpoint)
            yield Outcome(step.object, f"remove {where}", item)
        case ChangeRecords():
            compared = step.cause is Reason.PRUNED or not step.object.startswith(_POLICY)
            for change in action.changes:
                key, before, after = change.key, change.before, change.after
                if not compared and after is not None:
                    continue
                item = approvals.item("set", action.provider, action.zone, *key, before, after)
                text = f"{key.name} {key.type}: {show_set(before)} -> {show_set(after)}"
                yield Outcome(step.object, text, item, compared)
        case _:
            return
