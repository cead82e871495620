"""What the outcomes of steps and the commands of operators change in the ledger. Called by the loop between two decisions."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from reconciler.core.model import override
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
    """What came of one step."""

    step: str
    kind: OutcomeKind
    message: str = ""


def fold(ledger: Ledger, outcomes: tuple[Outcome, ...], now: Now) -> Ledger:
    """The ledger after these outcomes: failures start or lengthen a back-off, success ends it."""
    failures = dict(ledger.step_failures)
    for outcome in outcomes:
        if outcome.kind is OutcomeKind.DONE:
            failures.pop(outcome.step, None)
        elif outcome.kind in {OutcomeKind.FAILED, OutcomeKind.REJECTED, OutcomeKind.UNKNOWN}:
            count = failures[outcome.step].streak + 1 if outcome.step in failures else 1
            stop = outcome.kind is OutcomeKind.REJECTED
            failures[outcome.step] = StepFailure(count, instant(now), stop, outcome.message)
        elif outcome.kind is OutcomeKind.CONFLICT:
            # The world moved on: decide anew at once, but do not chase it if that happens again and again.
            count = failures[outcome.step].streak + 1 if outcome.step in failures else 0
            failures[outcome.step] = StepFailure(count, instant(now), False, outcome.message)
    return ledger if failures == ledger.step_failures else replace(ledger, step_failures=failures)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a person, from the inbox: `suspend`, `resume`, `approve`, `restart`, `rollback`, `drain`, `force` or `release`.

    `object` is a key, `*`, or a hash; of a restart it is the id of the request, and `request` what is asked for. `value` is what
    `force` makes of an endpoint: `up` or `down`. `at` is when it was given.
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


def apply_commands(ledger: Ledger, commands: tuple[Command, ...]) -> Ledger:
    """The ledger after these commands. Unknown verbs change nothing: the inbox may hold those of a newer version.

    Resuming an object also lets its replicas that have failed for good be tried again, and a rolling rollout that has failed.
    """
    suspensions, escalations, rollouts = dict(ledger.suspensions), dict(ledger.escalations), dict(ledger.rollouts)
    approvals, requests, orders = set(ledger.approvals), dict(ledger.requests), ledger.overrides
    for command in commands:
        if command.verb == "suspend":
            suspensions[command.object] = Suspension(command.who, command.reason, command.until_wall, command.probes)
        elif command.verb == "resume":
            suspensions.pop(command.object, None)
            escalations = {name: one for name, one in escalations.items() if not _covers(command.object, name)}
            rollouts |= {key: retry_failed(one) for key, one in rollouts.items() if _covers(command.object, key)}
        elif command.verb == "approve":
            approvals.add(command.object)
        elif command.verb == "restart" and command.request is not None:
            requests.setdefault(command.object, command.request)
        elif command.verb == "rollback" and command.object in rollouts:
            asked = (command.who, command.reason)
            rollouts[command.object] = rollouts[command.object]._replace(asked=asked)
        elif command.verb in override.VERBS:
            given = (command.value, command.at, command.who, command.reason, command.until_wall)
            orders = override.after(orders, override.Order(command.verb, command.object, *given))
    return replace(
        ledger,
        suspensions=suspensions,
        approvals=frozenset(approvals),
        requests=requests,
        rollouts=rollouts,
        overrides=orders,
        escalations=escalations if escalations != ledger.escalations else ledger.escalations,
    )


def _covers(object: str, name: str) -> bool:  # noqa: A002
    """Whether a word about an object (a key, or `*` for all) is about this one too."""
    return object in {"*", name} or name.startswith(f"{object}/")
