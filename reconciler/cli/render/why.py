"""Why a replica is or is not restarted for its health, in one sentence, and the evidence of earlier restarts as text.

Used by `cli/explain.py`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.times import ago, ahead
from reconciler.core.model.reasons import Act
from reconciler.core.status.objects import State

_RESTARTS = frozenset({Act.RESTART.value, Act.RECREATE.value})

_ELSE = {
    "outgoing": "it belongs to a revision that is being replaced, and is removed once its successor serves",
    "surplus": "it is no longer wanted, and is removed once it is out of service",
    "kept": "it belongs to an earlier revision and is kept, stopped, for a rollback",
}
"""Why containers with another role than their replica's present one are not restarted. A waiting one is probed and judged like it."""

SHOWN_LOG = 10
"""Log lines of a piece of evidence in the text; JSON has all of them."""


def why(replica: Mapping[str, Any], holds: Sequence[Mapping[str, Any]], now: int) -> str:
    """The sentence. `holds` are those of this replica, `now` is the wall clock (ns)."""
    if replica["role"] in _ELSE:
        return f"not restarted: {_ELSE[replica['role']]}"
    held = [hold for hold in holds if hold.get("act") in _RESTARTS]  # an older version stored no act
    if held:
        rules = " and by ".join(f"{hold['rule']} ({hold['message']})" for hold in held)
        ends = [hold["until_wall"] for hold in held]
        retry = "" if None in ends else f"; retried {ahead(max(ends), now)}"
        steps = "; ".join(dict.fromkeys(hold["next_step"] for hold in held if hold["next_step"]))
        next_step = f"; next step: {steps}" if steps else ""
        return f"not restarted now: {held[0]['action']} is held by {rules}{retry}{next_step}"
    if replica["state"] == State.RESTARTING.value:
        return f"being restarted ({replica['reason']})"
    if replica["runtime"] != "running":
        return f"not restarted for its health: it is {replica['runtime']}, and only running replicas are probed"
    startup, liveness = replica["probes"].get("startup"), replica["probes"].get("liveness")
    if startup is not None and startup["verdict"] != "pass":
        return f"not restarted: its startup probe has not passed yet, now {_verdict(startup)}"
    if liveness is None:
        return "not restarted for its health: it has no liveness probe, or no result of it yet"
    if liveness["verdict"] == "pass":
        return f"not restarted: its liveness probe passes {_details(liveness)}"
    if liveness["verdict"] == "fail":
        return f"due for a restart: its liveness probe fails {_details(liveness)}"
    if liveness["verdict"] == "cannot-run" and liveness["last"] != "cannot-run":
        return "not restarted: its liveness probe has never passed in this revision, so the probe itself may be wrong"
    return f"not restarted: its liveness is unknown ({_verdict(liveness)}), and only a failing probe causes a restart"


def _verdict(probe: Mapping[str, Any]) -> str:
    return f"{probe['verdict']} {_details(probe)}"


def _details(probe: Mapping[str, Any]) -> str:
    last = "" if probe["last"] == probe["verdict"] else f"last attempt {probe['last']}, "
    detail = f": {probe['detail']}" if probe["detail"] else ""
    return f"({last}{probe['streak']}{detail})"


def evidence_json(rows: Sequence[tuple[int, str, int, str]]) -> list[dict[str, Any]]:
    """Pieces of evidence from rows of the store (number, object, wall, JSON), oldest first."""
    return [{"object": obj, "saved_wall": wall, **json.loads(value)} for _, obj, wall, value in rows]


def evidence_lines(pieces: Sequence[Mapping[str, Any]], paint: Paint, now: int) -> list[str]:
    """The evidence of earlier restarts, newest first."""
    lines: list[str] = []
    for piece in reversed(pieces):
        end = piece["end"]
        ended = "" if end is None else f"; ended: {end['cause']}, exit code {end['exit_code']}"
        head = f"evidence of {piece['object']} ({piece['cause']}), saved {ago(piece['saved_wall'], now)}{ended}"
        lines += ["", paint.bold(head)]
        if piece.get("why"):
            lines.append(f"  {piece['why']}")
        for name, probe in piece["probes"].items():
            lines.append(f"  {name}: {_verdict(probe)}")
        if piece.get("runtime_health"):
            lines.append(f"  runtime health check: {piece['runtime_health']}")
        if piece["log_missing"]:
            lines.append(f"  log: {piece['log_missing']}")
        elif not piece["log"]:
            lines.append("  log: empty")
        lines += [f"  | {line}" for line in piece["log"][-SHOWN_LOG:]]
    return lines
