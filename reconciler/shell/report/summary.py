"""The last decision as stored for `status` and `explain`, and the exit code of a run with its reasons.

Pure functions over decisions, called by the loop and by `reporting.py`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from manifests.values.desired import Desired
from reconciler.core.decision import Decision
from reconciler.core.drift.listing import drift_json
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.step import Step
from reconciler.core.plan_text import FORMAT_VERSION, describe
from reconciler.core.status.objects import rows
from reconciler.exits import Exit, worst
from reconciler.shell import daemon_view

ASKED_FOR = {
    Waiting.TTL,
    Waiting.DRAIN,
    Waiting.MIN_READY,
    Waiting.ACTIVATION,
    Waiting.PAUSE,
    Waiting.ROLLBACK_WINDOW,
}
"""Waits that the manifests ask for: they count as converged. One of these kinds that health asked for (`Wait.unasked`) does not."""

MANUAL = {
    Rule.NAME_TAKEN,
    Rule.FOREIGN_RECORD,
    Rule.MASS_CHANGE,
    Rule.APPROVAL_REQUIRED,
    Rule.NOT_IN_PLAN,
    Rule.SUSPENDED,
    Rule.DENIED,
    Rule.POLICY_VIOLATION,
    Rule.OVERRIDDEN,
    Rule.SOURCE_CHANGED,
    Rule.SOURCE_INVALID,
    Rule.SOURCE_UNVERIFIED,
    Rule.INCOMPLETE_SOURCE,
    Rule.ADOPT_PENDING,
    Rule.ADOPT_CONFLICT,
    Rule.TEMPLATE_DIFFERS,
    Rule.PROBE_CONTEXT,
    Rule.PROGRESS,
    Rule.REVISION_NOT_ELIGIBLE,
    Rule.TEMPLATE_GONE,
    Rule.PROBE_UNPROVEN,
    Rule.SECRET_UNUSABLE,
}
"""Holds that only an operator ends."""

APPROVALS = {Rule.APPROVAL_REQUIRED, Rule.NOT_IN_PLAN}
"""Holds of planned changes: what waits for the same object waits for the operator."""

UNREAD = {Rule.UNKNOWN_RUNTIME, Rule.UNKNOWN_POOL, Rule.UNKNOWN_ZONE, Rule.SECRET_UNKNOWN}
"""Holds because of something that does not answer now and is asked again all the time: it may answer at any moment."""

AGES = frozenset(
    {
        "at_wall",
        "checked_wall",
        "last_check_wall",
        "next_wall",
        "streak",
        "consecutive_failures",
        "in_flight",
        "inflight",
    }
)
"""Fields of a stored decision that change while nothing happens: when and how often in a row was probed or pushed, and how many
requests are in flight. An object without other changes keeps those that were stored with it."""

HARMLESS = {
    Rule.PRUNE_OFF,
    Rule.ABSENCE_UNPROVEN,
    Rule.BUSY,
    Rule.POLICY_KEPT,
    Rule.FIXED_WEIGHTS,
    Rule.DRIFT,
    Rule.FILES_KEPT,
}
"""Holds that count as converged and are reported: leftovers and kept files stay where they are, rounded weights are the best that a pool takes."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run: exit code, reasons, last decision, steps done, when to run again for what (steady instants), and the present time.

    `undecided` has one message for each check without a verdict. `left` says what is still to be written or removed; empty when nothing is.
    """

    exit: Exit
    reasons: tuple[str, ...]
    decision: Decision
    done: tuple[tuple[Step, Outcome], ...]
    run_again: tuple[tuple[str, int], ...]
    now: Now
    undecided: tuple[str, ...] = ()
    left: str = ""


def pending(decision: Decision, end: int) -> bool:
    """Whether a run should go on: something is due, is under way, does not answer yet, or ends by itself before `end`.

    Args:
        decision: the latest decision.
        end: steady instant of the deadline.
    """
    if decision.steps or decision.unsettled:
        return True
    refused = {hold.object for hold in decision.holds if hold.rule is Rule.STEP_FAILED and hold.next_step}
    unapproved = {hold.object for hold in decision.holds if hold.rule in APPROVALS}
    for wait in decision.waits:
        if wait.until is None and awaits_approval(wait.object, wait.waiting.value, unapproved):
            continue
        if wait.waiting is Waiting.ROLLBACK_WINDOW:
            continue  # converged: a later run removes what is kept for a rollback
        if wait.waiting is Waiting.NAMES and wait.until is None and wait.object in refused:
            continue  # it waits for a record set that the server refuses
        if wait.unasked or wait.waiting not in (*ASKED_FOR, Waiting.STEADY) or wait.until is None or wait.until <= end:
            return True
    if any(hold.rule in UNREAD for hold in decision.holds):
        return True
    # An action that two operators stop begins when the last of both has ended.
    lasting = {(hold.object, hold.action) for hold in decision.holds if not _ends_by_itself(hold, end)}
    return any((hold.object, hold.action) not in lasting for hold in decision.holds)


def awaits_approval(obj: str, waiting: str, unapproved: Collection[str]) -> bool:
    """Whether progress of an object waits for an approval.

    Args:
        waiting: what it waits for, a value of `Waiting`.
        unapproved: the objects with a change that waits for an approval.
    """
    if waiting == Waiting.NAMES.value:
        return any(not name.startswith("workload/") for name in unapproved)
    of_workload = {name.partition("/")[2].partition("/")[0] for name in unapproved if name.startswith("workload/")}
    return waiting == Waiting.REPLACEMENT.value and obj.partition("/")[2].partition("/")[0] in of_workload


def _ends_by_itself(hold: Hold, end: int) -> bool:
    """Whether a hold is over before `end` without an operator."""
    if hold.rule is Rule.STEP_FAILED and hold.next_step:
        return False
    return hold.until is not None and hold.until <= end


def _judge_hold(hold: Hold) -> Exit:
    if hold.rule in HARMLESS:
        return Exit.OK
    return Exit.MANUAL if hold.rule in MANUAL else Exit.UNFINISHED


def _judge_wait(wait: Wait, now: Now) -> Exit:
    asked = wait.waiting in ASKED_FOR and not wait.unasked and wait.until is not None and wait.until > now.steady
    return Exit.OK if asked else Exit.UNFINISHED


def summarize(
    decision: Decision,
    done: tuple[tuple[Step, Outcome], ...],
    now: Now,
    stopped: Exit | None = None,
    undecided: tuple[str, ...] = (),
) -> Summary:
    """Judge the end of a run.

    Args:
        decision: the last decision.
        done: the steps of the run with their outcomes.
        now: the time of the decision.
        stopped: the exit code when a signal ended the run.
        undecided: messages about checks without a verdict.
    """
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
    unapproved = {hold.object for hold in decision.holds if hold.rule in APPROVALS}
    for wait in decision.waits:
        if wait.until is None and awaits_approval(wait.object, wait.waiting.value, unapproved):
            continue
        code = _judge_wait(wait, now)
        codes.append(code)
        if code is not Exit.OK:
            reasons.append(f"{wait.object}: waiting for {wait.waiting.value} ({wait.message})")
        elif wait.until is not None:
            run_again.append((f"{wait.object}: {wait.waiting.value}", wait.until))
    for step in decision.steps:
        codes.append(Exit.UNFINISHED)
        reasons.append(f"{step.object}: {describe(step.action)} was not done")
    codes += [Exit.UNFINISHED] * len(undecided)
    reasons += undecided
    left = left_over(decision)
    unproven = any(hold.rule is Rule.ABSENCE_UNPROVEN for hold in decision.holds)
    if (left or unproven) and worst(codes) is Exit.OK:
        # Only time is missing, but the run ends before: the manifests are not what there is.
        codes.append(Exit.UNFINISHED)
        reasons.append(f"left: {left}" if left else "what no manifest names is still to be removed")
    exit_code = stopped if stopped is not None else worst(codes)
    again = tuple(sorted(set(run_again)))
    return Summary(exit_code, tuple(dict.fromkeys(reasons)), decision, done, again, now, undecided, left)


def left_over(decision: Decision) -> str:
    """What a decision leaves to be written or removed, in numbers. What stays because pruning is off is not to be removed."""
    names, desired = decision.status.names, decision.status.desired
    if desired is None:
        return ""
    removes = desired.prune or desired.destroy
    changes = [*names.changes, *(names.strays if removes else ())] if names is not None else []
    gone = sum(1 for change in changes if change.after is None)
    orphans = len(decision.status.roster.orphans) if removes else 0
    counts = (
        (gone, "record set", "to delete"),
        (len(changes) - gone, "record set", "to write"),
        (orphans, "container", "to remove"),
    )
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'} {what}" for count, noun, what in counts if count)


def decision_document(
    decision: Decision, desired: Desired, now: Now, since_wall: int = 0, view: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The decision as stored, for JSON: status, holds, waits and steps; instants are wall-clock ns, which stay valid.

    Args:
        decision, desired, now: the decision, and what it was made for and when.
        since_wall: the time of the first of the equal decisions up to this one; 0 = this one.
        view: what the process knows beside it, for a plan that asked (`daemon_view`).
    """

    def wall(until: int | None) -> int | None:
        return None if until is None else now.wall + until - now.steady

    return {
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
                "act": hold.held.act.value,
                "containers": list(hold.held.containers),
                "rule": hold.rule.value,
                "message": hold.message,
                "until_wall": wall(hold.until),
                "next_step": hold.next_step or None,
                "item": hold.item or None,
                "since_wall": wall(hold.since),
            }
            for hold in decision.holds
        ],
        "waits": [
            {
                "object": wait.object,
                "waiting": wait.waiting.value,
                "message": wait.message,
                "until_wall": wall(wait.until),
                "unasked": wait.unasked,
            }
            for wait in decision.waits
        ],
        "steps": [
            {
                "object": step.object,
                "action": describe(step.action),
                "cause": step.cause.value,
                "message": step.message,
                "why": step.why.value,
            }
            for step in decision.steps
        ],
        "drift": [drift_json(drift) for drift in decision.drift],
        "approve": decision.guard_hash or None,
        "approve_command": f"{desired.apply_command} --approve {decision.guard_hash}" if decision.guard_hash else None,
        **({} if view is None else {daemon_view.KEY: view}),
    }


def decision_json(
    decision: Decision, desired: Desired, now: Now, since_wall: int = 0, view: Mapping[str, Any] | None = None
) -> str:
    """The decision as stored, as JSON text. Arguments as `decision_document`."""
    return json.dumps(decision_document(decision, desired, now, since_wall, view), sort_keys=True)


def fingerprint(decision: Decision) -> tuple[object, ...]:
    """What must change in a decision for it to be reported and stored again: time alone changes nothing here."""
    return (
        tuple(step.id for step in decision.steps),
        tuple((hold.object, hold.action, hold.rule, hold.message) for hold in decision.holds),
        tuple((wait.object, wait.waiting, wait.message) for wait in decision.waits if wait.waiting is not Waiting.CALL),
        # Which calls are under way does not count. Whether any is does, or the stored decision would show them for ever.
        any(wait.waiting is Waiting.CALL for wait in decision.waits),
        tuple(decision.status.workloads),
        tuple(
            (key, rollout.active, [row[:3] for row in rollout.rows])
            for key, rollout in sorted(decision.ledger.rollouts.items())
        ),
        tuple(sorted(decision.status.roster.renamed)),
        tuple((fact.node, fact.name) for fact in decision.status.roster.copies),
        tuple((target_address, fact.value) for target_address, fact in decision.status.observed.target_answers.items()),
        # A verdict from which nothing follows is an event too, at the time when it came.
        [
            (generation, *(None if fact is None else fact.value for fact in probes))
            for generation, probes in decision.status.observed.probes.items()
        ],
    )
