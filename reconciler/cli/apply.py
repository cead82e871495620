"""`reconcile apply PATH`: the plan, a question, then the same run as `--once`."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.confirm import agreed, require_somebody
from reconciler.cli.options import (
    Options,
    common_options,
    instance_option,
    intent_options,
    log_options,
    path_argument,
    state_option,
    timeout_option,
    wait_option,
)
from reconciler.exits import Exit


@click.command(
    epilog="""\b
Exit codes are those of --once; 7 also when the question is answered with no.

\b
Examples:
  reconcile apply manifests/
  reconcile apply manifests/ --yes --timeout 15m
  reconcile apply manifests/ --prune --approve 0123456789abcdef
""",
)
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--approve", metavar="HASH", default="", help="Approve held deletions: the hash that the plan shows.")
@timeout_option
@wait_option
@intent_options
@instance_option
@state_option
@log_options
@common_options
def apply(path: Path, yes: bool, approve: str, **raw: Any) -> Exit:
    """Show the plan for the manifests at PATH, ask, and converge once."""
    options = Options.of(raw)
    if not yes:
        require_somebody("reconcile apply")
    from reconciler.cli import run  # noqa: PLC0415  (what runs is imported when it runs)

    wanted = run.intent(options, approve=approve)
    if not yes and not agreed(path, options, wanted, "Do these {steps} steps?"):
        options.view.err(f"not confirmed; nothing was changed (exit {int(Exit.PERSON)})")
        return Exit.PERSON
    return run.once(path, options, wanted, "reconcile apply")
