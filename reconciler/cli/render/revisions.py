"""Revisions as text. Used by `reconcile get revisions`; the rows are those of `core/revision_rows.py`, as they were stored."""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, ahead

Row = Mapping[str, Any]

_HEAD = (
    "WORKLOAD", "REVISION", "STATUS", "CONTAINERS", "APPLICATION", "CHECKED", "CREATED", "STARTED", "DUE", "ACTIVATED",
    "NEXT",
)  # fmt: skip
_MORE = ("REVISION", "IMAGE", "DIGEST", "ENDPOINTS", "CONTAINER IDS", "WHY")


def _time(wall: int | None, now: int) -> str:
    """An instant that has passed or is to come; a dash for none."""
    if wall is None:
        return "-"
    return ahead(wall, now) if wall > now else ago(wall, now)


def _next(row: Row, now: int) -> str:
    """What comes next, and when."""
    what, wall = row["next"], row["next_wall"]
    if what is None:
        return "-"
    return what if wall is None else f"{what} {ahead(wall, now)}"


def _digest(row: Row) -> str:
    """As much of the digest as tells it from others."""
    digest = str(row["digest"] or "")
    return digest.rpartition("@")[2][:19] or "-"


def revision_lines(rows: Sequence[Row], paint: Paint, now: int) -> list[str]:
    """Two tables of the same revisions: how they are, and what they are made of. `now` is the wall clock (ns)."""
    if not rows:
        return ["no revisions"]
    state, more = [], []
    for row in rows:
        short = row["revision"][:8]
        times = [_time(row[f"{name}_wall"], now) for name in ("last_check", "created", "started", "due", "activated")]
        name = row["workload"].partition("/")[2]
        health = [row["status"], row["resource_health"], row["application_health"]]
        state.append([name, short, *health, *times, _next(row, now)])
        ids = ", ".join(container["id"][:12] for container in row["containers"])
        made = [row["image"] or "-", _digest(row), ", ".join(row["addresses"]) or "-", ids or "-", row["why"] or "-"]
        more.append([short, *made])
    words = frozenset({"STATUS", "CONTAINERS", "APPLICATION"})
    return [*table(_HEAD, state, paint, words), "", *table(_MORE, more, paint, frozenset())]
