"""Revisions as text. Used by `cli/get.py`; the rows are those of `core/status/revisions.py`, as stored."""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, ahead

Row = Mapping[str, Any]

_STATES = (
    "WORKLOAD", "REVISION", "STATUS", "CONTAINERS", "APPLICATION", "CHECKED", "CREATED", "STARTED", "DUE", "ACTIVATED",
    "NEXT",
)  # fmt: skip
_CONTENTS = ("REVISION", "IMAGE", "DIGEST", "ENDPOINTS", "CONTAINER IDS", "WHY")


def _time(wall: int | None, now: int) -> str:
    """An instant in the past or the future; a dash for none."""
    if wall is None:
        return "-"
    return ahead(wall, now) if wall > now else ago(wall, now)


def _next(row: Row, now: int) -> str:
    """The next change of the revision, and when."""
    change, wall = row["next"], row["next_wall"]
    if change is None:
        return "-"
    return change if wall is None else f"{change} {ahead(wall, now)}"


def _digest(row: Row) -> str:
    """The first characters of the digest."""
    digest = str(row["digest"] or "")
    return digest.rpartition("@")[2][:19] or "-"


def revision_line(row: Row, now: int) -> str:
    """One revision in a sentence: its state, what happens next, and the cause of its last change."""
    declared = ", declared" if row["declared"] else ""
    cause = f" (last change: {row['why']})" if row["why"] else ""
    change = _next(row, now) if row["next"] is not None else "nothing happens to it by itself"
    return f"revision {row['number']} ({row['revision'][:8]}{declared}): {row['status']}; {change}{cause}"


def revision_lines(rows: Sequence[Row], paint: Paint, now: int) -> list[str]:
    """Two tables of the same revisions: their state, and their image and containers. `now` is the wall clock (ns)."""
    if not rows:
        return ["no revisions"]
    states, contents = [], []
    for row in rows:
        short = row["revision"][:8]
        times = [_time(row[f"{name}_wall"], now) for name in ("last_check", "created", "started", "due", "activated")]
        name = row["workload"].partition("/")[2]
        health = [row["status"], row["resource_health"], row["application_health"]]
        states.append([name, short, *health, *times, _next(row, now)])
        ids = ", ".join(container["id"][:12] for container in row["containers"])
        addresses = ", ".join(row["addresses"]) or "-"
        contents.append([short, row["image"] or "-", _digest(row), addresses, ids or "-", row["why"] or "-"])
    columns = frozenset({"STATUS", "CONTAINERS", "APPLICATION"})
    return [*table(_STATES, states, paint, columns), "", *table(_CONTENTS, contents, paint, frozenset())]
