"""`reconcile explain KEY`: why one object is as it is, from what is kept. Asks no provider; works beside a daemon."""

import json
from pathlib import Path
from typing import Any

import click

from reconciler.cli.inbox import refreshed
from reconciler.cli.objects import key_of, known_objects, no_such, read_ledger
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.status import nothing_yet
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit

ENTRIES = 1_000
"""How far back the journal and the audit are searched (entries)."""

EVIDENCE = 3
"""How many of the latest pieces of evidence are shown."""

SHOWN = 5
"""How many of the latest entries about the object are shown."""


@click.command(
    epilog="""\b
KEY is workload/web, workload/web/0 (one replica), service/web, dnspolicy/app, an endpoint as
'reconcile get endpoints' names it (endpoint/PROVIDER/POOL/ADDRESS:PORT: why is its weight
what it is?), or any other object that status or a plan speaks of, such as provider/local.

\b
Exit codes: 0 explained, 6 nothing has run yet, 64 there is no such object.

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
def explain(key: str, path: Path | None, instance_id: str, **raw: Any) -> Exit:
    """Say why KEY is as it is: state, probes, what is held by which rule, next tries, and what was done last."""
    options = Options.of(raw)
    place, key = find(path, options, instance_id), key_of(key)
    if not place.used:
        return nothing_yet(place.unused, options.view)
    refreshed(place)
    with joined(place) as store:
        last, rows = store.last_decision(), store.load_ledger()
        journal, audit, waiting = store.entries(ENTRIES), store.audit_rows(ENTRIES), store.pending()
        evidence = store.evidence(key, EVIDENCE)
    if last is None:
        return nothing_yet(f"{place.name}: no run has decided anything yet", options.view)
    known = known_objects(place)
    if key not in known.all:
        raise no_such(key, known)
    from reconciler.cli.events import event_text  # noqa: PLC0415  (only now there is something)
    from reconciler.cli.render.explain import explain_text, explanation  # noqa: PLC0415
    from reconciler.cli.render.why import evidence_json, why  # noqa: PLC0415
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415

    now = SystemClock().now()
    stored = json.loads(last.text)
    about = explanation(key, stored, read_ledger(rows), place.desired)
    about["since_wall"] = stored.get("since_wall", last.wall)
    about["evidence"] = evidence_json(evidence)
    for one in about["replicas"]:
        mine = [hold for hold in about["holds"] if hold["object"] == one["replica"]]
        one["why"] = why(one, mine, now.wall)
    about["commands_waiting"] = [
        {"command": one.command, "who": one.who, **json.loads(one.payload)}
        for one in waiting
        if json.loads(one.payload).get("object") in {key, key.rpartition("/")[0], "*"}
    ]
    about["journal"] = [
        {
            "begun_wall": one.begun.wall,
            "action": one.action,
            "cause": one.cause,
            "outcome": one.outcome or "open",
            "detail": one.detail,
        }
        for one in [entry for entry in journal if _about(key, entry.object)][-SHOWN:]
    ]
    steps = about["step_ids"]
    about["audit"] = [
        {"wall": one.wall, "kind": one.kind, "actor": one.actor, "step": one.step, "cause": one.cause}
        | {"outcome": one.outcome, "message": one.message, "text": event_text(one)}
        for one in [row for row in audit if _about(key, row.object) or any(name in row.step for name in steps)][-SHOWN:]
    ]
    if options.view.json:
        options.view.document({"exit_code": 0, **about})
    else:
        options.view.out(explain_text(about, options.view.paint, now.wall))
    return Exit.OK


def _about(key: str, other: str) -> bool:
    return other == key or other.startswith(f"{key}/")
