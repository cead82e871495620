"""`reconcile explain KEY`: explains the state of one object, from the store. Asks no provider; works beside a daemon."""

import json
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.inbox import refreshed
from reconciler.cli.objects import key_of, known_objects, read_ledger, unknown_object
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.status import no_decision, report_no_state
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit

if TYPE_CHECKING:
    from reconciler.tree import Given

ENTRIES = 1_000
"""How many of the latest entries of the journal and the audit are searched."""

EVIDENCE = 3
"""How many of the latest pieces of evidence are shown."""

SHOWN = 5
"""How many of the latest entries about the object are shown."""


@click.command(
    epilog="""\b
KEY is workload/web, workload/web/0 (one replica), service/web, dnspolicy/app, an endpoint as
in 'reconcile get endpoints' (endpoint/PROVIDER/POOL/ADDRESS:PORT), or any other object in
the output of status or plan, such as provider/local.

\b
Exit codes: 0 explained, 6 the instance has never run, 64 no object is named KEY.

\b
Examples:
  reconcile explain workload/web manifests/
  reconcile explain workload/web/0 --instance-id my-host
""",
)
@click.argument("key")
@path_optional
@target_options
@common_options
def explain(key: str, path: "Given | None", instance_id: str, **raw: Any) -> Exit:
    """Explain the state of KEY: its probes, held actions with their rules, retries, and its last steps and events."""
    options = Options.of(raw)
    place, key = find(path, options, instance_id), key_of(key)
    if not place.has_run:
        return report_no_state(place.never_run, options.view)
    refreshed(place)
    with joined(place) as store:
        last, rows = store.last_decision(), store.load_ledger()
        journal, audit, queued = store.entries(ENTRIES), store.audit_rows(ENTRIES), store.pending()
        evidence = store.evidence(key, EVIDENCE)
    if last is None:
        return report_no_state(no_decision(place), options.view)
    known = known_objects(place)
    if key not in known.all:
        raise unknown_object(key, known)
    from reconciler.cli.events import event_text  # noqa: PLC0415  (only with something to show)
    from reconciler.cli.render.explain import explain_lines, explanation  # noqa: PLC0415
    from reconciler.cli.render.why import evidence_json, why  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415
    from reconciler.shell.report.origins import as_json  # noqa: PLC0415

    now = SystemClock().now()
    stored = json.loads(last.text)
    about = explanation(key, stored, read_ledger(rows), place.desired)
    about["since_wall"] = stored.get("since_wall", last.wall)
    about["evidence"] = evidence_json(evidence)
    for replica in about["replicas"]:
        holds = [hold for hold in about["holds"] if hold["object"] == replica["replica"]]
        replica["why"] = why(replica, holds, now.wall)
    about["commands_waiting"] = [
        {"command": row.command, "who": row.who, **json.loads(row.payload)}
        for row in queued
        if json.loads(row.payload).get("object") in {key, key.rpartition("/")[0], "*"}
    ]
    about["journal"] = [
        {
            "begun_wall": entry.begun.wall,
            "action": entry.action,
            "cause": entry.cause,
            "outcome": entry.outcome or "open",
            "detail": entry.detail,
            **as_json(entry.origin),
        }
        for entry in [entry for entry in journal if _about(key, entry.object)][-SHOWN:]
    ]
    steps = about["step_ids"]
    about["audit"] = [
        {"time_wall": row.wall, "kind": row.kind, "actor": row.actor, "step": row.step, "cause": row.cause}
        | {"outcome": row.outcome, "message": row.message, "text": event_text(row), **as_json(row.origin)}
        for row in [row for row in audit if _about(key, row.object) or any(name in row.step for name in steps)][-SHOWN:]
    ]
    if options.view.json:
        options.view.document({"exit_code": 0, **about})
    else:
        options.view.out(*explain_lines(about, options.view.paint, now.wall))
    return Exit.OK


def _about(key: str, other: str) -> bool:
    return other == key or other.startswith(f"{key}/")
