"""`reconcile apply PATH`: shows the plan, asks for confirmation, then runs as `--once` does."""

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.confirm import plan_confirmed, require_terminal
from reconciler.cli.given import path_argument, required
from reconciler.cli.options import (
    Options,
    approve_option,
    common_options,
    instance_option,
    intent_options,
    log_options,
    state_option,
    textfile_option,
    timeout_option,
    wait_option,
)
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given


@click.command(
    epilog="""\b
Exit codes: as for --once, and 7 when you answer no.

\b
Examples:
  reconcile apply manifests/
  reconcile apply manifests/ --yes --timeout 15m
  reconcile apply manifests/ --prune --approve 0123456789abcdef
""",
)
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@approve_option
@timeout_option
@wait_option
@textfile_option
@intent_options
@instance_option
@state_option
@log_options
@common_options
def apply(path: "Given | None", yes: bool, approve: str, **raw: Any) -> Exit:
    """Show the plan for the manifests at PATH, ask for confirmation, and converge once."""
    options = Options.of(raw)
    path = required(path, options, "reconcile apply")
    if not yes:
        require_terminal("reconcile apply")
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)

    intent = run.intent(path, options, approve=approve)
    if not yes and not plan_confirmed(path, options, intent, "Take these {steps} steps?"):
        options.view.err(f"not confirmed; nothing was changed (exit {int(Exit.MANUAL)})")
        return Exit.MANUAL
    return run.once(path, options, intent, "reconcile apply")
