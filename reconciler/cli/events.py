"""`reconcile events`: what happened, from the audit in the store: steps, holds, verdicts, restart requests, evidence."""

import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.options import DurationType, Options, common_options, target_options
from reconciler.cli.status import nothing_yet
from reconciler.cli.view import View
from reconciler.cli.where import find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc
from reconciler.shell.store.state_db import AuditRow

ASK_EVERY = SECOND // 2
"""How often `--follow` looks for more (ns)."""

SINCE = 3600 * SECOND
"""How far back events are shown when nothing else is said (ns)."""


@click.command(
    epilog="""\b
Kinds: step (a call and its outcome), held and released (what is held back, by which
rule), suspended and resumed (words of people), verdict (a probe verdict that changed,
and whether it was acted on), request (restart requests), evidence (kept of a replica
before its restart: see explain), adoption (who became a replica).
With --follow and -o json each line is one JSON object.

\b
Exit codes: 0 shown, 6 nothing has run yet.

\b
Examples:
  reconcile events manifests/ --since 24h
  reconcile events --instance-id my-host --object workload/web --follow
  reconcile events manifests/ -o json | jq '.events[] | select(.kind == "held")'
""",
)
@path_optional
@click.option("--follow", is_flag=True, help="Go on showing what happens, until interrupted.")
@click.option("--since", type=DurationType(), default=SINCE, metavar="DURATION", help="How far back; default 1h.")
@click.option("--object", "key", metavar="KEY", default="", help="Only what is about this object or a part of it.")
@target_options
@common_options
def events(path: Path | None, follow: bool, since: int, key: str, instance_id: str, **raw: Any) -> Exit:
    """Show what happened lately, oldest first."""
    options = Options.of(raw)
    view = options.view
    place = find(path, options, instance_id)
    if not place.used:
        return nothing_yet(place.unused, view)
    clock, key = SystemClock(), key.lower()
    with joined(place) as store:
        rows = store.audit_since(wall=clock.now().wall - since)
        shown = _about(key, rows)
        if not follow:
            if view.json:
                view.document({"exit_code": 0, "events": [_json(one) for one in shown]})
            else:
                view.out("\n".join(_line(one, view) for one in shown) or "nothing happened in that time")
            return Exit.OK
        last = rows[-1][0] if rows else store.audit_last()
        with _noted(signal.SIGINT) as interrupts:
            while not interrupts:
                for one in shown:
                    view.out(json.dumps(_json(one), ensure_ascii=False) if view.json else _line(one, view))
                clock.pause(ASK_EVERY)
                rows = store.audit_since(after=last)
                last = rows[-1][0] if rows else last
                shown = _about(key, rows)
        raise KeyboardInterrupt


@contextmanager
def _noted(number: signal.Signals) -> Iterator[list[int]]:
    """Note a signal instead of raising at once: an exception in the middle of a callback would be dropped, and the signal lost."""
    came: list[int] = []
    before = signal.signal(number, lambda got, _frame: came.append(got))
    try:
        yield came
    finally:
        signal.signal(number, before)


def _about(key: str, rows: Iterable[tuple[int, AuditRow]]) -> list[AuditRow]:
    return [row for _, row in rows if not key or row.object == key or row.object.startswith(f"{key}/")]


def event_text(row: AuditRow) -> str:
    """What happened, without when and to whom."""
    message = f": {row.message}" if row.message else ""
    outcome = f": {row.outcome}" if row.outcome else ""
    if row.kind == "verdict":
        return f"{row.step} {row.cause} ({row.message}): {row.outcome}"
    return f"{row.step} ({row.cause}{message}){outcome}"


def _line(row: AuditRow, view: View) -> str:
    when = f"{utc(row.wall):%Y-%m-%d %H:%M:%S}Z"
    return f"{view.paint.dim(when)}  {row.kind.ljust(8)}  {row.object or '-'}  {event_text(row)}"


def _json(row: AuditRow) -> dict[str, Any]:
    return {
        "time": utc(row.wall).isoformat(),
        "wall": row.wall,
        "kind": row.kind,
        "object": row.object or None,
        "step": row.step,
        "cause": row.cause,
        "outcome": row.outcome or None,
        "message": row.message or None,
        "actor": row.actor,
        "revision": row.revision or None,
    }
