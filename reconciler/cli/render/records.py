"""Names with the health of their leaves, plain records, and health checks, as text and as JSON. Used by `reconcile get`.

Rows come from the stored decision, which an older version may have written with fewer keys.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, short
from reconciler.shell.clock import utc

Row = Mapping[str, Any]

_HEALTH = {True: "healthy", False: "unhealthy", None: "unknown"}
_YES = {True: "yes", False: "no", None: "unknown"}


# --- for scripts ----------------------------------------------------------------------------------------------------


def _instants(row: Row) -> dict[str, Any]:
    """A row whose instants are text."""
    return {
        key.removesuffix("_wall"): utc(value).isoformat() if key.endswith("_wall") and value is not None else value
        for key, value in row.items()
    }


def name_json(row: Row) -> dict[str, Any]:
    """One name with its leaves."""
    leaves = [{**leaf, "check": leaf["check"] and _instants(leaf["check"])} for leaf in row.get("leaves", ())]
    return {**row, "leaves": leaves}


def check_json(row: Row) -> dict[str, Any]:
    """One HealthCheck."""
    return _instants(row)


# --- for people -----------------------------------------------------------------------------------------------------


def _checked(check: Row | None, now: int) -> str:
    wall = None if check is None else check["last_check_wall"]
    return "-" if wall is None else ago(wall, now)


def _failures(check: Row | None) -> str:
    return "-" if check is None else f"{check['consecutive_failures']}/{check['failure_threshold']}"


def _plain(name: str) -> str:
    return name.removesuffix(".")


def _values(published: Sequence[str] | None) -> str:
    return "cannot be read" if published is None else ", ".join(map(_plain, published)) or "nothing"


def record_lines(
    names: Sequence[Row], records: Sequence[Row], paint: Paint, now: int, lists: Sequence[Row] = ()
) -> list[str]:
    """Tables of names, of their leaves, of plain records and of lists, then what providers cannot hold. `now` is the wall clock (ns)."""
    if not names and not records and not lists:
        return ["no names in the manifests"]
    lines: list[str] = []
    if names:
        head = ["NAME", "HOST", "ROUTING", "CONDITION", "PUBLISHED"]
        rows = [
            [
                name["key"].partition("/")[2],
                _plain(name["host"]),
                name.get("routing", "-"),
                name.get("condition", "-"),
                _values(name["published"]),
            ]
            for name in names
        ]
        lines = table(head, rows, paint, frozenset({"CONDITION"}))
    leaves = [_leaf(name, leaf, now) for name in names for leaf in name.get("leaves", ())]
    if leaves:
        head = ["NAME", "TARGET", "ADDRESS", "HEALTH", "FAILURES", "CHECKED", "PUBLISHED", "WHY"]
        lines += ["", *table(head, leaves, paint, frozenset({"HEALTH"}))]
    if records:
        head = ["RECORD", "HOST", "TYPE", "TTL", "PUBLISHED"]
        rows = [
            [
                record["key"].partition("/")[2],
                _plain(record["host"]),
                record["type"],
                f"{record['ttl']}s",
                _values(record["published"]),
            ]
            for record in records
        ]
        lines += [*([""] if lines else []), *table(head, rows, paint, frozenset())]
    if lists:
        rows = [
            [
                one["key"].partition("/")[2],
                _plain(one["zone"]),
                str(one["wanted"]),
                "unknown" if one["published"] is None else str(one["published"]),
            ]
            for one in lists
        ]
        head = ["RECORD LIST", "ZONE", "RECORD SETS", "AS WANTED"]
        lines += [*([""] if lines else []), *table(head, rows, paint, frozenset())]
    notes = [
        f"{paint.warn('not as asked')}: {name['key']}: {_plain(note['name'])}: {note['message']}"
        for name in names
        for note in name.get("notes", ())
    ]
    return [*lines, *(["", *notes] if notes else [])]


def _leaf(row: Row, leaf: Row, now: int) -> list[str]:
    """One leaf. Where its check says something that the rest does not, that is told too."""
    check = leaf["check"]
    why = leaf["why"]
    order = leaf.get("override")  # not in what an older version has stored
    if order is not None and order["until_wall"] is not None:
        why = f"{why}, for {short(order['until_wall'] - now)} more"
    if check is not None and leaf["healthy"] is not True and check["reason"]:
        why = f"{why}: {check['reason']}"
    return [
        row["key"].partition("/")[2],
        leaf["target"],
        _plain(leaf["address"]),
        _HEALTH[leaf["healthy"]],
        _failures(check),
        _checked(check, now),
        _YES[leaf["published"]],
        why,
    ]


def check_lines(checks: Sequence[Row], paint: Paint, now: int) -> list[str]:
    """The table of health checks. `now` is the wall clock (ns)."""
    if not checks:
        return ["no HealthCheck in the manifests"]
    head = ["HEALTHCHECK", "ASKS", "HEALTH", "FAILURES", "CHECKED", "DECIDES ABOUT", "REASON"]
    rows = [
        [
            check["key"].partition("/")[2],
            _url(check),
            _HEALTH[check["healthy"]],
            _failures(check),
            _checked(check, now),
            ", ".join(check["decides_about"]) or "nothing",
            check["reason"] or "-",
        ]
        for check in checks
    ]
    return table(head, rows, paint, frozenset({"HEALTH"}))


def _url(row: Row) -> str:
    address = f"[{row['address']}]" if ":" in row["address"] else row["address"]
    return f"{row['protocol'].lower()}://{address}:{row['port']}{row['path']}"


def age_line(at: int, now: int) -> str:
    """How old what is shown is, where nothing is there to ask."""
    return f"seen {ago(at, now)}, nothing answers now"
