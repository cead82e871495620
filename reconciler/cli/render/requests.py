"""Restart requests as text and as JSON. Used by `cli/get.py` and `render/explain.py`."""

from collections.abc import Mapping
from typing import Any

from manifests.values.desired import SECOND
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago
from reconciler.core.model.restart_request import FINAL, Fate, Request


def state(request: Request) -> str:
    """The state of a request in one word."""
    if request.finished is None:
        return "running"
    return "done" if request.succeeded else "failed"


def about(request: Request) -> str:
    """The object of a request, with its container if it is only one."""
    return f"{request.object} ({request.only})" if request.only else request.object


def request_lines(requests: Mapping[str, Request], paint: Paint, now: int) -> list[str]:
    """The table of requests, newest first, then the table of their replicas. `now` is the wall clock (ns)."""
    if not requests:
        return ["no restart requests"]
    newest = sorted(requests.items(), key=lambda pair: (-pair[1].at.wall, pair[0]))
    rows = []
    for name, request in newest:
        members = request.members or ()
        decided = sum(1 for member in members if member.fate in FINAL)
        done, age = f"{decided}/{len(members)}", ago(request.at.wall, now)
        rows.append([name, about(request), state(request), done, request.who, request.reason, age])
    head = ["REQUEST", "OBJECT", "STATE", "DECIDED", "BY", "REASON", "REQUESTED"]
    lines = table(head, [[cell or "-" for cell in row] for row in rows], paint, frozenset({"STATE"}))
    replicas = [
        [name, member.object.partition("/")[2], member.fate.value, member.message or "-"]
        for name, request in newest
        for member in request.members or ()
    ]
    if replicas:
        lines += ["", *table(["REQUEST", "REPLICA", "RESULT", "MESSAGE"], replicas, paint, frozenset({"RESULT"}))]
    return lines + [f"{name}: {request.message}" for name, request in newest if request.message]


def _seconds(duration: int | None) -> float | None:
    return None if duration is None else duration / SECOND


def request_json(name: str, request: Request) -> dict[str, Any]:
    """One request as JSON."""
    return {
        "id": name,
        "object": request.object,
        "container": request.only or None,
        "state": state(request),
        "who": request.who,
        "reason": request.reason,
        "asked_wall": request.at.wall,
        "finished_wall": None if request.finished is None else request.finished.wall,
        "ordered": request.ordered,
        "failure_policy": request.failure_policy.value,
        "min_started_seconds": _seconds(request.min_started),
        "grace_seconds": _seconds(request.grace),
        "drain_seconds": _seconds(request.drain),
        "deadline_seconds": _seconds(request.deadline),
        "message": request.message or None,
        "members": [
            {
                "object": member.object,
                "container": member.container,
                "fate": member.fate.value,
                "message": member.message,
            }
            for member in request.members or ()
        ],
        "failed": [member.object for member in request.members or () if member.fate in {Fate.FAILED, Fate.EXPIRED}],
    }
