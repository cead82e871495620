"""`reconcile destroy PATH`: removes everything that an instance owns, in the safe order: DNS records, weights, containers."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.confirm import plan_confirmed, require_terminal
from reconciler.cli.options import (
    Options,
    common_options,
    instance_option,
    log_options,
    path_argument,
    state_option,
    timeout_option,
    wait_option,
)
from reconciler.exits import Exit


@click.command(
    epilog="""\b
Objects without the owner mark of this instance are not touched. Suspensions do not stop
destroy.

\b
Exit codes: as for --once, and 7 when you answer no.

\b
Examples:
  reconcile destroy manifests/
  reconcile destroy manifests/ --yes
""",
)
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@timeout_option
@wait_option
@instance_option
@state_option
@log_options
@common_options
def destroy(path: Path, yes: bool, **raw: Any) -> Exit:
    """Remove all containers, pool members and DNS records that the instance of PATH owns."""
    options = Options.of(raw)
    if not yes:
        require_terminal("reconcile destroy")
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)

    intent = run.intent(path, options, destroy=True)
    if not yes and not plan_confirmed(
        path, options, intent, "Remove everything that instance '{instance}' owns ({steps} steps)?"
    ):
        options.view.err(f"not confirmed; nothing was removed (exit {int(Exit.MANUAL)})")
        return Exit.MANUAL
    return run.once(path, options, intent, "reconcile destroy")
