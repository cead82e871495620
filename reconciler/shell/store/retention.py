"""Which rows of the audit are kept: the newest of every series, so that no object's events push out those of another.

Used by `audit.py`. A series is one action on one object: its rows tell the same story. When the audit is full, a row of the longest
series goes, its oldest one, so a replica that flaps for a week shortens its own history only. The total is bounded as well.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class Series(NamedTuple):
    """What the rows of a series have in common."""

    object: str
    kind: str
    step: str


class Retention:
    """The ids of all rows by series.

    Args:
        kept: rows that are kept in total.
        slack: rows that may be there beyond that: rows are dropped in groups of this size.
        rows: id and series of each row, in the order of the ids.
    """

    def __init__(self, kept: int, slack: int, rows: Iterable[tuple[int, Series]] = ()) -> None:
        self._kept, self._slack = kept, slack
        self._rows: dict[Series, deque[int]] = {}
        self._count = 0
        self.last = 0
        for number, series in rows:
            self._append(number, series)

    def _append(self, number: int, series: Series) -> None:
        self._rows.setdefault(series, deque()).append(number)
        self._count += 1
        self.last = max(self.last, number)

    def add(self, series: Series) -> int:
        """The id of a new row of this series."""
        self._append(self.last + 1, series)
        return self.last

    def drop(self) -> list[int]:
        """The ids of rows to delete now, oldest first; they are forgotten. Empty until there are too many rows.

        The newest row always stays, so no id is ever used again.
        """
        if self._count <= self._kept + self._slack:
            return []
        longest = [(-len(ids), ids[0], series) for series, ids in self._rows.items()]
        heapq.heapify(longest)
        dropped = []
        while self._count > self._kept:
            _, _, series = heapq.heappop(longest)
            ids = self._rows[series]
            dropped.append(ids.popleft())
            self._count -= 1
            if ids:
                heapq.heappush(longest, (-len(ids), ids[0], series))
            else:
                del self._rows[series]
        return sorted(dropped)
