"""`reconcile destroy PATH`: removes everything that an instance owns, in the safe order: DNS records, weights, containers."""

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.confirm import plan_confirmed, require_terminal
from reconciler.cli.last_good import chosen, hint, id_option, path_or_id
from reconciler.cli.options import (
    Options,
    common_options,
    instance_option,
    log_options,
    state_option,
    timeout_option,
    wait_option,
)
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given


@click.command(
    epilog="""\b
Objects without the owner mark of this instance are not touched. Suspensions do not stop
destroy. While the manifests at PATH are invalid, destroy needs --instance-id and uses the
last good ones.

\b
Exit codes: as for --once, and 7 when you answer no.

\b
Examples:
  reconcile destroy manifests/
  reconcile destroy manifests/ --yes
  reconcile destroy manifests/ --instance-id my-host
""",
)
@path_or_id
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@timeout_option
@wait_option
@id_option
@instance_option
@state_option
@log_options
@common_options
def destroy(path: "Given | None", yes: bool, instance_id: str, **raw: Any) -> Exit:
    """Remove all containers, pool members and DNS records that the instance of PATH owns."""
    options = Options.of(raw)
    if not yes:
        require_terminal("reconcile destroy")
    from reconciler.cli import run  # noqa: PLC0415  (imported when it is needed)

    with hint(options):
        place, stored = chosen(path, options, instance_id)
        intent = run.intent(place.path, options, destroy=True)
        question = "Remove everything that instance '{instance}' owns ({steps} steps)?"
        if not yes and not plan_confirmed(place.path, options, intent, question, place, stored):
            options.view.err(f"not confirmed; nothing was removed (exit {int(Exit.MANUAL)})")
            return Exit.MANUAL
        return run.once(place.path, options, intent, "reconcile destroy", place, stored)
