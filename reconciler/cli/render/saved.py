"""A saved plan as text and as JSON: what it approves, and for how long it counts. Called by `cli/saved` and `cli/show`."""

from pathlib import Path
from shlex import quote
from typing import Any

from manifests.values.desired import SECOND
from reconciler.core.decision import Plan
from reconciler.saved_plan import SavedPlan
from reconciler.shell.clock import utc


def approves_lines(plan: Plan) -> list[str]:
    """A line for each change that the Guard asks to approve, and who approves it."""
    if not plan.approves:
        return []
    count = f"{len(plan.approves)} change{'' if len(plan.approves) == 1 else 's'}"
    head = f"the Guard asks for approval of {count}, which the operator who applies this plan approves:"
    return [head, *(f"approve {change.class_.value} {change.object}: {change.text}" for change in plan.approves)]


def approves_json(plan: Plan) -> dict[str, Any]:
    """The same as a value for JSON."""
    return {
        "approves": [
            {"class": change.class_.value, "object": change.object, "text": change.text, "item": change.item}
            for change in plan.approves
        ]
    }


def saved_line(file: Path, saved: SavedPlan, wall: int, command: str) -> str:
    """Where the plan was saved, for how long it counts, and how it is applied. `command` is that of the plan."""
    seconds = (saved.expires_wall - wall) // SECOND
    apply = command.replace("reconcile plan", "reconcile apply", 1)
    return f"saved to {file}, counts for {seconds}s; to apply it, run: {apply} --plan {quote(str(file))}"


def shown_lines(saved: SavedPlan, wall: int) -> list[str]:
    """The plan in a file as text, with its source and whether it still counts."""
    expired = wall >= saved.expires_wall
    commit = (
        f", commit {saved.commit[:12]}{'-dirty' if saved.commit.endswith('-dirty') else ''}" if saved.commit else ""
    )
    return [
        f"made {_time(saved.made_wall)} by reconcile {saved.tool} for instance '{saved.instance}'",
        f"from {saved.source}, revision {saved.revision[:12]}{commit}",
        f"{'expired' if expired else 'expires'} {_time(saved.expires_wall)}",
        *saved.text,
    ]


def shown_json(saved: SavedPlan, wall: int) -> dict[str, Any]:
    """The same as a value for JSON."""
    return {
        "format_version": 1,
        "plan": saved.plan,
        "instance": saved.instance,
        "tool": saved.tool,
        "source": saved.source,
        "revision": saved.revision,
        "commit": saved.commit or None,
        "made": utc(saved.made_wall).isoformat(),
        "expires": utc(saved.expires_wall).isoformat(),
        "expired": wall >= saved.expires_wall,
        "prune": saved.prune,
        "changes": [{"object": change.object, "text": change.text} for change in saved.outcome],
        "approves": [
            {"class": change.class_, "object": change.object, "text": change.text, "item": change.item}
            for change in saved.approvals
        ],
        "text": list(saved.text),
        "exit_code": 0,
    }


def _time(wall: int) -> str:
    return f"{utc(wall):%Y-%m-%d %H:%M:%S} UTC"
