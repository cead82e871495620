"""The stored decision as text: workloads with their replicas, names, what is held and what is waited for.

Used by `status`, and by the commands that converge for the state they end in. The value is the JSON document that the loop
stores with every decision that differs from the one before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, ahead, short
from reconciler.core.status.objects import HEALTHY, Condition

Stored = Mapping[str, Any]
"""One stored decision."""


def probe_text(probe: Mapping[str, Any] | None, now: int) -> str:
    """A probe of a replica in a cell: `pass 3/3, 4s ago`; `-` when there is no such probe, or no result yet."""
    if not probe:
        return "-"
    return f"{probe['verdict']} {probe['streak']}, {ago(probe['checked_wall'], now)}"


def _started(probes: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What stands in the column of liveness: the startup probe until it passed."""
    startup = probes.get("startup")
    return startup if startup and startup["verdict"] != "pass" else probes.get("liveness")


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def workload_lines(workloads: Sequence[Mapping[str, Any]], paint: Paint, now: int) -> list[str]:
    """The tables of workloads and of their replicas. `now` is the wall clock (ns)."""
    if not workloads:
        return ["no workloads"]
    rows = [
        [
            workload["key"].partition("/")[2],
            f"{workload['available']}/{workload['wanted']}",
            workload["condition"],
            f"{workload['number']} ({workload['revision'][:8]})" if workload["number"] else workload["revision"][:8],
        ]
        for workload in workloads
    ]
    lines = table(["WORKLOAD", "READY", "CONDITION", "REVISION"], rows, paint, frozenset({"CONDITION"}))
    replicas = [
        [
            replica["replica"].partition("/")[2] + ("" if replica["role"] == "current" else f" ({replica['role']})"),
            replica["state"],
            replica["reason"],
            replica["runtime"],
            _cell(replica["address"]),
            _cell(replica["weight"]),
            probe_text(_started(replica["probes"]), now),
            probe_text(replica["probes"].get("readiness"), now),
        ]
        for workload in workloads
        for replica in workload["replicas"]
    ]
    replicas += [
        [name, "missing", "-", "-", "-", "-", "-", "-"]
        for workload in workloads
        for name in workload["missing"]
        if not workload["unknown"]
    ]
    if replicas:
        head = ["REPLICA", "STATE", "REASON", "RUNTIME", "ADDRESS", "WEIGHT", "LIVENESS", "READINESS"]
        lines += ["", *table(head, replicas, paint, frozenset({"STATE", "RUNTIME"}))]
    return lines


def name_lines(names: Sequence[Mapping[str, Any]], paint: Paint) -> list[str]:
    """The table of published names."""
    if not names:
        return []
    rows = []
    for name in names:
        published = name["published"]
        shown = "cannot be read" if published is None else ", ".join(published) or "nothing"
        rows.append([name["key"].partition("/")[2], name["host"], shown])
    return ["", *table(["NAME", "HOST", "PUBLISHED"], rows, paint, frozenset())]


def held_line(hold: Mapping[str, Any], paint: Paint, now: int) -> str:
    """One hold: what is not done, by which rule, and the next try or what a person can do."""
    parts = [f"{paint.warn('held')}     {hold['object']}: {hold['action']} ({hold['rule']}: {hold['message']})"]
    if hold["until_wall"] is not None:
        parts.append(f"next try {ahead(hold['until_wall'], now)}")
    if hold["next_step"]:
        parts.append(f"to end it: {hold['next_step']}")
    return "; ".join(parts)


def wait_line(wait: Mapping[str, Any], paint: Paint, now: int) -> str:
    """One wait: what progress waits for, and when that ends by itself where a clock ends it."""
    tail = "" if wait["until_wall"] is None else f"; until {ahead(wait['until_wall'], now)}"
    return f"{paint.dim('waiting')}  {wait['object']}: for {wait['waiting']} ({wait['message']}){tail}"


def progress_lines(stored: Stored, paint: Paint, now: int) -> list[str]:
    """What is due, held and waited for. `now` is the wall clock (ns)."""
    lines = [
        f"{paint.bold('due')}      {one['object']}: {one['action']} ({one['cause']}: {one['message']})"
        for one in stored["steps"]
    ]
    lines += [held_line(one, paint, now) for one in stored["holds"]]
    lines += [wait_line(one, paint, now) for one in stored["waits"]]
    if stored["approve"]:
        lines.append(f"to approve the held deletions: reconcile apply PATH --approve {stored['approve']}")
    return lines


def unhealthy(stored: Stored) -> dict[str, Any]:
    """The same decision with only those workloads and replicas that are not as they should be."""
    workloads = []
    for one in stored["status"]["workloads"]:
        replicas = [replica for replica in one["replicas"] if replica["state"] not in HEALTHY]
        if replicas or one["missing"] or one["condition"] != Condition.READY.value:
            workloads.append({**one, "replicas": replicas})
    return {**stored, "status": {**stored["status"], "workloads": workloads}}


def suspended_line(one: Mapping[str, Any], paint: Paint, now: int) -> str:
    """One suspension: of what, by whom, until when, why."""
    end = "until it is resumed" if one["until_wall"] is None else f"for {short(one['until_wall'] - now)} more"
    what = "everything" if one["object"] == "*" else one["object"]
    probes = ", without probes" if one["probes"] else ""
    return f"{paint.warn('suspended')}: {what}{probes} by {one['who'] or 'somebody'} {end}: {one['reason'] or 'no reason given'}"


def status_lines(stored: Stored, paint: Paint, now: int) -> list[str]:
    """The tables: workloads, replicas, names; then what cannot be read and what nothing names. `now` is the wall clock (ns)."""
    status = stored["status"]
    lines = workload_lines(status["workloads"], paint, now)
    lines += name_lines(status["names"], paint)
    unknown = status["unknown"]
    if unknown:
        lines += ["", *(f"{paint.bad('cannot be read')}: {name}: {reason}" for name, reason in sorted(unknown.items()))]
    lines += (
        ["", *found] if (found := [suspended_line(one, paint, now) for one in status.get("suspensions", ())]) else []
    )
    orphans = status.get("orphans", [])
    if orphans:
        lines += ["", *(f"{paint.warn('ours, but in no manifest')}: {name}" for name in orphans)]
    return lines
