"""`reconcile get`: one kind of thing in detail: endpoints, restart requests, names with the health of what is behind them, health checks,
revisions.

Reads what the last run or the running process has stored; asks no provider.
"""

import json
from pathlib import Path
from typing import Any

import click

from reconciler.cli.inbox import refreshed
from reconciler.cli.objects import read_ledger
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.render.requests import request_json, request_lines
from reconciler.cli.status import nothing_yet
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc

ENDPOINTS, REQUESTS, RECORDS, CHECKS = "endpoints", "requests", "records", "healthchecks"
REVISIONS = "revisions"


@click.command(
    epilog="""\b
endpoints: the weight of every endpoint, and what decided it: orders, pushes, probes.
requests: the restart requests that are open, and those that ended within the last hour.
records: each address behind a name: healthy or not, why, and whether it is published; plain records.
healthchecks: what each HealthCheck document says, and about which targets it decides.
revisions: every revision of every workload: its health, times, endpoints, image, and what comes next.

\b
Exit codes: 0 shown, 6 nothing has run yet.

\b
Examples:
  reconcile get endpoints manifests/
  reconcile get endpoints manifests/ -o json | jq '.endpoints[] | select(.weight == 0)'
  reconcile get requests manifests/
  reconcile get records manifests/
  reconcile get records --instance-id my-host -o json | jq '.names[].leaves[] | select(.healthy == false)'
  reconcile get healthchecks manifests/
  reconcile get revisions manifests/
""",
)
@click.argument("what", type=click.Choice([ENDPOINTS, REQUESTS, RECORDS, CHECKS, REVISIONS]))
@path_optional
@target_options
@common_options
def get(what: str, path: Path | None, instance_id: str, **raw: Any) -> Exit:
    """Show all things of one kind (WHAT: endpoints, requests, records, healthchecks or revisions) in detail."""
    options = Options.of(raw)
    place = find(path, options, instance_id)
    if not place.used:
        return nothing_yet(place.unused, options.view)
    return _requests(place, options) if what == REQUESTS else _stored(what, place, options)


def _requests(place: Place, options: Options) -> Exit:
    with joined(place) as store:
        requests = read_ledger(store.load_ledger()).requests
    if options.view.json:
        found = [request_json(name, one) for name, one in sorted(requests.items())]
        options.view.document({"exit_code": 0, "requests": found})
    else:
        options.view.out("\n".join(request_lines(requests, options.view.paint, SystemClock().now().wall)))
    return Exit.OK


def _stored(what: str, place: Place, options: Options) -> Exit:
    """Endpoints, names, checks or revisions, as the present process has them, or else as the last one left them."""
    view = options.view
    live = refreshed(place)
    with joined(place) as store:
        last = store.last_decision()
    if last is None:
        return nothing_yet(f"{place.name}: no run has decided anything yet; run: reconcile --once PATH", view)
    from reconciler.cli.render.endpoints import endpoint_lines  # noqa: PLC0415  (only now there is something)
    from reconciler.cli.render.records import age_line, check_json, check_lines, name_json, record_lines  # noqa: PLC0415
    from reconciler.cli.render.revisions import revision_lines  # noqa: PLC0415
    from reconciler.shell.report.last_decision import revisions_json  # noqa: PLC0415

    stored = json.loads(last.text)
    at, now = stored.get("at_wall", last.wall), SystemClock().now().wall
    status, paint = stored["status"], view.paint
    found: dict[str, Any]
    if what == ENDPOINTS:
        rows = status.get("endpoints", ())
        found, lines = {"endpoints": rows}, endpoint_lines(rows, paint, now)
    elif what == REVISIONS:
        found = {"revisions": revisions_json(stored)["revisions"]}
        lines = revision_lines(status.get("revisions", ()), paint, now)
    elif what == CHECKS:
        checks = status.get("checks", ())
        found, lines = {"healthchecks": [check_json(check) for check in checks]}, check_lines(checks, paint, now)
    else:
        names, records, lists = status["names"], status.get("records", ()), status.get("lists", ())
        found = {"names": [name_json(name) for name in names], "records": records, "lists": lists}
        lines = record_lines(names, records, paint, now, lists)
    if view.json:
        view.document({"exit_code": 0, "as_of": utc(at).isoformat(), "live": live, **found})
    else:
        view.out("\n".join([*lines, *([] if live else ["", age_line(at, now)])]))
    return Exit.OK
