"""The stored decision as text: workloads with their replicas, DNS names, holds and waits.

Used by `cli/status.py`, and by `render/summary.py` for the state at the end of a run. The value is the JSON document that the
loop stores with every decision that differs from the one before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, ahead, short
from reconciler.core.model.suspension_scope import Scope, key_of, shown
from reconciler.core.status.objects import HEALTHY, Condition

Stored = Mapping[str, Any]
"""One stored decision."""


def probe_text(probe: Mapping[str, Any] | None, now: int) -> str:
    """The result of a probe in a cell: `pass 3/3, 4s ago`; `-` without such a probe or without a result."""
    if not probe:
        return "-"
    return f"{probe['verdict']} {probe['streak']}, {ago(probe['checked_wall'], now)}"


def _liveness(probes: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The probe in the column LIVENESS: the startup probe until it passed, then the liveness probe."""
    startup = probes.get("startup")
    return startup if startup and startup["verdict"] != "pass" else probes.get("liveness")


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def revision_text(revision: Mapping[str, Any]) -> str:
    """A revision by its number and the begin of its hash."""
    short = str(revision["revision"][:8])
    return f"{revision['number']} ({short})" if revision["number"] else short


def serving_text(serving: Sequence[Mapping[str, Any]] | None) -> str:
    """The revisions that serve, in a cell; with several of them, each with its number of replicas."""
    if serving is None:
        return "unknown"
    if len(serving) == 1:
        return revision_text(serving[0])
    return ", ".join(f"{revision_text(revision)} x{revision['replicas']}" for revision in serving) or "none"


def workload_lines(workloads: Sequence[Mapping[str, Any]], paint: Paint, now: int) -> list[str]:
    """The tables of workloads and of their replicas. `now` is the wall clock (ns)."""
    if not workloads:
        return ["no workloads"]
    rows = [
        [
            workload["key"].partition("/")[2],
            f"{workload['available']}/{workload['wanted']}",
            workload["condition"],
            serving_text(workload.get("serving")),  # an older version stored none
            revision_text(workload),
        ]
        for workload in workloads
    ]
    lines = table(["WORKLOAD", "READY", "CONDITION", "SERVING", "DECLARED"], rows, paint, frozenset({"CONDITION"}))
    replicas = [
        [
            replica["replica"].partition("/")[2] + ("" if replica["role"] == "current" else f" ({replica['role']})"),
            replica["state"],
            replica["reason"],
            replica["runtime"],
            _cell(replica["address"]),
            _cell(replica["weight"]),
            probe_text(_liveness(replica["probes"]), now),
            probe_text(replica["probes"].get("readiness"), now),
        ]
        for workload in workloads
        for replica in workload["replicas"]
    ]
    replicas += [
        [name, "missing", "-", "-", "-", "-", "-", "-"] for workload in workloads for name in workload["missing"]
    ]
    replicas += [
        [unreadable["replica"].partition("/")[2], "Unknown", f"{unreadable['node']} cannot be read", *["-"] * 5]
        for workload in workloads
        for unreadable in workload.get("unreadable", ())  # an older version stored none
    ]
    if replicas:
        head = ["REPLICA", "STATE", "REASON", "RUNTIME", "ADDRESS", "WEIGHT", "LIVENESS", "READINESS"]
        lines += ["", *table(head, replicas, paint, frozenset({"STATE", "RUNTIME"}))]
    return lines


def image_lines(workloads: Sequence[Mapping[str, Any]], paint: Paint, now: int) -> list[str]:
    """The images that policies chose without a commit, and the newest one that was taken back of each container."""
    lines = []
    for workload in workloads:
        for row in workload.get("images", ()):  # an older version stored none
            what = f"{workload['key']}, container {row['container']}"
            if row["image"]:
                lines.append(
                    f"{paint.dim('image')}     {what}: {row['image']} by its {row['origin']} ({row['policy']}), "
                    f"chosen {ago(row['chosen_wall'], now)}; the manifest has {row['declared']}"
                )
            for taken in row["taken_back"][-1:]:
                lines.append(
                    f"{paint.warn('image')}     {what}: {taken['image']} was taken back {ago(taken['at_wall'], now)} and is not "
                    f"tried again: {taken['why']}"
                )
    return lines


def name_lines(names: Sequence[Mapping[str, Any]], paint: Paint) -> list[str]:
    """The table of DNS names."""
    if not names:
        return []
    rows = []
    for name in names:
        published = name["published"]
        shown = "cannot be read" if published is None else ", ".join(published) or "nothing"
        rows.append([name["key"].partition("/")[2], name["host"], shown])
    return ["", *table(["NAME", "HOST", "PUBLISHED"], rows, paint, frozenset())]


def held_line(hold: Mapping[str, Any], paint: Paint, now: int) -> str:
    """One hold: the action, the rule that holds it, and when it is retried or what the operator can do."""
    parts = [f"{paint.warn('held')}     {hold['object']}: {hold['action']} ({hold['rule']}: {hold['message']})"]
    since = hold.get("since_wall")  # an older version stored none
    if since is not None:
        parts.append(f"for {short(max(now - since, SECOND))} now")
    if hold["until_wall"] is not None:
        parts.append(f"retried {ahead(hold['until_wall'], now)}")
    if hold["next_step"]:
        parts.append(f"next step: {hold['next_step']}")
    return "; ".join(parts)


def wait_line(wait: Mapping[str, Any], paint: Paint, now: int) -> str:
    """One wait: the progress that is awaited, and how long at most where a clock ends it."""
    left = 0 if wait["until_wall"] is None else wait["until_wall"] - now
    tail = f"; at most {short(max(left, SECOND))} more" if left > 0 else ""
    return f"{paint.dim('waiting')}  {wait['object']}: {wait['message']}{tail}"


def due_line(step: Mapping[str, Any], paint: Paint) -> str:
    """One step that is due."""
    return f"{paint.bold('due')}      {step['object']}: {step['action']} ({step['cause']}: {step['message']})"


def progress_lines(stored: Stored, paint: Paint, now: int) -> list[str]:
    """Steps that are due, holds and waits. `now` is the wall clock (ns)."""
    lines = [due_line(step, paint) for step in stored["steps"]]
    lines += [held_line(hold, paint, now) for hold in stored["holds"]]
    lines += [wait_line(wait, paint, now) for wait in stored["waits"]]
    if stored.get("approve_command"):  # an older version stored none
        lines.append(f"to approve the held changes, run: {stored['approve_command']}")
    return lines


def unhealthy(stored: Stored) -> dict[str, Any]:
    """The same decision with only the unhealthy workloads and replicas."""
    workloads = []
    for workload in stored["status"]["workloads"]:
        replicas = [replica for replica in workload["replicas"] if replica["state"] not in HEALTHY]
        if replicas or workload["missing"] or workload["condition"] != Condition.READY.value:
            workloads.append({**workload, "replicas": replicas})
    return {**stored, "status": {**stored["status"], "workloads": workloads}}


def suspended_line(suspension: Mapping[str, Any], paint: Paint, now: int) -> str:
    """One suspension: its object, the operator, its end and the reason."""
    until = suspension["until_wall"]
    end = "until it is resumed" if until is None else f"for {short(until - now)} more"
    name = _suspended(
        suspension.get("scope", Scope.ALL.value), suspension["object"]
    )  # an older version stored no scope
    probes = ", probes too," if suspension["probes"] else ""
    who, reason = suspension["who"] or "an unknown user", suspension["reason"] or "no reason given"
    return f"{paint.warn('suspended')}: {name}{probes} by {who} {end}: {reason}"


def _suspended(scope: str, obj: str) -> str:
    """What a stored suspension stops. A newer version may have scopes that this one does not know."""
    known = next((item for item in Scope if item.value == scope), None)
    return f"{scope} of {obj}" if known is None else shown(key_of(known, obj))


def declared_lines(workload: Mapping[str, Any], paint: Paint) -> list[str]:
    """What the manifests say that suspends a workload; an older version stored none of it."""
    return [
        f"{paint.warn('suspended')}: {cause['message']}; next step: {cause['next_step']}"
        for cause in workload.get("suspended_by", ())
        if cause["declared"]
    ]


def status_lines(stored: Stored, paint: Paint, now: int) -> list[str]:
    """Tables of workloads, replicas and names, then unreadable providers, suspensions and orphans. `now` is the wall clock (ns)."""
    status = stored["status"]
    lines = workload_lines(status["workloads"], paint, now)
    images = image_lines(status["workloads"], paint, now)
    lines += ["", *images] if images else []
    lines += name_lines(status["names"], paint)
    unknown = status["unknown"]
    if unknown:
        lines += ["", *(f"{paint.bad('cannot be read')}: {name}: {reason}" for name, reason in sorted(unknown.items()))]
    suspensions = [suspended_line(suspension, paint, now) for suspension in status.get("suspensions", ())]
    suspensions += dict.fromkeys(line for workload in status["workloads"] for line in declared_lines(workload, paint))
    if suspensions:
        lines += ["", *suspensions]
    for renamed in status.get("renamed", ()):
        lines.append(
            f"{paint.dim('renamed')}: {renamed['replica']} is container {renamed['container']} on {renamed['node']}"
        )
    orphans = status.get("orphans", [])
    if orphans:
        lines += ["", *(f"{paint.warn('orphaned (owned, but in no manifest)')}: {name}" for name in orphans)]
    copies = status.get("copies", [])
    if copies:
        lines += ["", *(f"{paint.warn('foreign (with the labels of another container)')}: {name}" for name in copies)]
    return lines
