"""`reconcile status`: the last decision that was stored, and how old it is. Asks no provider; works beside a daemon."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.cli.view import View


@click.command(
    epilog="""\b
Exit codes: 0 shown, whatever the state is; 6 nothing has run yet.

\b
Examples:
  reconcile status manifests/
  reconcile status --instance-id my-host
  reconcile status manifests/ -o json | jq '.status.workloads[].condition'
""",
)
@path_optional
@target_options
@common_options
def status(path: Path | None, instance_id: str, **raw: Any) -> Exit:
    """Show the last known state: of the instance of PATH, of an id, or of the only instance there is."""
    options = Options.of(raw)
    view = options.view
    place = find(path, options, instance_id)
    if not place.used:
        return nothing_yet(place.unused, view)
    with joined(place) as store:
        last, waiting = store.last_decision(), store.pending()
    if last is None:
        return nothing_yet(f"{place.name}: no run has decided anything yet; run: reconcile --once PATH", view)
    stored = json.loads(last.text)
    from reconciler.cli.render.status import progress_lines, status_lines  # noqa: PLC0415  (only now there is something)
    from reconciler.cli.render.times import ago  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock, utc  # noqa: PLC0415

    now = SystemClock().now().wall
    if view.json:
        age = {"since": utc(last.wall).isoformat(), "since_seconds": max(0, now - last.wall) / 1e9}
        view.document({"exit_code": 0, **age, "commands_waiting": len(waiting), **stored})
        return Exit.OK
    head = f"instance '{stored['instance']}', revision {stored['revision'][:12]}, like this since {ago(last.wall, now)}"
    lines = [view.paint.bold(head), "", *status_lines(stored, view.paint)]
    held = progress_lines(stored, view.paint, now)
    lines += ["", *held] if held else []
    if waiting:
        lines += ["", f"{len(waiting)} commands wait for the next run or for the daemon's next look"]
    if place.desired is not None and place.desired.revision != stored["revision"]:
        lines += ["", "the manifests have changed since: reconcile plan PATH shows what they would do"]
    view.out("\n".join(lines))
    return Exit.OK


def nothing_yet(text: str, view: "View") -> Exit:
    """Nothing is kept yet: said as the result."""
    code = Exit.UNFINISHED
    if view.json:
        view.document({"exit_code": int(code), "result": text, "reasons": [text]})
    view.err(f"{text} (exit {int(code)})")
    return code
