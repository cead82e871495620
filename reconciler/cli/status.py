"""`reconcile status`: shows the last stored decision and its age. Asks no provider; works beside a daemon."""

import json
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.inbox import refreshed
from reconciler.cli.options import DurationType, Options, common_options, target_options
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell import daemon_view
from reconciler.shell.looks.wake_pipe import SHOW

if TYPE_CHECKING:
    from reconciler.cli.view import View
    from reconciler.cli.where import Place
    from reconciler.tree import Given

MAX_AGE = 600 * 1_000_000_000
"""The default age (ns) of a decision that still says something without a daemon."""


@click.command(
    epilog="""\b
Exit codes: 0 shown, whatever the state is; 6 the instance has never run. With --exit-code the code of a single run in
this state: 0 converged; 6 something failed, is unknown or unfinished, or the decision is too old; 7 manual action required.

\b
Examples:
  reconcile status manifests/
  reconcile status --instance-id my-host
  reconcile status manifests/ --unhealthy
  reconcile status --instance-id my-host --exit-code > /dev/null
  reconcile status manifests/ -o json | jq '.status.workloads[].condition'
""",
)
@path_optional
@click.option("--unhealthy", "only_unhealthy", is_flag=True, help="Show only unhealthy workloads and replicas.")
@click.option(
    "--exit-code", "judged", is_flag=True, help="Exit with 0 only when everything is converged, for monitors."
)
@click.option(
    "--max-age",
    type=DurationType(),
    default=MAX_AGE,
    metavar="DURATION",
    help="With --exit-code: an older decision is not converged, unless a daemon answers; default 10m.",
)
@target_options
@common_options
def status(
    path: "Given | None", only_unhealthy: bool, judged: bool, max_age: int, instance_id: str, **raw: Any
) -> Exit:
    """Show the last known state of an instance. Without PATH, --instance-id and --state-dir: of the only instance on this host.

    A running daemon reports its present state. Without a daemon, status shows the last decision and its age.
    """
    options = Options.of(raw)
    view = options.view
    place = find(path, options, instance_id)
    if not place.has_run:
        return report_no_state(place.never_run, view)
    live = refreshed(place)
    with joined(place) as store:
        last, queued = store.last_decision(), [row for row in store.pending() if row.command != SHOW]
    if last is None:
        return report_no_state(no_decision(place), view)
    stored = json.loads(last.text)
    stored.pop(daemon_view.KEY, None)  # of a plan that asked at the same time
    since, at = stored.get("since_wall", last.wall), stored.get("at_wall", last.wall)
    from reconciler.cli.render.status import progress_lines, status_lines, unhealthy  # noqa: PLC0415  (only with something to show)
    from reconciler.cli.render.times import age_text, short  # noqa: PLC0415
    from reconciler.core.model.source_problem import named  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415
    from reconciler.shell.report.stored_exit import judge  # noqa: PLC0415

    now = SystemClock().now().wall
    code, reasons = judge(stored, now, live=live, max_age=max_age) if judged else (Exit.OK, ())
    stored = unhealthy(stored) if only_unhealthy else stored
    if view.json:
        age = {
            "since_wall": since,
            "since_seconds": max(0, now - since) / 1e9,
            "as_of_wall": at,
            "live": live,
        }
        verdict = {"exit_code": int(code), **({"reasons": list(reasons)} if judged else {})}
        view.document({**verdict, **age, "commands_waiting": len(queued), **stored})
        return code
    in_force = place.source.in_force if place.source is not None else None
    commit = in_force.commit if in_force is not None and in_force.revision == stored["revision"] else ""
    revision = named(stored["revision"], commit)
    head = f"instance '{stored['instance']}', revision {revision}, unchanged for {short(now - since)}"
    head += "" if live else f"; {age_text(at, now)}"
    lines = [view.paint.bold(head), "", *status_lines(stored, view.paint, now)]
    progress = progress_lines(stored, view.paint, now)
    lines += ["", *progress] if progress else []
    if queued:
        count = f"{len(queued)} command is" if len(queued) == 1 else f"{len(queued)} commands are"
        lines += ["", f"{count} queued for the next run or the running daemon"]
    if place.desired is not None and place.desired.revision != stored["revision"]:
        lines += ["", "the manifests have changed since this decision; 'reconcile plan PATH' shows the steps"]
    if judged:
        lines += ["", *reasons, f"result: {code.sentence} (exit {int(code)})"]
    view.out(*lines)
    return code


def no_decision(place: "Place") -> str:
    """The message for an instance with a store but without a decision."""
    return f"{place.name}: no run has made a decision yet; next step: reconcile --once PATH"


def report_no_state(text: str, view: "View") -> Exit:
    """Report as the result that there is nothing to show yet."""
    code = Exit.UNFINISHED
    if view.json:
        view.document({"exit_code": int(code), "result": text, "reasons": [text]})
    view.err(f"{text} (exit {int(code)})")
    return code
