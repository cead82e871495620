"""`reconcile destroy PATH`: remove everything that this instance owns, in the safe order: names, weights, containers."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.confirm import agreed, require_somebody
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
What carries no owner mark of this instance is not touched. Suspensions do not stop it.
Exit codes are those of --once; 7 also when the question is answered with no.

\b
Examples:
  reconcile destroy manifests/
  reconcile destroy manifests/ --yes
""",
)
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@timeout_option
@wait_option
@instance_option
@state_option
@log_options
@common_options
def destroy(path: Path, yes: bool, **raw: Any) -> Exit:
    """Remove all containers, pool members and records that the instance of PATH owns."""
    options = Options.of(raw)
    if not yes:
        require_somebody("reconcile destroy")
    from reconciler.cli import run  # noqa: PLC0415  (what runs is imported when it runs)

    wanted = run.intent(options, destroy=True)
    if not yes and not agreed(
        path, options, wanted, "Remove everything that instance '{instance}' owns ({steps} steps)?"
    ):
        options.view.err(f"not confirmed; nothing was removed (exit {int(Exit.PERSON)})")
        return Exit.PERSON
    return run.once(path, options, wanted, "reconcile destroy")
