"""Why a replica is, or is not, restarted for its health: one sentence, from its state, its verdicts and what is held.

Also the evidence of earlier restarts as text. Used by `explain`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.times import ago, ahead
from reconciler.core.status.objects import State

SHOWN_LOG = 10
"""Log lines of a piece of evidence that are shown as text; JSON has all that are kept."""


def why(replica: Mapping[str, Any], holds: Sequence[Mapping[str, Any]], now: int) -> str:
    """The sentence. `holds` are those of this replica, `now` is the wall clock (ns)."""
    if replica["role"] != "current":
        return f"not restarted: it is {replica['role']}, so it is on its way out"
    held = next((hold for hold in holds if hold["action"].startswith(("restart ", "recreate "))), None)
    if held is not None:
        then = "" if held["until_wall"] is None else f"; next try {ahead(held['until_wall'], now)}"
        next_step = f"; to end it: {held['next_step']}" if held["next_step"] else ""
        return f"not restarted now: {held['action']} is held by {held['rule']} ({held['message']}){then}{next_step}"
    if replica["state"] == State.RESTARTING.value:
        return f"being restarted ({replica['reason']})"
    if replica["runtime"] != "running":
        return f"not restarted for its health: it is {replica['runtime']}, and nothing that does not run is probed"
    startup, liveness = replica["probes"].get("startup"), replica["probes"].get("liveness")
    if startup is not None and startup["verdict"] != "pass":
        return f"not restarted: its startup probe says {_said(startup)}, and the others wait for it"
    if liveness is None:
        return "not restarted for its health: it has no liveness probe, or no result of it yet"
    if liveness["verdict"] == "pass":
        return f"not restarted: its liveness probe says {_said(liveness)}"
    if liveness["verdict"] == "fail":
        return f"to be restarted: its liveness probe says {_said(liveness)}"
    if liveness["verdict"] == "cannot-run" and liveness["last"] != "cannot-run":
        return f"not restarted: its liveness probe has never passed on {replica['node']}, which may be the probe's own fault"
    return f"not restarted: its liveness is unknown ({_said(liveness)}), and only a failing verdict restarts"


def _said(probe: Mapping[str, Any]) -> str:
    detail = f": {probe['detail']}" if probe["detail"] else ""
    last = "" if probe["last"] == probe["verdict"] else f", lately {probe['last']}"
    return f"{probe['verdict']}{last} ({probe['streak']}{detail})"


def evidence_json(rows: Sequence[tuple[int, str, int, str]]) -> list[dict[str, Any]]:
    """Pieces of evidence as the store has them (number, object, wall, JSON), oldest first."""
    return [{"object": obj, "wall": wall, **json.loads(value)} for _, obj, wall, value in rows]


def evidence_lines(pieces: Sequence[Mapping[str, Any]], paint: Paint, now: int) -> list[str]:
    """The evidence of earlier restarts, newest first."""
    lines: list[str] = []
    for piece in reversed(pieces):
        end = piece["end"]
        ended = "" if end is None else f"; ended: {end['cause']}, exit code {end['exit_code']}"
        head = f"evidence of {piece['object']} ({piece['cause']}), kept {ago(piece['wall'], now)}{ended}"
        lines += ["", paint.bold(head)]
        if piece.get("why"):
            lines.append(f"  {piece['why']}")
        for name, probe in piece["probes"].items():
            lines.append(f"  {name}: {_said(probe)}")
        if piece.get("runtime_health"):
            lines.append(f"  health check of the runtime: {piece['runtime_health']}")
        if piece["log_missing"]:
            lines.append(f"  log: {piece['log_missing']}")
        elif not piece["log"]:
            lines.append("  log: empty")
        lines += [f"  | {line}" for line in piece["log"][-SHOWN_LOG:]]
    return lines
