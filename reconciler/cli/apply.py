"""`reconcile apply PATH`: shows the plan, asks for confirmation, then runs as `--once` does."""

from pathlib import Path
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
With --plan nothing is asked: the plan is decided again and compared first. A run that differs
from it in containers, record sets, manifests, commit or Guard is refused with exit 4.

\b
Exit codes: as for --once, 7 when you answer no, and 4 when the plan is stale.

\b
Examples:
  reconcile apply manifests/
  reconcile apply manifests/ --yes --timeout 15m
  reconcile apply manifests/ --prune --approve 0123456789abcdef
  reconcile apply manifests/ --plan release.plan
""",
)
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--plan",
    "saved",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Apply the plan that 'reconcile plan --out FILE' saved, and approve what it has of the classes in spec.approve of the Guard.",
)
@approve_option
@timeout_option
@wait_option
@textfile_option
@intent_options
@instance_option
@state_option
@log_options
@common_options
def apply(path: "Given | None", yes: bool, saved: Path | None, approve: str, **raw: Any) -> Exit:
    """Show the plan for the manifests at PATH, ask for confirmation, and converge once."""
    options = Options.of(raw)
    path = required(path, options, "reconcile apply")
    if saved is not None:
        from reconciler.cli.saved import apply_saved  # noqa: PLC0415  (imported when it is needed)

        return apply_saved(path, options, saved, approve)
    if not yes:
        require_terminal("reconcile apply")
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)

    intent = run.intent(path, options, approve=approve)
    if not yes and not plan_confirmed(path, options, intent, "Take these {steps} steps?"):
        options.view.err(f"not confirmed; nothing was changed (exit {int(Exit.MANUAL)})")
        return Exit.MANUAL
    return run.once(path, options, intent, "reconcile apply")
