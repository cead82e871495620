"""Asks the operator for confirmation, on a terminal only; a script has to give `--yes`. Called by `apply` and `destroy`."""

import sys
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import Options, usage_error
from reconciler.cli.view import terminal

if TYPE_CHECKING:
    from reconciler.intent import Intent
    from reconciler.start import StartManifests
    from reconciler.tree import Given, Location


def require_terminal(command: str) -> None:
    """Refuse, before anything is observed, when standard input is no terminal. Raises a usage error."""
    if not terminal(sys.stdin):
        raise usage_error(
            f"{command} asks for confirmation, and standard input is not a terminal",
            f"run: {command} --yes, which does not ask; 'reconcile plan PATH' shows what it would do",
        )


def plan_confirmed(
    path: "Given",
    options: Options,
    intent: "Intent",
    question: str,
    place: "Location | None" = None,
    stored: "StartManifests | None" = None,
) -> bool:
    """Show the plan on standard error and ask. True without asking when the plan has no steps.

    Args:
        question: with `{steps}` for their number and `{instance}` for the instance's id.
        place, stored: stored manifests that take the place of those at PATH, and where their instance is.
    """
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)
    from reconciler.cli.render.plan import view_lines  # noqa: PLC0415
    from reconciler.core.plan_text import to_lines  # noqa: PLC0415

    made = run.make_plan(path, options, intent, place, stored)
    plan, decision = made.plan, made.decision
    options.view.err(*view_lines(made.view, made.now), *to_lines(plan))
    desired = decision.status.desired
    name = desired.instance.id if desired is not None else str(path)
    return not plan.steps or _confirmed(question.format(steps=len(plan.steps), instance=name))


def _confirmed(question: str) -> bool:
    """Whether the operator answers yes. The question goes to standard error, because standard output has only results."""
    return click.confirm(question, default=False, err=True)
