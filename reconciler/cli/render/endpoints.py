"""Endpoints as text: the table of `reconcile get endpoints`, and the explanation of one weight.

Rows come from the stored decision; an older version stored none. Used by `cli/get.py` and `render/explain.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, short
from reconciler.core.actions.steps import WHY_WEIGHT
from reconciler.core.model.reasons import Reason

Row = Mapping[str, Any]

REASONS = {reason.value: text for reason, text in WHY_WEIGHT.items()} | {
    Reason.READINESS_UNKNOWN.value: "its readiness is unknown, so its weight is kept",
    Reason.STARTING.value: "its startup probe has not passed yet",
    Reason.PUSH_CHANNEL_SUSPECT.value: "most replicas stopped pushing at the same time, so its weight is kept",
}
"""The reasons of weights in words."""


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
    overrides = [f"{paint.warn(row['key'])}: {_override(row['override'], now)}" for row in rows if row["override"]]
    return [*lines, *(["", *overrides] if overrides else [])]


def why_lines(row: Row, paint: Paint, now: int) -> list[str]:
    """The explanation of one weight: the reason, then each fact that it depends on."""
    lines = [
        weight_line(row, paint),
        f"  replica    {_replica(row)}",
        f"  decided by {row['by']}",
        f"  override   {_override(row['override'], now) if row['override'] else 'none'}",
        f"  push       {_push(row['push'], now)}",
        f"  probes     {_observer(row['observer'], now)}",
        f"  pool       {_pool(row, now)}",
        f"  in flight  {'unknown' if row['in_flight'] is None else row['in_flight']}",
        f"  balancer   {row['operational'] or 'no checks of its own'}",
    ]
    return [*lines, f"  {paint.bad('writer')}     {row['writer']} also writes its weight"] if row["writer"] else lines


def weight_line(row: Row, paint: Paint) -> str:
    """State, weight and reason of one endpoint in one line."""
    return f"{paint.state(row['state'])}, weight {_weight(row)}: {row['reason']}{_sentence(row)}"


def _replica(row: Row) -> str:
    if not row["replica"]:
        return f"none: container {row['container']} is gone" if row["container"] else "none: its container is gone"
    return f"{row['replica']} as {row['container']} on {row['node']}: {row['runtime']}"


def _sentence(row: Row) -> str:
    reason = REASONS.get(row["reason"], "")
    overruled = "; its probes disagree" if row["overruled"] else ""
    return f" ({reason}{overruled})" if reason else ""


def _weight(row: Row) -> str:
    now, wanted = row["weight"], row["wanted"]
    shown = ("absent" if row["readable"] else "unknown") if now is None else str(now)
    return shown if wanted is None or wanted == (now or 0) else f"{shown} -> {wanted}"


def _push(push: Row | None, now: int) -> str:
    if push is None:
        return "-"
    in_flight = "" if push["inflight"] is None else f", {push['inflight']} in flight"
    return f"{push['event']}, {ago(push['at_wall'], now)}{in_flight}"


def _observer(observer: Row, now: int) -> str:
    checked = observer["checked_wall"]
    detail = f" ({observer['detail']})" if observer["detail"] and observer["ready"] == "fail" else ""
    return f"{observer['ready']}{detail}" + ("" if checked is None else f", {ago(checked, now)}")


def _override(override: Row, now: int) -> str:
    end = (
        "until it is released" if override["until_wall"] is None else f"for {short(override['until_wall'] - now)} more"
    )
    given = f"{override['force']} by {override['who'] or 'an unknown user'} {ago(override['at_wall'], now)}"
    return f"{given}, {end}: {override['reason'] or 'no reason given'}"


def _pool(row: Row, now: int) -> str:
    where = f"{row['provider']}/{row['pool']} of {row['service']}"
    return where if row["panic_since_wall"] is None else f"{where}, in panic for {short(now - row['panic_since_wall'])}"
