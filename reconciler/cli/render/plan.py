"""A plan as text, as Markdown and as JSON, with its result in one sentence."""

from dataclasses import replace
from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli import view
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.times import ago
from reconciler.core.decision import Decision, Plan
from reconciler.core.model.instant import Now
from reconciler.core.plan_markdown import to_markdown
from reconciler.core.plan_review import masked
from reconciler.core.plan_text import review_of, to_json, to_lines
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
    """The commit of a git source, the plan, then its result with the exit code."""
    lines = [f"at commit {made.commit}{f' of {made.ref}' if made.ref else ''}"] if made.commit else []
    lines += [colored(line, paint) for line in to_lines(made.plan)]
    lines += [paint.dim(line) for line in view_lines(made.view, made.now)]
    return [*lines, f"result: {result(made.plan, made.decision)} (exit {int(code)})"]


def plan_markdown(made: MadePlan, code: Exit, command: str) -> str:
    """The plan as a comment on a merge request. `command` shows the whole plan."""
    review = review_of(made.plan)
    review = replace(review, notes=(*review.notes, *view_lines(made.view, made.now)))
    sentence = f"{result(made.plan, made.decision)} (exit {int(code)})"
    return to_markdown(masked(review, view.masked), instance=made.plan.instance, result=sentence, command=command)


def colored(line: str, paint: Paint) -> str:
    """A line of a plan in its colour: what destroys is bad, what is held a warning."""
    if line.startswith("  ! ") or (line.startswith("privilege ") and (" + " in line or " ? " in line)):
        return paint.bad(line)
    if line.startswith("hold "):
        return paint.warn(line)
    if line.startswith(("wait ", "  note: ")):
        return paint.dim(line)
    if line.startswith(("instance ", "untrusted plan ", "plan ", "plan: ", "approve ")) or not line.startswith(" "):
        return paint.bold(line)
    if line.startswith("  follows: downtime"):
        return paint.bad(line)
    if line.startswith(("  ~ ", "  + ", "  - ", "  follows: ")):
        return line
    destroys = ": remove " in line or ": stop " in line or " -> nothing in " in line or line.endswith(" -> nothing")
    return paint.bad(line) if destroys else line


def plan_json(made: MadePlan, code: Exit) -> dict[str, Any]:
    """The plan's own JSON form, with its result, the exit code, the providers that cannot be read, and whose view of health counts."""
    plan, decision, now, view, commit, ref, _ = made
    return {
        **({"commit": commit, "ref": ref or None} if commit else {}),
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
