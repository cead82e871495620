"""What became of one incident under one rule: counted once a second by `peers.py` and `product.py`, read by `judge.py` and `page.py`."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.incidents.traces import Slot, Trace

LAG = 3
"""Seconds in which a rule may learn that a readiness probe passed and give the weight."""

RETRIES = (60, 120, 240, 480, 600)
"""Pauses (s) before retries of the same replica that count apart; the last one repeats."""

EARLY = 5
"""A retry may come so many seconds early: a tick and a drain lie between."""

WINDOW = 300.0
"""Seconds of `limits.restarts`, in which the attempts of one replica are counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One incident under one rule.

    Attributes:
        restarts: all restarts from the beginning of the incident, those after a crash too.
        useless: restarts that cured nothing, without those after a crash.
        first: the replicas that were restarted in vain, and retries in vain that came before their pause was over.
        retries: further restarts in vain of the same replica after 1, 2, 4, 8, 10, 10 ... min.
        most: the most restarts in vain of one replica.
        burst: the most restarts of one replica in 5 min, without those after a crash.
        lowest: the lowest percentage of replicas that serve.
        empty: minutes with an empty pool.
        emptied: minutes of these with a replica that was not being stopped and whose readiness probe had passed since its start.
        unnamed: minutes without an address in the name.
        recovery: minutes from the end of the cause until all serve for good; None = they never did.
        spell: the longest time with fewer than all, minutes.
        lost: requests without an answer, thousands.
        law: the law of `tests/laws/watchdog.py` that was broken; the incident ended there.
    """

    restarts: int
    useless: int
    first: int
    retries: int
    most: int
    burst: int
    lowest: int
    empty: float
    emptied: float
    unnamed: float
    recovery: float | None
    spell: float
    lost: float
    law: str = ""

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart: when, of which slot, whether it helped, and why it was made."""

    at: float
    slot: Slot
    helps: bool
    why: str


CRASH = "crash"


@dataclass(slots=True)
class Score:
    """Counts one incident. `exit` is the longest time (s) from the loss of the weight to the stop of a replica."""

    trace: Trace
    exit: float = 0.0
    restarts: list[Restart] = field(default_factory=list)
    lowest: float = 100.0
    empty: float = 0.0
    emptied: float = 0.0
    unnamed: int = 0
    lost: float = 0.0
    whole_since: float | None = None
    below: int = 0
    spell: int = 0
    law: str = ""
    waiting: dict[Slot, float] = field(default_factory=dict)
    """Seconds without a break that count as emptied unless a stop follows, by pool."""

    out: set[Slot] = field(default_factory=set)
    """Slots that the rule stopped and that have not passed their readiness probe since."""

    def restart(self, now: float, slot: Slot, why: str, *, crashed: bool = False) -> None:
        """The rule stops this slot to start it again, or starts it after a crash."""
        helps = not crashed and self.trace.helps(slot, now)
        if now < 0:
            return
        self.restarts.append(Restart(round(now, 1), slot, helps, CRASH if crashed else why))
        if not crashed:
            self.leaves(slot)

    def leaves(self, slot: Slot) -> None:
        """The rule stops the slot: of a pool with one member, an empty pool in the drain before it belongs to the stop."""
        self.out.add(slot)
        pool = slot if self.trace.alone else None
        left = self.waiting.pop(pool, 0.0)
        if self.trace.alone or self.trace.size == 1:
            self.emptied -= min(left, self.exit / (self.trace.size if self.trace.alone else 1))

    def sample(
        self,
        now: float,
        weights: Mapping[Slot, float],
        named: int | None = None,
        answered: Callable[[], Mapping[Slot, float]] | None = None,
    ) -> None:
        """A second passed.

        Args:
            now: its beginning.
            weights: those in pools.
            named: how many addresses the name has; None = the rule has no names.
            answered: the part of its requests that each slot answered, where it was measured.
        """
        trace = self.trace
        trace.move(now, weights)
        if now < 0:
            return
        taken = {slot: weight for slot, weight in weights.items() if weight > 0}
        measured = {slot: trace.share(slot, now) for slot in taken} if answered is None else answered()
        shares = {slot: measured.get(slot, 0.0) for slot in taken}
        total = sum(taken.values())
        self.lowest = min(self.lowest, 100 * sum(share > 0.5 for share in shares.values()) / trace.size)
        if trace.alone:
            self.lost += trace.demand * (1 - sum(shares.values()) / trace.size)
            for slot in range(trace.size):
                self._pool(slot, slot in taken, 1 / trace.size, now)
        else:
            answered = sum(weight * shares[slot] for slot, weight in taken.items()) / total if total else 0.0
            self.lost += trace.demand * (1 - answered)
            self._pool(None, bool(total), 1, now)
        self.unnamed += named == 0
        well = sum(share >= 0.97 for slot, share in shares.items() if isinstance(slot, int))
        if well < trace.size:
            self.whole_since, self.below = None, self.below + 1
        elif self.whole_since is None:
            self.whole_since, self.below = now, 0
        self.spell = max(self.spell, self.below)

    def _pool(self, pool: Slot, served: bool, seconds: float, now: float) -> None:
        """Count a pool without a weight."""
        if served:
            self.waiting.pop(pool, None)
            self.out = {slot for slot in self.out if not self._passed(slot, now)}
            return
        self.empty += seconds
        slots = {pool} if self.trace.alone else set(self.trace.processes)
        passed = {slot for slot in slots if self._passed(slot, now)}
        self.out -= passed
        # Where one replica is alone, it may be out from its stop to its readiness; of several, another one has to stay.
        if passed or (len(slots) > 1 and self.out & slots):
            self.emptied += seconds
            self.waiting[pool] = self.waiting.get(pool, 0.0) + seconds

    def _passed(self, slot: Slot, now: float) -> bool:
        process = self.trace.processes.get(slot)
        return process is not None and process.up and process.passed is not None and now - process.passed > LAG

    def row(self) -> Row:
        """The result."""
        healing = [restart for restart in self.restarts if restart.why != CRASH]
        useless = [restart for restart in healing if not restart.helps]
        first, retries = in_vain(useless)
        recovery = None if self.whole_since is None else max(0.0, self.whole_since - self.trace.cause_end)
        return Row(
            len(self.restarts),
            len(useless),
            first,
            retries,
            max(Counter(restart.slot for restart in useless).values(), default=0),
            burst(healing),
            round(self.lowest),
            round(self.empty / 60, 2),
            round(max(0.0, self.emptied) / 60, 2),
            round(self.unnamed / 60, 2),
            None if recovery is None else round(recovery / 60, 2),
            round(self.spell / 60, 2),
            round(self.lost / 1000, 2),
            self.law,
        )


def in_vain(useless: list[Restart]) -> tuple[int, int]:
    """Of restarts in vain: how many count, and how many are retries of the same replica after their pause."""
    last: dict[Slot, float] = {}
    tries: dict[Slot, int] = {}
    first = retries = 0
    for restart in useless:
        slot, tried = restart.slot, tries.get(restart.slot, 0)
        pause = RETRIES[min(tried, len(RETRIES)) - 1] if tried else 0
        if tried and restart.at - last[slot] >= pause - EARLY:
            retries += 1
        else:
            first += 1
        last[slot] = restart.at
        tries[slot] = tried + 1
    return first, retries


def burst(restarts: list[Restart]) -> int:
    """The most restarts of one slot within `WINDOW`."""
    return max(
        (
            sum(other.slot == restart.slot and 0 <= restart.at - other.at < WINDOW for other in restarts)
            for restart in restarts
        ),
        default=0,
    )
