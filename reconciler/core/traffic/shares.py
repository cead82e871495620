"""Shares of the traffic: from the share of each revision to whole weights of its endpoints.

A share belongs to all ready endpoints of a revision together, so it does not depend on their number. Called by `traffic/pool`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.traffic import Ramp
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed
from reconciler.core.model.revision import FULL


class Part(NamedTuple):
    """One revision: its `share` (any unit, above 0) and how many of its endpoints are `ready` (above 0)."""

    share: int
    ready: int


def apportion(parts: Sequence[Part], full: int) -> tuple[tuple[int, ...], ...]:
    """The weights of the endpoints of each part, by largest remainder; the endpoint with the largest share gets `full`.

    No weight is 0: every part with a share gets traffic.
    """
    largest = max((Fraction(part.share, part.ready) for part in parts), default=Fraction(1))
    exact = [full * Fraction(part.share, part.ready) / largest for part in parts]
    floors = [int(weight) for weight in exact]
    missing = round(sum(weight * part.ready for weight, part in zip(exact, parts, strict=True)))
    missing -= sum(weight * part.ready for weight, part in zip(floors, parts, strict=True))
    more = [0] * len(parts)
    for index in sorted(range(len(parts)), key=lambda n: (floors[n] - exact[n], n)):
        if exact[index] > floors[index]:
            more[index] = min(parts[index].ready, max(0, missing))
            missing -= more[index]
    return tuple(
        tuple(max(1, weight + (number < extra)) for number in range(part.ready))
        for weight, extra, part in zip(floors, more, parts, strict=True)
    )


def by_revision(known: Iterable[tuple[tuple[str, str], int]], full: int) -> dict[tuple[str, str], list[int]]:
    """The weights of endpoints of workloads whose revisions have different shares, by revision (workload, hash).

    `known` has one row of (revision, share) for each endpoint that counts: the ready ones, and those with weight that are unknown
    or fail and are not out yet. A canary must not get more traffic because the others are unknown.
    """
    known = list(known)
    shares, counts = dict(known), Counter(revision for revision, _ in known)
    weights: dict[tuple[str, str], list[int]] = {}
    for workload in sorted({name for (name, _), share in shares.items() if share != FULL}):
        revisions = sorted(revision for revision in shares if revision[0] == workload)
        parts = apportion([Part(shares[revision], counts[revision]) for revision in revisions], full)
        weights.update({revision: list(part) for revision, part in zip(revisions, parts, strict=True)})
    return weights


STEP = SECOND
"""The shortest time between two steps: balancers are observed about that often, and finer steps would not show."""


def grown(full: int, ramp: Ramp, since: Instant, now: Now, carried: int = 0, pace: int = 0) -> tuple[int, int]:
    """(its weight now, the steady instant of the next step). Never 0, and only whole weights are steps.

    A ramp lowers nothing: an endpoint that carries more than its ramp would give it now keeps that until the ramp gives more. So a
    ramp that is added, lengthened or begins lower takes no weight.

    Args:
        full: the weight at the end of the ramp.
        since: when it first became ready in its generation.
        carried: the weight that it carries.
        pace: weights change at multiples of this time only (ns, steady clock), so that those of several members go together; 0 = at
            any time.
    """
    low = max(1, -(-full * ramp.min_share // 100))
    age = elapsed(since, now)
    if pace:
        age = max(0, age - now.steady % pace)
    if max(low, carried) >= full or age >= ramp.duration:
        return full, FOREVER
    steps = min(full - low, max(1, ramp.duration // STEP))
    done = age * steps // ramp.duration
    weight = low + (full - low) * done // steps
    step = due(since, -(-(done + 1) * ramp.duration // steps), now)
    return max(weight, carried), -(-step // pace) * pace if pace else step
