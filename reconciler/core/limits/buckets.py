"""Token buckets, computed from remembered instants alone: nothing is refilled by a clock that steps, nor by starting again.

A bucket of `burst` tokens that gets one every `interval` allows in every span of time at most `burst` plus one for each
`interval` in it. So the k-th newest of the past ones must be at least (k + 1 - burst) intervals old. Called by `healing`.
"""

from collections.abc import Iterable

from manifests.values.desired import SECOND
from manifests.values.limits import Rate
from reconciler.core.model.instant import Instant, Now, elapsed

MEMORY = 3600 * SECOND
"""How long restarts are remembered for the buckets: no bucket needs longer to fill than that at the rates manifests may ask for."""


def next_at(taken: Iterable[Instant], rate: Rate, now: Now) -> int:
    """The steady instant from which one more token can be taken; <= now.steady when it can.

    Args:
        taken: the instants at which tokens were taken, in any order.
        rate: the bucket.
    """
    interval = 60 * SECOND // rate.per_minute
    newest_first = sorted(elapsed(one, now) for one in taken)
    soonest = now.steady
    for number, age in enumerate(newest_first, start=1):
        wait = (number + 1 - rate.burst) * interval
        if wait > age:
            soonest = max(soonest, now.steady + wait - age)
    return soonest


def remembered(taken: tuple[Instant, ...], now: Now) -> tuple[Instant, ...]:
    """Those that may still matter."""
    return tuple(one for one in taken if elapsed(one, now) < MEMORY)


def room_at(instants: Iterable[Iterable[Instant]], rate: Rate, now: Now) -> int:
    """`next_at` over several objects that share a bucket."""
    return next_at([one for of in instants for one in of], rate, now)
