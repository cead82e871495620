"""Whether a difference is drift, a change or health. Called by `decide` for candidates and for steps.

Some causes say it by themselves: a container that crashed drifted, a new template is a change, a failed probe is health. All others follow
from the document: it is a change while the declaration of the document, or of one that it depends on, is another one than the world
converged to last. Else containers drifted, and weights and record sets follow health, unless another writer moved them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from manifests.values.desired import Desired
from providers.actions import Action, ChangeRecords, CutSessions, RemoveEndpoint, SetWeight
from providers.facts import Endpoint, RecordKey
from reconciler.core.dns.records import show_set
from reconciler.core.model.drift import Moved, Why
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.core.model.want import Kind, Want

WORLD = frozenset(
    {
        Reason.CRASHED,
        Reason.EXITED,
        Reason.OOM_KILLED,
        Reason.TAKEN_OVER,
        Reason.HOST_RESTARTED,
        Reason.POLICY_LOST,
        Reason.NETWORK_LOST,
        Reason.IMAGE_REPLACED,
        Reason.VOLUME_IN_USE,
        Reason.REASSERTED,
    }
)
"""Causes in the world; changes of the manifests do not matter for them."""

HEALTH = frozenset(
    {
        Reason.LIVENESS_FAILED,
        Reason.STARTUP_FAILED,
        Reason.RECREATE,
        Reason.DRAIN_DEADLINE,
        Reason.NOT_READY,
        Reason.NOT_RUNNING,
        Reason.PAUSED,
        Reason.PUSHED_READY,
        Reason.PUSHED_NOT_READY,
        Reason.PUSHED_STARTUP,
        Reason.PUSHED_DRAINING,
        Reason.SPREAD,
        Reason.LAST_RESORT,
    }
)
"""Causes in the answers and reports of replicas; changes of the manifests do not matter for them."""

MANIFESTS = frozenset(
    {
        Reason.TEMPLATE_CHANGED,
        Reason.FILES_CHANGED,
        Reason.REVISION_FAILED,
        Reason.SECRET_CHANGED,
        Reason.SUPERSEDED,
        Reason.INACTIVE,
        Reason.CANARY,
        Reason.RELEASED,
        Reason.PRUNED,
        Reason.DESTROYED,
        Reason.REQUESTED,
        Reason.DRAINED_BY_OPERATOR,
        Reason.FORCED_UP,
        Reason.FORCED_DOWN,
    }
)
"""Causes that lie in the manifests, or in an order of an operator."""


_TRAFFIC = (SetWeight, RemoveEndpoint, CutSessions, ChangeRecords)
"""Actions on what follows replicas: members of pools, and record sets."""


class Outside(NamedTuple):
    """What other writers moved, or a balancer lost: members as (`provider/pool`, endpoint), record sets as (provider, zone, name and type)."""

    members: frozenset[tuple[str, Endpoint]] = frozenset()
    sets: frozenset[tuple[str, str, RecordKey]] = frozenset()

    def moved(self, action: Action) -> bool:
        """Whether an action corrects what another writer moved."""
        match action:
            case SetWeight() | RemoveEndpoint():
                return (f"{action.provider}/{action.pool}", action.endpoint) in self.members
            case ChangeRecords() if self.sets:
                return any((action.provider, action.zone, change.key) in self.sets for change in action.changes)
            case _:
                return False


class Movement:
    """The documents that a change concerns in one decision. What is asked for nothing costs nothing."""

    def __init__(self, desired: Desired, ledger: Ledger) -> None:
        self._desired, self._ledger = desired, ledger

    @cached_property
    def _documents(self) -> frozenset[str]:
        """Documents that are moving or have a planned disruption, services of such workloads, and policies of such services."""
        grants = self._ledger.grants.values()
        moving = set(self._ledger.moving)
        moving |= {grant.object.rpartition("/")[0] for grant in grants if self._of_grant(grant.cause, grant.object)}
        if not moving:
            return frozenset()
        for service in self._desired.services:
            if not moving.isdisjoint([backend.workload for backend in service.backends]):
                moving.add(service.key)
        for policy in self._desired.policies:
            if not moving.isdisjoint([target.service for target in policy.targets]):
                moving.add(policy.key)
        return frozenset(moving)

    def _of_grant(self, cause: Reason, obj: str) -> bool:
        return cause in MANIFESTS or (
            cause not in WORLD and cause not in HEALTH and obj.rpartition("/")[0] in self._ledger.moving
        )

    def why(self, cause: Reason, obj: str, rest: Why = Why.DRIFT) -> Why:
        """The label of a difference of an object with this cause; `rest` where neither the cause nor the manifests decide."""
        if cause in WORLD:
            return Why.DRIFT
        if cause in HEALTH:
            return Why.HEALTH
        if cause in MANIFESTS:
            return Why.CHANGE
        if obj.startswith("pool/"):
            return Why.CHANGE  # a pool of no service: the manifests dropped it
        return Why.CHANGE if "/".join(obj.split("/")[:2]) in self._documents else rest

    def of_want(self, want: Want) -> Why:
        """The label of a candidate. A restart leaves the restart policy off: setting it again is part of that restart."""
        grant = self._ledger.grants.get(want.fact.id) if want.fact is not None else None
        cause = grant.cause if grant is not None and want.cause is Reason.POLICY_LOST else want.cause
        return self.why(cause, want.object)

    def asked_for(self, cause: Reason, obj: str) -> bool:
        """Whether the manifests or an operator asked for a disruption with this cause."""
        return self.why(cause, obj) is Why.CHANGE


def of_wants(wants: Iterable[Want], movement: Movement) -> list[Want]:
    """The candidates with what they are; settings in place know it already, field by field."""
    explained: list[Want] = []
    for want in wants:
        if want.kind is Kind.UPDATE and want.moved:
            explained.append(want)
            continue
        why = movement.of_want(want)
        moved = want.moved or _moved(want) if why is not Why.CHANGE else want.moved
        explained.append(want if (why, moved) == (want.why, want.moved) else want._replace(why=why, moved=moved))
    return explained


def _moved(want: Want) -> tuple[Moved, ...]:
    """What moved where the kind of the candidate says it."""
    match want.kind:
        case Kind.CREATE:
            return (Moved("container", "exists", "missing"),)
        case Kind.START:
            return (Moved("state", "running", want.message),)
        case Kind.RETIRE:
            return (Moved("container", "absent", "exists"),)
        case Kind.UPDATE:
            return (Moved("settings", "as declared", want.message),)
        case _:
            return (Moved("health", "passing", want.message),)


def of_steps(steps: Iterable[Step], wants: Iterable[Want], movement: Movement, outside: Outside) -> list[Step]:
    """The steps with what they are: that of their candidate, else drift where another writer moved what they set, else by their cause."""
    known: Mapping[str, Want] = {want.id: want for want in wants}
    explained: list[Step] = []
    for step in steps:
        want = known.get(step.id)
        if want is not None:
            why, moved = want.why, want.moved
        elif outside.moved(step.action):
            why, moved = Why.DRIFT, step.moved
        else:
            rest = Why.HEALTH if isinstance(step.action, _TRAFFIC) else Why.DRIFT
            why, moved = movement.why(step.cause, step.object, rest), step.moved
        explained.append(step if (why, moved) == (step.why, step.moved) else replace(step, why=why, moved=moved))
    return explained


def why_text(step: Step) -> str:
    """Whether a step corrects drift, makes a change or follows health, with the fields that moved, for a message."""
    moved = ", ".join(field.text for field in moved_of(step))
    return f"{step.why.value} ({moved})" if moved else step.why.value


_SHOWN = 12
"""Record sets of a step whose values are named as moved; a list may change thousands."""


def moved_of(step: Step) -> tuple[Moved, ...]:
    """What a step moves back, or on: its fields, its weight, or its record sets. For the reader: a decision does not ask."""
    action = step.action
    if step.moved:
        return step.moved
    if isinstance(action, SetWeight):
        observed = "absent" if action.before is None else str(action.before)
        return (Moved("weight", str(action.weight), observed),)
    if isinstance(action, ChangeRecords):
        return tuple(
            Moved(f"{change.key.name} {change.key.type}", show_set(change.after), show_set(change.before))
            for change in action.changes[:_SHOWN]
        )
    return ()
