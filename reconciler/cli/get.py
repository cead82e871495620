"""`reconcile get`: lists endpoints, restart requests, DNS records with the health behind them, health checks, or revisions.

Reads what the last run or the running process has stored; asks no provider.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.inbox import refreshed
from reconciler.cli.objects import read_ledger
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.render.requests import request_json, request_lines
from reconciler.cli.status import no_decision, report_no_state
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock

if TYPE_CHECKING:
    from reconciler.tree import Given

ENDPOINTS, REQUESTS, RECORDS, CHECKS = "endpoints", "requests", "records", "healthchecks"
REVISIONS = "revisions"


@click.command(
    epilog="""\b
endpoints: the weight of every endpoint, and what decided it: override, push or probes.
requests: restart requests that are open, or ended within the last hour.
records: every address behind a DNSPolicy, with its health and whether it is published;
  the records of Record and RecordList.
healthchecks: the result of every HealthCheck, and the targets that depend on it.
revisions: every revision of every workload, with its health, times, endpoints and image.

\b
Exit codes: 0 shown, 6 the instance has never run.

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
def get(what: str, path: "Given | None", instance_id: str, **raw: Any) -> Exit:
    """List all objects of one kind: endpoints, requests, records, healthchecks or revisions."""
    options = Options.of(raw)
    place = find(path, options, instance_id)
    if not place.has_run:
        return report_no_state(place.never_run, options.view)
    return _requests(place, options) if what == REQUESTS else _stored(what, place, options)


def _requests(place: Place, options: Options) -> Exit:
    with joined(place) as store:
        requests = read_ledger(store.load_ledger()).requests
    if options.view.json:
        rows = [request_json(name, request) for name, request in sorted(requests.items())]
        options.view.document({"exit_code": 0, "requests": rows})
    else:
        options.view.out(*request_lines(requests, options.view.paint, SystemClock().now().wall))
    return Exit.OK


def _stored(what: str, place: Place, options: Options) -> Exit:
    """Endpoints, records, health checks or revisions, as a running process has them, else as the last run stored them."""
    view = options.view
    live = refreshed(place)
    with joined(place) as store:
        last = store.last_decision()
    if last is None:
        return report_no_state(no_decision(place), view)
    from reconciler.cli.render.endpoints import endpoint_lines  # noqa: PLC0415  (only with something to show)
    from reconciler.cli.render.records import check_lines, record_lines  # noqa: PLC0415
    from reconciler.cli.render.revisions import revision_lines  # noqa: PLC0415
    from reconciler.cli.render.times import age_text  # noqa: PLC0415

    stored = json.loads(last.text)
    at, now = stored.get("at_wall", last.wall), SystemClock().now().wall
    status, paint = stored["status"], view.paint
    document: dict[str, Any]
    if what == ENDPOINTS:
        rows = status.get("endpoints", ())
        document, lines = {"endpoints": rows}, endpoint_lines(rows, paint, now)
    elif what == REVISIONS:
        rows = status.get("revisions", ())
        document, lines = {"revisions": rows}, revision_lines(rows, paint, now)
    elif what == CHECKS:
        checks = status.get("checks", ())
        document, lines = {"healthchecks": checks}, check_lines(checks, paint, now)
    else:
        names, records, lists = status["names"], status.get("records", ()), status.get("lists", ())
        document = {"names": names, "records": records, "lists": lists}
        lines = record_lines(names, records, paint, now, lists)
    if view.json:
        view.document({"exit_code": 0, "as_of_wall": at, "live": live, **document})
    else:
        view.out(*lines, *([] if live else ["", age_text(at, now)]))
    return Exit.OK
