"""What HAProxy counts, as values: the algorithm of a backend, the sessions of its servers. Pure; read by looks and writes.

The tables of `show stat` are CSV with a hundred columns, so they are asked for only where something depends on them.
"""

import csv
from collections.abc import Iterator, Sequence


def algorithms(text: str) -> dict[str, str]:
    """The balancing algorithm of each backend; empty texts where HAProxy does not tell it.

    Raises:
        ValueError: it is not a table of `show stat`.
    """
    return {row[0]: row[1] for row in _cells(text, ("pxname", "algo"))}


def sessions(text: str) -> dict[str, int]:
    """The sessions under way on each server of a backend, those that wait in its queue included.

    Raises:
        ValueError: it is not a table of `show stat`.
    """
    return {
        name: int(queued or 0) + int(current or 0) for name, queued, current in _cells(text, ("svname", "qcur", "scur"))
    }


def _cells(text: str, columns: Sequence[str]) -> Iterator[list[str]]:
    rows = csv.reader(text.strip().splitlines())
    head = [name.removeprefix("# ") for name in next(rows, [])]
    try:
        at = [head.index(name) for name in columns]
    except ValueError as error:
        raise ValueError(f"'show stat' lacks a column: {error}") from None
    for row in rows:
        if len(row) <= max(at):
            raise ValueError(f"'show stat' has a row of {len(row)} cells")
        yield [row[index] for index in at]
