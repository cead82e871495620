"""`reconcile get requests`: the restart requests that are open, and those that ended within the last hour."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.objects import read_ledger
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.render.requests import request_json, request_lines
from reconciler.cli.status import nothing_yet
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock


@click.command(
    epilog="""\b
Exit codes: 0 shown, 6 nothing has run yet.

\b
Examples:
  reconcile get requests manifests/
  reconcile get requests --instance-id my-host -o json | jq '.requests[].members'
""",
)
@click.argument("what", type=click.Choice(["requests"]))
@path_optional
@target_options
@common_options
def get(what: str, path: Path | None, instance_id: str, **raw: Any) -> Exit:
    """Show all restart requests (WHAT is: requests) with what became of each replica."""
    del what
    options = Options.of(raw)
    place = find(path, options, instance_id)
    if not place.used:
        return nothing_yet(place.unused, options.view)
    with joined(place) as store:
        requests = read_ledger(store.load_ledger()).requests
    if options.view.json:
        found = [request_json(name, one) for name, one in sorted(requests.items())]
        options.view.document({"exit_code": 0, "requests": found})
    else:
        options.view.out("\n".join(request_lines(requests, options.view.paint, SystemClock().now().wall)))
    return Exit.OK
