"""The list of nodes that a workload may use. Part of `desired.Workload`; `resolve/workload.py` makes it.

Every container of every tick is compared with such a list, and on many nodes each workload may name them all. So membership takes
constant time, and workloads with equal lists share one object.
"""

import sys
from functools import cached_property
from typing import SupportsIndex


class Nodes(tuple[str, ...]):
    """Names of runtime providers, in the order of the manifest and without duplicates. Equal to the same plain tuple."""

    @cached_property
    def _places(self) -> dict[str, int]:
        return {node: place for place, node in enumerate(self)}

    def __contains__(self, node: object) -> bool:
        return node in self._places

    def index(self, node: object, start: SupportsIndex = 0, stop: SupportsIndex = sys.maxsize, /) -> int:
        """The place of a node. Raises ValueError when it is not in the list."""
        place = self._places.get(node) if isinstance(node, str) else None
        if place is None or place not in range(len(self))[start:stop]:
            raise ValueError(f"{node!r} is not in the list of nodes")
        return place
