"""The result of a run as text and as JSON: its steps, holds and waits, the state, and one last line with the exit code."""

import json
from collections.abc import Sequence
from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.status import progress_lines, status_lines
from reconciler.cli.render.times import short
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.step import Step
from reconciler.core.plan_text import describe, spelled_out
from reconciler.exits import Exit
from reconciler.shell.report.summary import Summary, decision_json

_WIDTH = max(len(kind.value) for kind in OutcomeKind)


def step_line(step: Step, outcome: Outcome, paint: Paint) -> str:
    """One step that was taken: its outcome, object, action, cause, and its error."""
    kind = paint.state(outcome.kind.value, outcome.kind.value.ljust(_WIDTH))
    tail = f": {outcome.message}" if outcome.message else ""
    return f"{kind} {step.object}: {describe(step.action)} ({step.cause.value}: {step.message}){tail}"


def result_line(code: Exit, paint: Paint, left: str = "") -> str:
    """The last line of the result of a run; `left` is what it leaves to be done."""
    shown = paint.good(code.sentence) if code is Exit.OK else paint.bad(code.sentence)
    return f"result: {shown}{f'; left: {left}' if left else ''} (exit {int(code)})"


def stored_form(summary: Summary, now: Now) -> dict[str, Any]:
    """The last decision as it is stored and as `status` reads it."""
    desired = summary.decision.status.desired
    if desired is None:
        raise ValueError("a decision of a run always has its manifests")
    value: dict[str, Any] = json.loads(decision_json(summary.decision, desired, now))
    return value


def summary_lines(summary: Summary, now: Now, paint: Paint, *, streamed: bool = False) -> list[str]:
    """The whole result of a run as lines; without the steps when their lines were `streamed` as they ended."""
    stored = stored_form(summary, now)
    lines = [] if streamed else [step_line(step, outcome, paint) for step, outcome in summary.done]
    if not summary.done and not summary.decision.steps:
        lines.append("nothing to do" if summary.exit is Exit.OK else "nothing was done")
    lines += progress_lines(stored, paint, now.wall)
    lines += [f"{paint.warn('unknown')}  {sentence}" for sentence in summary.undecided]
    lines += [*([""] if lines or streamed else []), *status_lines(stored, paint, now.wall), ""]
    lines += [f"run again in {short(at - now.steady)} for {what}" for what, at in summary.run_again]
    return [*lines, result_line(summary.exit, paint, summary.left)]


def _done(done: Sequence[tuple[Step, Outcome]]) -> list[dict[str, Any]]:
    return [
        {
            "id": step.id,
            "object": step.object,
            "action": describe(step.action),
            "kind": type(step.action).__name__,
            "cause": step.cause.value,
            "message": step.message,
            "outcome": outcome.kind.value,
            "detail": outcome.message or None,
            **({"changes": changes} if (changes := spelled_out(step.action)) else {}),
        }
        for step, outcome in done
    ]


def summary_json(summary: Summary, now: Now) -> dict[str, Any]:
    """The whole result of a run as JSON; the fields of the last decision are those of `status -o json`."""
    return {
        "exit_code": int(summary.exit),
        "result": summary.exit.sentence,
        "reasons": list(summary.reasons),
        "left": summary.left or None,
        "done": _done(summary.done),
        "run_again": [{"what": what, "in_seconds": max(0, at - now.steady) / SECOND} for what, at in summary.run_again],
        **stored_form(summary, now),
    }
