"""When each probe is due: pure arithmetic and one heap, so that tests run it in virtual time.

The parent computes first instants (`first_due` in `target.py`); the child keeps the `Schedule` and takes the due targets (`loop.py`).

Every target has a stable phase within its period, from a hash of its identity. Thousands of targets are therefore never due
together, and a restart of this program does not shift them. The first probe does not wait for the phase: it comes right after the
initial delay, spread over a short window when many targets are added at once. The phase applies from the second probe on.
"""

from hashlib import blake2b
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar

NO_PHASE = -1
"""Phase of a target that keeps the cadence of its first probe."""

FIRST_WINDOW = 10_000_000_000
"""First probes of many targets are spread over at most this long (ns), however long their period is."""

FIRST_SPACING = 1_000_000
"""Mean distance between the first probes of targets that are added together, ns: a thousand a second."""


class Item(Protocol):
    """The part of a target that the schedule reads. `gone` is set when the target is removed."""

    period: int
    phase: int
    gone: bool


I = TypeVar("I", bound=Item)  # noqa: E741


def phase_of(identity: str, period: int) -> int:
    """The stable phase of an identity: an offset in [0, period), ns, evenly spread over identities."""
    digest = blake2b(identity.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * period >> 64


def first_due(now: int, started: int, initial_delay: int, period: int, phase: int, together: int) -> int:
    """The steady instant of a target's first probe.

    Args:
        now: when the target is added.
        started: when its generation started. A start in the future (a corrected clock) counts as now.
        initial_delay: from the start of the generation, ns.
        period: ns.
        phase: from `phase_of`, or NO_PHASE for "as soon as the delay is over".
        together: how many targets are added with it.
    """
    earliest = max(now, min(started, now) + initial_delay)
    if phase == NO_PHASE:
        return earliest
    window = min(period, FIRST_WINDOW, (together - 1) * FIRST_SPACING)
    return earliest + phase * window // period


def next_due(due: int, now: int, period: int, phase: int) -> int:
    """The next instant after `due` and after `now`: missed instants collapse into the one that is being served.

    With a phase it is a point of the grid (phase + k * period) at least half a period later: this moves the first probe onto the
    grid once, and afterwards adds exactly one period.
    """
    if phase == NO_PHASE:
        then = due + period
    else:
        earliest = due + (period + 1) // 2
        then = earliest + (phase - earliest) % period
    if then > now:
        return then
    return then + ((now - then) // period + 1) * period


class Schedule(Generic[I]):
    """Due instants of all targets. Removal is lazy: the owner sets `gone` and calls `item_gone`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, I]] = []
        self._gone = 0

    def __len__(self) -> int:
        """Number of entries, including removed targets that are not yet swept."""
        return len(self._heap)

    def add(self, key: int, item: I, due: int) -> None:
        """Schedule an item. Keys are unique and order items that are due at the same instant."""
        heappush(self._heap, (due, key, item))

    def item_gone(self) -> None:
        """Note that one more item is gone. Sweeps once most entries are gone, so the heap stays within twice its targets."""
        self._gone += 1
        if self._gone > 64 and self._gone * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].gone]
            heapify(self._heap)
            self._gone = 0

    def next(self) -> int | None:
        """The earliest due instant, or None when nothing is scheduled."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: int, limit: int) -> list[tuple[int, I]]:
        """Up to `limit` due items with their due instants, earliest first. Each is scheduled again."""
        heap = self._heap
        due_items: list[tuple[int, I]] = []
        while heap and heap[0][0] <= now and len(due_items) < limit:
            due, key, item = heap[0]
            if item.gone:
                heappop(heap)
                self._gone -= 1
                continue
            heapreplace(heap, (next_due(due, now, item.period, item.phase), key, item))
            due_items.append((due, item))
        return due_items
