"""`reconcile events`: shows the audit in the store: steps, holds, verdicts, restart requests, evidence."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from manifests.values.desired import SECOND
from reconciler.cli.objects import key_of, known_objects, meant
from reconciler.cli.options import Options, When, WhenType, common_options, target_options, usage_error
from reconciler.cli.status import report_no_state
from reconciler.cli.view import View
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc
from reconciler.shell.report.origins import as_json, read
from reconciler.shell.store.state_db import AuditRow

if TYPE_CHECKING:
    from reconciler.tree import Given

ASK_EVERY = SECOND // 2
"""How often `--follow` reads new events (ns)."""

SINCE = When(ago=3600 * SECOND)
"""How far back events are shown by default."""


ENDLESS = 2**63 - 1
"""The end without `--until` (ns)."""

LATE = SECOND // 2
"""How long after its time an event may be stored (ns): `--follow --until` waits for it."""


@click.command(
    epilog="""\b
Kinds: step (a call and its outcome), held and released (an action and the rule that held
it), suspended and resumed (by the operator), verdict (a probe verdict that changed, and
what followed from it), exit (a container ended, or a process of it was killed at the
memory limit), request (restart requests), evidence (saved of an end, or before a restart;
see explain), adoption (a container became a replica), manifests (another revision is in
force).
With --follow and -o json each line is one JSON object. commit and where say which
manifests were in force and where they declare the object, fields what caused a step.

\b
TIME is a time of RFC 3339 with its offset, or a duration: so long ago.

\b
Exit codes: 0 shown, 6 the instance has never run.

\b
Examples:
  reconcile events manifests/ --since 24h
  reconcile events manifests/ --since 2030-01-31T22:00:00Z --until 2030-01-31T22:30:00Z
  reconcile events --instance-id my-host --object workload/web --follow
  reconcile events manifests/ -o json | jq '.events[] | select(.kind == "held")'
""",
)
@path_optional
@click.option("--follow", is_flag=True, help="Keep showing new events until interrupted.")
@click.option(
    "--since", type=WhenType(), default=SINCE, metavar="TIME", help="Show no earlier events; default 1h: an hour ago."
)
@click.option("--until", type=WhenType(), metavar="TIME", help="Show no later events; with --follow, end at that time.")
@click.option("--object", "key", metavar="KEY", default="", help="Show only events of this object and its parts.")
@target_options
@common_options
def events(
    path: "Given | None", follow: bool, since: When, until: When | None, key: str, instance_id: str, **raw: Any
) -> Exit:
    """Show recent events, oldest first."""
    options = Options.of(raw)
    clock, key = SystemClock(), key_of(key)
    now = clock.now().wall
    begin, end = since.at(now), ENDLESS if until is None else until.at(now)
    if begin > end:
        raise usage_error("--since is later than --until", "give the earlier time to --since")
    view = options.view
    place = find(path, options, instance_id)
    if not place.has_run:
        return report_no_state(place.never_run, view)
    with joined(place) as store:
        rows = store.audit_since(wall=begin)
        shown = _about(key, end, rows)
        if not follow:
            if view.json:
                view.document({"exit_code": 0, "events": [_json(row) for row in shown]})
            else:
                view.out(*([_line(row, view) for row in shown] or [_nothing(key, place)]))
            return Exit.OK
        last = rows[-1][0] if rows else store.audit_last()
        with _recorded(signal.SIGINT) as interrupts:
            while not interrupts:
                for row in shown:
                    view.record(_json(row)) if view.json else view.out(_line(row, view))
                left = end - clock.now().wall
                if left <= -LATE:
                    return Exit.OK
                clock.pause(min(ASK_EVERY, max(left, 0) + LATE))
                rows = store.audit_since(after=last)
                last = rows[-1][0] if rows else last
                shown = _about(key, end, rows)
        raise KeyboardInterrupt


def _nothing(key: str, place: Place) -> str:
    """The text for no events; it names the object that was meant when none has that name."""
    text = "no events in that time"
    known = known_objects(place)
    return f"{text}; no object is named '{key}'; {meant(key, known)}" if key and key not in known.all else text


@contextmanager
def _recorded(number: signal.Signals) -> Iterator[list[int]]:
    """Record a signal instead of raising at once: an exception inside a callback would be dropped, and the signal with it."""
    received: list[int] = []
    before = signal.signal(number, lambda signum, _frame: received.append(signum))
    try:
        yield received
    finally:
        signal.signal(number, before)


def _about(key: str, end: int, rows: Iterable[tuple[int, AuditRow]]) -> list[AuditRow]:
    """The rows about an object and its parts, up to this wall-clock instant (ns)."""
    return [
        row for _, row in rows if row.wall <= end and (not key or row.object == key or row.object.startswith(f"{key}/"))
    ]


def event_text(row: AuditRow) -> str:
    """One event without its time and object."""
    message = f": {row.message}" if row.message else ""
    outcome = f": {row.outcome}" if row.outcome else ""
    if row.kind == "verdict":
        return f"{row.step} {row.cause} ({row.message}): {row.outcome}"
    origin = read(row.origin).text
    return f"{row.step} ({row.cause}{message}){outcome}{f'; {origin}' if origin else ''}"


def _line(row: AuditRow, view: View) -> str:
    when = f"{utc(row.wall):%Y-%m-%d %H:%M:%S}Z"
    return f"{view.paint.dim(when)}  {row.kind.ljust(8)}  {row.object or '-'}  {event_text(row)}"


def _json(row: AuditRow) -> dict[str, Any]:
    return {
        "time_wall": row.wall,
        "kind": row.kind,
        "object": row.object or None,
        "step": row.step,
        "cause": row.cause,
        "outcome": row.outcome or None,
        "message": row.message or None,
        "actor": row.actor,
        "revision": row.revision or None,
        **as_json(row.origin),
    }
