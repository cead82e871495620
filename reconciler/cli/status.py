"""`reconcile status`: the last decision that was stored, and how old it is. Asks no provider; works beside a daemon."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.inbox import refreshed
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.looks.wake_pipe import SHOW

if TYPE_CHECKING:
    from reconciler.cli.view import View


@click.command(
    epilog="""\b
Exit codes: 0 shown, whatever the state is; 6 nothing has run yet.

\b
Examples:
  reconcile status manifests/
  reconcile status --instance-id my-host
  reconcile status manifests/ --unhealthy
  reconcile status manifests/ -o json | jq '.status.workloads[].condition'
""",
)
@path_optional
@click.option("--unhealthy", "bad", is_flag=True, help="Only workloads and replicas that are not as they should be.")
@target_options
@common_options
def status(path: Path | None, bad: bool, instance_id: str, **raw: Any) -> Exit:
    """Show the last known state: of the instance of PATH, of an id, or of the only instance there is.

    A running process is asked for the present; without one the last decision is shown, and how old it is.
    """
    options = Options.of(raw)
    view = options.view
    place = find(path, options, instance_id)
    if not place.used:
        return nothing_yet(place.unused, view)
    live = refreshed(place)
    with joined(place) as store:
        last, waiting = store.last_decision(), [one for one in store.pending() if one.command != SHOW]
    if last is None:
        return nothing_yet(f"{place.name}: no run has decided anything yet; run: reconcile --once PATH", view)
    stored = json.loads(last.text)
    since, at = stored.get("since_wall", last.wall), stored.get("at_wall", last.wall)
    from reconciler.cli.render.status import progress_lines, status_lines, unhealthy  # noqa: PLC0415  (only now there is something)
    from reconciler.cli.render.times import ago  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock, utc  # noqa: PLC0415

    now = SystemClock().now().wall
    stored = unhealthy(stored) if bad else stored
    if view.json:
        age = {
            "since": utc(since).isoformat(),
            "since_seconds": max(0, now - since) / 1e9,
            "as_of": utc(at).isoformat(),
            "live": live,
        }
        view.document({"exit_code": 0, **age, "commands_waiting": len(waiting), **stored})
        return Exit.OK
    head = f"instance '{stored['instance']}', revision {stored['revision'][:12]}, like this since {ago(since, now)}"
    head += "" if live else f"; seen {ago(at, now)}, nothing answers now"
    lines = [view.paint.bold(head), "", *status_lines(stored, view.paint, now)]
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
