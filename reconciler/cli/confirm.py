"""Asking a person before something is done: on a terminal only; a script has to say `--yes`."""

import sys
from pathlib import Path
from typing import Any

import click

from reconciler.cli.options import Options, mistake
from reconciler.cli.view import terminal


def require_somebody(command: str) -> None:
    """Refuse at once when nobody could answer, before anything is looked at. Raises a usage error."""
    if not terminal(sys.stdin):
        raise mistake(
            f"{command} asks before it acts, and standard input is no terminal",
            f"add --yes to run without asking; 'reconcile plan PATH' shows what it would do; try: {command} --yes",
        )


def agreed(path: Path, options: Options, wanted: Any, question: str) -> bool:
    """Show the plan on standard error and ask. Without steps there is nothing to ask about: the run only checks.

    Args:
        question: with `{steps}` for their number and `{instance}` for the instance's id.
    """
    from reconciler.cli import run  # noqa: PLC0415  (what runs is imported when it runs)
    from reconciler.core.decision import to_text  # noqa: PLC0415

    made, decision, _ = run.look(path, options, wanted)
    options.view.err(to_text(made).rstrip())
    desired = decision.status.desired
    name = desired.instance.id if desired is not None else str(path)
    return not made.steps or confirmed(question.format(steps=len(made.steps), instance=name))


def confirmed(question: str) -> bool:
    """Whether the person says yes. The question goes to standard error, so that standard output holds results alone."""
    return click.confirm(question, default=False, err=True)
