"""A plan as text and as JSON, with its result in one sentence."""

from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.times import ago
from reconciler.core.decision import Decision, Plan
from reconciler.core.model.instant import Now
from reconciler.core.plan_text import to_json, to_lines
from reconciler.exits import Exit
from reconciler.shell.clock import utc
from reconciler.shell.daemon_view import DaemonView
from reconciler.wire import MadePlan

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


def view_lines(view: DaemonView | None, now: Now) -> list[str]:
    """Whose verdicts, pushes and holds count, and how old they are; nothing when the plan looked by itself."""
    if view is None:
        return []
    return [
        f"beside a running process: its {len(view.verdicts)} probe verdicts, {len(view.pushes)} pushes and its holds count,"
        f" observed {ago(view.at_wall, now.wall)}"
    ]


def plan_lines(made: MadePlan, code: Exit, paint: Paint) -> list[str]:
    """The plan, then its result with the exit code."""
    lines = [_colored(line, paint) for line in to_lines(made.plan)]
    lines += [paint.dim(line) for line in view_lines(made.view, made.now)]
    return [*lines, f"result: {result(made.plan, made.decision)} (exit {int(code)})"]


def _colored(line: str, paint: Paint) -> str:
    if line.startswith("privilege ") and (" + " in line or " ? " in line):
        return paint.bad(line)
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


def plan_json(made: MadePlan, code: Exit) -> dict[str, Any]:
    """The plan's own JSON form, with its result, the exit code, the providers that cannot be read, and whose view of health counts."""
    plan, decision, now, view, _ = made
    return {
        **to_json(plan, now.steady),
        "exit_code": int(code),
        "result": result(plan, decision),
        "unknown": dict(decision.status.unknown),
        "beside": None
        if view is None
        else {
            "as_of": utc(view.at_wall).isoformat(),
            "age_seconds": max(0, now.wall - view.at_wall) / SECOND,
            "revision": view.revision,
            "verdicts": len(view.verdicts),
            "pushes": len(view.pushes),
        },
    }
