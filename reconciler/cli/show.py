"""`reconcile show FILE`: prints a saved plan, and changes nothing."""

from pathlib import Path
from typing import Any

import click

from reconciler.cli.options import Options, common_options
from reconciler.exits import Exit


@click.command(
    epilog="""\b
Exit codes: 0 shown, also when the plan has expired; 1 the file cannot be used; 4 a newer
version of reconcile wrote it.

\b
Examples:
  reconcile show release.plan
  reconcile show release.plan -o json | jq '.approves'
""",
)
@click.argument("file", type=click.Path(path_type=Path))
@common_options
def show(file: Path, **raw: Any) -> Exit:
    """Show the plan that 'reconcile plan --out FILE' saved: where it comes from, its steps, and what it approves."""
    from reconciler import saved_plan  # noqa: PLC0415  (imported when it is needed)
    from reconciler.cli.render.saved import shown_json, shown_lines  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415

    options = Options.of(raw)
    saved, wall = saved_plan.read(file), SystemClock().now().wall
    if options.view.json:
        options.view.document(shown_json(saved, wall))
    else:
        options.view.out(*shown_lines(saved, wall))
    return Exit.OK
