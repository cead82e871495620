"""Endpoints as text and as JSON: the table of `reconcile get endpoints`, and why one of them weighs what it weighs.

Rows come from the stored decision; an older version has stored none. Used by `get` and `explain`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, short
from reconciler.core.actions.steps import WHY_WEIGHT
from reconciler.core.model.reasons import Reason

Row = Mapping[str, Any]

WORDS = {reason.value: text for reason, text in WHY_WEIGHT.items()} | {
    Reason.READINESS_UNKNOWN.value: "its readiness is not known, so nothing changes",
    Reason.STARTING.value: "its startup probe has not passed yet",
    Reason.PUSH_CHANNEL_SUSPECT.value: "most senders fell silent together, so silence changes nothing",
}
"""What the reasons mean."""


def endpoint_lines(rows: Sequence[Row], paint: Paint, now: int) -> list[str]:
    """The table of endpoints. `now` is the wall clock (ns)."""
    if not rows:
        return ["no endpoints"]
    head = ["ENDPOINT", "REPLICA", "STATE", "WEIGHT", "REASON", "PUSH", "PROBES", "IN FLIGHT", "BALANCER"]
    cells = [
        [
            row["key"],
            row["replica"].partition("/")[2] or "-",
            row["state"],
            _weight(row),
            row["reason"],
            _push(row["push"], now),
            _observer(row["observer"], now),
            "-" if row["in_flight"] is None else str(row["in_flight"]),
            row["operational"] or "-",
        ]
        for row in rows
    ]
    lines = table(head, cells, paint, frozenset({"STATE"}))
    orders = [f"{paint.warn(row['key'])}: {_override(row['override'], now)}" for row in rows if row["override"]]
    return [*lines, *(["", *orders] if orders else [])]


def why_lines(row: Row, paint: Paint, now: int) -> list[str]:
    """Why one endpoint weighs what it weighs: the answer, then each thing that it depends on."""
    lines = [
        weight_line(row, paint),
        f"  replica    {_replica(row)}",
        f"  decided by {row['by']}",
        f"  override   {_override(row['override'], now) if row['override'] else 'none'}",
        f"  push       {_push(row['push'], now)}",
        f"  probes     {_observer(row['observer'], now)}",
        f"  pool       {_pool(row, now)}",
        f"  in flight  {'not known' if row['in_flight'] is None else row['in_flight']}",
        f"  balancer   {row['operational'] or 'has no checks of its own'}",
    ]
    return [*lines, f"  {paint.bad('writer')}     {row['writer']} writes its weight, too"] if row["writer"] else lines


def weight_line(row: Row, paint: Paint) -> str:
    """The answer in one line: state, weight, and the reason for it."""
    return f"{paint.word(row['state'])}, weight {_weight(row)}: {row['reason']}{_sentence(row)}"


def _replica(row: Row) -> str:
    if not row["replica"]:
        return f"none; {row['container'] or 'what was there'} is gone"
    return f"{row['replica']} as {row['container']} on {row['node']}: {row['runtime']}"


def _sentence(row: Row) -> str:
    found = WORDS.get(row["reason"], "")
    overruled = ", against the probes" if row["overruled"] else ""
    return f" ({found}{overruled})" if found else ""


def _weight(row: Row) -> str:
    now, wanted = row["weight"], row["wanted"]
    shown = ("absent" if row["readable"] else "unknown") if now is None else str(now)
    return shown if wanted is None or wanted == (now or 0) else f"{shown} -> {wanted}"


def _push(push: Row | None, now: int) -> str:
    if push is None:
        return "-"
    flying = "" if push["inflight"] is None else f", {push['inflight']} in flight"
    return f"{push['event']}, {ago(push['at_wall'], now)}{flying}"


def _observer(observer: Row, now: int) -> str:
    checked = observer["checked_wall"]
    detail = f" ({observer['detail']})" if observer["detail"] and observer["ready"] == "fail" else ""
    return f"{observer['ready']}{detail}" + ("" if checked is None else f", {ago(checked, now)}")


def _override(override: Row, now: int) -> str:
    end = (
        "until it is released" if override["until_wall"] is None else f"for {short(override['until_wall'] - now)} more"
    )
    given = f"{override['force']} by {override['who'] or 'somebody'} {ago(override['at_wall'], now)}"
    return f"{given}, {end}: {override['reason'] or 'no reason given'}"


def _pool(row: Row, now: int) -> str:
    where = f"{row['provider']}/{row['pool']} of {row['service']}"
    return where if row["panic_since_wall"] is None else f"{where}, in panic since {ago(row['panic_since_wall'], now)}"
