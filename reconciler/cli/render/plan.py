"""A plan as text and as JSON, with its result in one sentence."""

from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.core.decision import Decision, Plan
from reconciler.core.model.instant import Now
from reconciler.core.plan_text import to_json, to_text
from reconciler.exits import Exit

NO_STEPS = "nothing to do"
"""The result of a plan without steps, in text and JSON."""


def result(plan: Plan, decision: Decision) -> str:
    """The plan in one sentence."""
    sentence = Exit.CHANGES.sentence if plan.steps else NO_STEPS
    if decision.status.unknown:
        return f"{sentence}; the plan is incomplete: {', '.join(sorted(decision.status.unknown))} cannot be read"
    if not plan.steps and plan.holds:
        return f"{sentence} now; {len(plan.holds)} held"
    return sentence


def plan_text(plan: Plan, decision: Decision, code: Exit, paint: Paint) -> str:
    """The plan, then its result with the exit code."""
    lines = [_colored(line, paint) for line in to_text(plan).splitlines()]
    return "\n".join([*lines, f"result: {result(plan, decision)} (exit {int(code)})"])


def _colored(line: str, paint: Paint) -> str:
    if line.startswith("hold "):
        return paint.warn(line)
    if line.startswith("wait "):
        return paint.dim(line)
    if line.startswith(("plan ", "approve ")):
        return paint.bold(line)
    return (
        paint.bad(line)
        if ": remove " in line or ": stop " in line or " -> nothing in " in line or line.endswith(" -> nothing")
        else line
    )


def plan_json(plan: Plan, decision: Decision, now: Now, code: Exit) -> dict[str, Any]:
    """The plan's own JSON form, with its result, the exit code and the providers that cannot be read."""
    return {
        **to_json(plan, now.steady),
        "exit_code": int(code),
        "result": result(plan, decision),
        "unknown": dict(decision.status.unknown),
    }
