"""DNS names with the health of their addresses, records, record lists and health checks, as text and JSON. Used by `cli/get.py`.

Rows come from the stored decision. An older version may have stored fewer keys.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, short

Row = Mapping[str, Any]

_HEALTH = {True: "healthy", False: "unhealthy", None: "unknown"}
_YES = {True: "yes", False: "no", None: "unknown"}


# --- for operators -----------------------------------------------------------------------------------------------------


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
    """Tables of names, their addresses, records and record lists, then what providers cannot hold. `now` is the wall clock (ns)."""
    if not names and not records and not lists:
        return ["no DNS records in the manifests"]
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
                record_list["key"].partition("/")[2],
                _plain(record_list["zone"]),
                str(record_list["wanted"]),
                "unknown" if record_list["published"] is None else str(record_list["published"]),
            ]
            for record_list in lists
        ]
        head = ["RECORD LIST", "ZONE", "RECORD SETS", "PUBLISHED"]
        lines += [*([""] if lines else []), *table(head, rows, paint, frozenset())]
    notes = [
        f"{paint.warn('limited by the provider')}: {name['key']}: {_plain(note['name'])}: {note['message']}"
        for name in names
        for note in name.get("notes", ())
    ]
    return [*lines, *(["", *notes] if notes else [])]


def _leaf(row: Row, leaf: Row, now: int) -> list[str]:
    """One address, with the reason of its check unless it is healthy."""
    check = leaf["check"]
    why = leaf["why"]
    override = leaf.get("override")  # an older version stored none
    if override is not None and override["until_wall"] is not None:
        why = f"{why}, for {short(override['until_wall'] - now)} more"
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
    head = ["HEALTHCHECK", "URL", "HEALTH", "FAILURES", "CHECKED", "USED BY", "REASON"]
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
