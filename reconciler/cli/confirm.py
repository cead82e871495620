"""Asking a person before something is done: on a terminal only; a script has to say `--yes`."""

import sys

import click

from reconciler.cli.options import mistake
from reconciler.cli.view import terminal


def require_somebody(command: str) -> None:
    """Refuse at once when nobody could answer, before anything is looked at. Raises a usage error."""
    if not terminal(sys.stdin):
        raise mistake(
            f"{command} asks before it acts, and standard input is no terminal",
            f"add --yes to run without asking; 'reconcile plan PATH' shows what it would do; try: {command} --yes",
        )


def confirmed(question: str) -> bool:
    """Whether the person says yes. The question goes to standard error, so that standard output holds results alone."""
    return click.confirm(question, default=False, err=True)
