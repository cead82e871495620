"""A plan as people review it and as scripts read it, with the exit code said in words."""

from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.core.decision import Decision, Plan, to_json, to_text
from reconciler.core.model.instant import Now
from reconciler.exits import Exit

NOTHING = "nothing is to do"
"""Said when a plan has no steps, in text and JSON alike."""


def verdict(made: Plan, decision: Decision) -> str:
    """The plan in one sentence."""
    sentence = Exit.CHANGES.sentence if made.steps else NOTHING
    if decision.status.unknown:
        return f"{sentence}, as far as can be seen: {', '.join(sorted(decision.status.unknown))} cannot be read"
    if not made.steps and made.holds:
        return f"{sentence} now; {len(made.holds)} held"
    return sentence


def plan_text(made: Plan, decision: Decision, code: Exit, paint: Paint) -> str:
    """The plan, then one sentence with the exit code."""
    lines = [_colored(line, paint) for line in to_text(made).splitlines()]
    return "\n".join([*lines, f"result: {verdict(made, decision)} (exit {int(code)})"])


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


def plan_json(made: Plan, decision: Decision, now: Now, code: Exit) -> dict[str, Any]:
    """The plan's own JSON form, with the sentence, the exit code and what could not be read."""
    return {
        **to_json(made, now.steady),
        "exit_code": int(code),
        "result": verdict(made, decision),
        "unknown": dict(decision.status.unknown),
    }
