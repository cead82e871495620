"""What the outcomes of steps and the commands of operators change in the ledger. Called by the loop between two decisions."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from reconciler.core.model import override
from reconciler.core.model.approval import Approval
from reconciler.core.model.instant import NEVER, Instant, Now, instant
from reconciler.core.model.ledger import Ledger, StepFailure, Suspension
from reconciler.core.model.restart_request import Request
from reconciler.core.model.revision import retry_failed


class OutcomeKind(StrEnum):
    """How a step ended, for its dependents and for the back-off."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Outcome(NamedTuple):
    """The outcome of one step. `overwritten`: it was done, and another writer changed its target before it was read back.

    The other fields are those of `StepFailure`.
    """

    step: str
    kind: OutcomeKind
    message: str = ""
    object: str = ""
    asked: str = ""
    wait: int = 0
    whole: bool = False
    overwritten: bool = False


def fold(ledger: Ledger, outcomes: tuple[Outcome, ...], now: Now) -> Ledger:
    """The ledger after these outcomes: failures start or lengthen a back-off, success ends it."""
    failures = dict(ledger.step_failures)
    for outcome in outcomes:
        if outcome.kind is OutcomeKind.DONE:
            failures.pop(outcome.step, None)
        elif outcome.kind in {OutcomeKind.FAILED, OutcomeKind.REJECTED, OutcomeKind.UNKNOWN}:
            failures[outcome.step] = _failure(failures.get(outcome.step), outcome, 1, now)
        elif outcome.kind is OutcomeKind.CONFLICT:
            # The facts have changed: decide again at once, but back off if that happens again and again.
            failures[outcome.step] = _failure(failures.get(outcome.step), outcome, 0, now)
    return ledger if failures == ledger.step_failures else replace(ledger, step_failures=failures)


def _failure(before: StepFailure | None, outcome: Outcome, first: int, now: Now) -> StepFailure:
    """One more failure of a step, or the first one (`first`) of what is asked now."""
    at = instant(now)
    same = before is not None and outcome.asked in ("", before.asked)
    return StepFailure(
        before.streak + 1 if same and before is not None else first,
        at,
        outcome.kind is OutcomeKind.REJECTED,
        outcome.message,
        (before.first if same and before is not None else None) or at,
        outcome.asked,
        outcome.object,
        outcome.wait,
        whole=outcome.whole,
    )


def try_again(ledger: Ledger, key: str = "*") -> Ledger:
    """The ledger in which the failed steps of an object (`*` = all) are due now, unless the other side asked to wait."""
    failures = {
        step: failure._replace(again=True) if _covers(key, failure.object) else failure
        for step, failure in ledger.step_failures.items()
    }
    return replace(ledger, step_failures=failures) if failures != ledger.step_failures else ledger


@dataclass(frozen=True, slots=True)
class Command:
    """One command of an operator, from the inbox: `suspend`, `resume`, `approve`, `restart`, `rollback`, `drain`, `force` or `release`.

    `object` is a key, `*`, or a hash; of a restart it is the id of `request`. `value` is the `up` or `down` of `force`. `at` is when
    the command was given. `forced` is the `--force` of `drain` and `force`. `items` are those of an approval whose changes are known
    without a decision, because they are in a saved plan.
    """

    verb: str
    object: str
    who: str = ""
    reason: str = ""
    until_wall: int = 0
    probes: bool = False
    request: Request | None = None
    value: str = ""
    at: Instant = NEVER
    forced: bool = False
    items: tuple[str, ...] = ()


def apply_commands(ledger: Ledger, commands: tuple[Command, ...]) -> Ledger:
    """The ledger after these commands. Unknown verbs change nothing: the inbox may have commands of a newer version.

    Resuming an object also allows new tries for its Failed replicas, its failed steps and for a rolling rollout that has failed,
    and accepts its trials that fail.
    """
    suspensions, escalations, rollouts = dict(ledger.suspensions), dict(ledger.escalations), dict(ledger.rollouts)
    approvals, requests, overrides = dict(ledger.approvals), dict(ledger.requests), ledger.overrides
    accepted = set(ledger.accepted)
    for command in commands:
        if command.verb == "suspend":
            suspensions[command.object] = Suspension(command.who, command.reason, command.until_wall, command.probes)
        elif command.verb == "resume":
            suspensions.pop(command.object, None)
            accepted.add(command.object)
            ledger = try_again(ledger, command.object)
            escalations = {key: value for key, value in escalations.items() if not _covers(command.object, key)}
            rollouts |= {
                key: retry_failed(rollout) for key, rollout in rollouts.items() if _covers(command.object, key)
            }
        elif command.verb == "approve":
            approvals[command.object] = _approved(command, approvals.get(command.object))
        elif command.verb == "restart" and command.request is not None:
            requests.setdefault(command.object, command.request)
        elif command.verb == "rollback" and command.object in rollouts:
            asked = (command.who, command.reason)
            rollouts[command.object] = rollouts[command.object]._replace(asked=asked)
        elif command.verb in override.VERBS:
            given = (command.value, command.at, command.who, command.reason, command.until_wall, command.forced)
            overrides = override.after(overrides, override.OverrideCommand(command.verb, command.object, *given))
    return replace(
        ledger,
        suspensions=suspensions,
        approvals=approvals,
        accepted=frozenset(accepted),
        requests=requests,
        rollouts=rollouts,
        overrides=overrides,
        escalations=escalations if escalations != ledger.escalations else ledger.escalations,
    )


def _approved(command: Command, shown: Approval | None) -> Approval:
    """The row of an approval: of the items in the command, else of those that were shown with the hash."""
    items = command.items or (None if shown is None else shown.items)
    return Approval(command.at, items, who=command.value or command.who)


def accepts(ledger: Ledger, obj: str) -> bool:
    """Whether an operator has accepted the trials of this object."""
    return any(_covers(key, obj) for key in ledger.accepted)


def keep_acceptances(ledger: Ledger, tried: Collection[str], unseen: Collection[str]) -> Ledger:
    """The ledger with the acceptances of objects that still have a trial (`tried`): the others have been used, or were not needed.

    Replicas that are `unseen`, on nodes that cannot be read, may have one. Of a wider acceptance these keep their part only.
    """
    kept = {key for key in ledger.accepted if any(_covers(key, obj) for obj in tried)}
    accepted = frozenset(kept | {obj for obj in unseen if accepts(ledger, obj)})
    return ledger if accepted == ledger.accepted else replace(ledger, accepted=accepted)


def _covers(key: str, name: str) -> bool:
    """Whether a command about this key (`*` for all) includes the object of this name."""
    return key in {"*", name} or name.startswith(f"{key}/")
