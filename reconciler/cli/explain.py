"""`reconcile explain KEY`: why one object is as it is, from what is kept. Asks no provider; works beside a daemon."""

import json
from pathlib import Path
from typing import Any

import click

from reconciler.cli.objects import known_objects, no_such, read_ledger
from reconciler.cli.options import Options, common_options, target_options
from reconciler.cli.status import nothing_yet
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit

ENTRIES = 1_000
"""How far back the journal and the audit are searched (entries)."""

SHOWN = 5
"""How many of the latest entries about the object are shown."""


@click.command(
    epilog="""\b
KEY is workload/web, workload/web/0 (one replica), service/web, dnspolicy/app,
or any other object that status or a plan speaks of, such as provider/local.

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
    place = find(path, options, instance_id)
    if not place.used:
        return nothing_yet(place.unused, options.view)
    with joined(place) as store:
        last, rows = store.last_decision(), store.load_ledger()
        journal, audit, waiting = store.entries(ENTRIES), store.audit_rows(ENTRIES), store.pending()
    if last is None:
        return nothing_yet(f"{place.name}: no run has decided anything yet", options.view)
    known = known_objects(place)
    if key not in known.all:
        raise no_such(key, known)
    from reconciler.cli.render.explain import explain_text, explanation  # noqa: PLC0415  (only now there is something)
    from reconciler.shell.clock import SystemClock  # noqa: PLC0415

    now = SystemClock().now()
    about = explanation(key, json.loads(last.text), read_ledger(rows), place.desired)
    about["since_wall"] = last.wall
    about["commands_waiting"] = [
        {"command": one.command, "who": one.who, **json.loads(one.payload)}
        for one in waiting
        if json.loads(one.payload).get("object") in {key, key.rpartition("/")[0], "*"}
    ]
    mine = [one for one in journal if _about(key, one.object)][-SHOWN:]
    about["journal"] = [
        {
            "begun_wall": one.begun.wall,
            "action": one.action,
            "cause": one.cause,
            "outcome": one.outcome or "open",
            "detail": one.detail,
        }
        for one in mine
    ]
    steps = about["step_ids"]
    about["audit"] = [
        {"wall": one.wall, "actor": one.actor, "step": one.step, "cause": one.cause, "outcome": one.outcome}
        for one in [row for row in audit if any(name in row.step for name in steps)][-SHOWN:]
    ]
    if options.view.json:
        options.view.document({"exit_code": 0, **about})
    else:
        options.view.out(explain_text(about, options.view.paint, now.wall))
    return Exit.OK


def _about(key: str, other: str) -> bool:
    return other == key or other.startswith(f"{key}/")
