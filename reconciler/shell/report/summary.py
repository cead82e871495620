"""Report: the last decision as it is stored for `status` and `explain`, and the judgement of how a run ended.

Pure functions over decisions; the loop stores and returns what they make.
"""

import json
from dataclasses import dataclass

from manifests.values.desired import Desired
from reconciler.core.decision import FORMAT_VERSION, Decision, describe
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Outcome
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.step import Step
from reconciler.core.status.objects import rows
from reconciler.exits import Exit, worst

ASKED_FOR = {
    Waiting.TTL,
    Waiting.DRAIN,
    Waiting.MIN_READY,
    Waiting.ACTIVATION,
    Waiting.PAUSE,
    Waiting.ROLLBACK_WINDOW,
}
"""Waits that the manifests ask for: nothing is wrong while they last."""

MANUAL = {
    Rule.NAME_TAKEN,
    Rule.FOREIGN_RECORD,
    Rule.MASS_CHANGE,
    Rule.SUSPENDED,
    Rule.DENIED,
    Rule.OVERRIDDEN,
    Rule.SOURCE_CHANGED,
    Rule.INCOMPLETE_SOURCE,
    Rule.ADOPT_PENDING,
    Rule.ADOPT_CONFLICT,
    Rule.TEMPLATE_DIFFERS,
    Rule.PROBE_CONTEXT,
    Rule.PROGRESS,
    Rule.REVISION_NOT_ELIGIBLE,
    Rule.TEMPLATE_GONE,
}
"""Holds that only a person ends."""

UNKNOWNS = {Rule.UNKNOWN_RUNTIME, Rule.UNKNOWN_POOL, Rule.UNKNOWN_ZONE}
"""Holds because a provider cannot be read."""

HARMLESS = {Rule.PRUNE_OFF, Rule.ABSENCE_UNPROVEN, Rule.BUSY, Rule.POLICY_KEPT}
"""Holds that leave nothing wrong: what is left over stays where it is, and is told."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended: the exit code, why, the last decision, what was done, and what to come back for (steady instants).

    `undecided` are sentences on checks that have no verdict.
    """

    exit: Exit
    reasons: tuple[str, ...]
    decision: Decision
    done: tuple[tuple[Step, Outcome], ...]
    run_again: tuple[tuple[str, int], ...]
    undecided: tuple[str, ...] = ()


def pending(decision: Decision, end: int, blind_is_final: bool) -> bool:
    """Whether a run should go on: something is due, is under way, or ends by itself before `end`.

    Args:
        decision: the latest one.
        end: steady instant of the deadline.
        blind_is_final: providers that cannot be read were tried often enough.
    """
    if decision.steps or decision.unsettled:
        return True
    for wait in decision.waits:
        if wait.waiting is Waiting.ROLLBACK_WINDOW:
            continue  # everything is as wanted: what is kept to go back to goes in a later run
        if wait.waiting is Waiting.NODE:
            if not blind_is_final:
                return True
        elif wait.waiting not in ASKED_FOR or wait.until is None or wait.until <= end:
            return True
    for hold in decision.holds:
        if hold.rule in UNKNOWNS:
            if not blind_is_final:
                return True
        elif hold.until is not None and hold.until <= end and not (hold.rule is Rule.STEP_FAILED and hold.next_step):
            return True
    return False


def _judge_hold(hold: Hold) -> Exit:
    if hold.rule in HARMLESS:
        return Exit.OK
    return Exit.PERSON if hold.rule in MANUAL else Exit.UNFINISHED


def _judge_wait(wait: Wait, now: Now) -> Exit:
    asked = wait.waiting in ASKED_FOR and wait.until is not None and wait.until > now.steady
    return Exit.OK if asked else Exit.UNFINISHED


def summarize(
    decision: Decision,
    done: tuple[tuple[Step, Outcome], ...],
    now: Now,
    stopped: Exit | None = None,
    undecided: tuple[str, ...] = (),
) -> Summary:
    """Judge the end of a run. `stopped` is set when a signal ended it; `undecided` says what has no verdict that it needs."""
    codes: list[Exit] = []
    reasons: list[str] = []
    run_again: list[tuple[str, int]] = []
    for hold in decision.holds:
        code = _judge_hold(hold)
        codes.append(code)
        if code is not Exit.OK:
            reasons.append(f"{hold.object}: {hold.action} is held ({hold.rule.value}: {hold.message})")
        elif hold.until is not None:
            run_again.append((f"{hold.object}: {hold.action} ({hold.rule.value})", hold.until))
    for wait in decision.waits:
        code = _judge_wait(wait, now)
        codes.append(code)
        if code is not Exit.OK:
            reasons.append(f"{wait.object}: waiting for {wait.waiting.value} ({wait.message})")
        elif wait.until is not None:
            run_again.append((f"{wait.object}: {wait.waiting.value}", wait.until))
    for step in decision.steps:
        codes.append(Exit.UNFINISHED)
        reasons.append(f"{step.object}: {describe(step.action)} was not done")
    codes += [Exit.UNFINISHED for _ in undecided]
    reasons += undecided
    exit_code = stopped if stopped is not None else worst(codes)
    return Summary(exit_code, tuple(dict.fromkeys(reasons)), decision, done, tuple(sorted(run_again)), undecided)


def decision_json(decision: Decision, desired: Desired, now: Now, since_wall: int = 0) -> str:
    """The decision as it is stored: status, holds, waits and steps; instants as wall-clock ns, so that they stay true.

    `since_wall` is since when decisions have said the same as this one; 0 = this is the first.
    """

    def wall(until: int | None) -> int | None:
        return None if until is None else now.wall + until - now.steady

    return json.dumps(
        {
            "format_version": FORMAT_VERSION,
            "instance": desired.instance.id,
            "revision": desired.revision,
            "source": desired.source,
            "since_wall": since_wall or now.wall,
            "at_wall": now.wall,
            "status": rows(decision.status, decision.holds, now),
            "holds": [
                {
                    "object": hold.object,
                    "action": hold.action,
                    "rule": hold.rule.value,
                    "message": hold.message,
                    "until_wall": wall(hold.until),
                    "next_step": hold.next_step or None,
                }
                for hold in decision.holds
            ],
            "waits": [
                {
                    "object": wait.object,
                    "waiting": wait.waiting.value,
                    "message": wait.message,
                    "until_wall": wall(wait.until),
                }
                for wait in decision.waits
            ],
            "steps": [
                {
                    "object": step.object,
                    "action": describe(step.action),
                    "cause": step.cause.value,
                    "message": step.message,
                }
                for step in decision.steps
            ],
            "approve": decision.guard_hash or None,
        },
        sort_keys=True,
    )


def fingerprint(decision: Decision) -> tuple[object, ...]:
    """What makes a decision worth telling or storing again: not the passing of time."""
    return (
        tuple(step.id for step in decision.steps),
        tuple((hold.object, hold.action, hold.rule, hold.message) for hold in decision.holds),
        tuple((wait.object, wait.waiting, wait.message) for wait in decision.waits if wait.waiting is not Waiting.CALL),
        # Which calls are under way is no news; that none is any more is, or the stored decision would tell of them for ever.
        any(wait.waiting is Waiting.CALL for wait in decision.waits),
        tuple(decision.status.workloads),
        tuple(
            (key, one.active, [row[:3] for row in one.rows]) for key, one in sorted(decision.ledger.rollouts.items())
        ),
        tuple((leaf, fact.value) for leaf, fact in decision.status.observed.leaves.items()),
    )
