"""When each probe is due: pure arithmetic and one heap, so that cadence is tested in virtual time.

The parent computes first instants (`first_due`), the child keeps the `Schedule` and asks it for what is due.

Every target has a stable phase within its period, from a hash of its identity, so that thousands of targets never fire
together and a restart of this program does not shift them. The first probe does not wait for the phase: it comes right
after the initial delay, spread over a short window only when many targets are added at once. From the second probe on
the phase rules.
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
    """What the schedule reads of a target. `gone` is set when it is not wanted any more."""

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


def following(due: int, now: int, period: int, phase: int) -> int:
    """The next instant after `due`, and after `now`: instants that were missed collapse into the one being served.

    With a phase it is a point of the grid (phase + k * period) at least half a period later, which moves a first probe
    onto the grid once and afterwards adds exactly one period.
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
    """Due instants of all targets. Removing is lazy: the owner sets `gone` and calls `dropped`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, I]] = []
        self._gone = 0

    def __len__(self) -> int:
        """Entries kept, including those of targets that are gone and not yet swept."""
        return len(self._heap)

    def add(self, key: int, item: I, due: int) -> None:
        """Start to schedule an item. Keys are unique and order items that are due at the same instant."""
        heappush(self._heap, (due, key, item))

    def dropped(self) -> None:
        """One more item is gone. Sweeps once most entries are dead, so the heap stays within twice its targets."""
        self._gone += 1
        if self._gone > 64 and self._gone * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].gone]
            heapify(self._heap)
            self._gone = 0

    def next(self) -> int | None:
        """The earliest due instant, or None when nothing is scheduled."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: int, limit: int) -> list[tuple[int, I]]:
        """Up to `limit` items that are due, with their due instants, earliest first; each is scheduled anew."""
        heap = self._heap
        found: list[tuple[int, I]] = []
        while heap and heap[0][0] <= now and len(found) < limit:
            due, key, item = heap[0]
            if item.gone:
                heappop(heap)
                self._gone -= 1
                continue
            heapreplace(heap, (following(due, now, item.period, item.phase), key, item))
            found.append((due, item))
        return found
