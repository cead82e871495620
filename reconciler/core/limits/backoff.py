"""How often and how soon a replica may be restarted or started again, and a failed call be retried.

Attempts belong to (workload, ordinal), not to one container. The first failure is acted on at once; after that the waiting
time doubles, with jitter from a hash of name and attempt, so that the same failure gives the same answer everywhere. Token buckets
limit the rate over several objects. Called by `replicas/memory` and `healing` (to count), and by `gates` and `suspensions` (to hold).
"""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256

from manifests.values.desired import SECOND, Backoff, Workload
from manifests.values.limits import Rate
from providers.facts import ContainerFact
from reconciler.core.model.instant import Instant, Now, due, elapsed
from reconciler.core.model.ledger import Failures, StepFailure

JITTER = 0.25
"""Share of a waiting time that the jitter may take away: spread without ever waiting longer than the documented cap."""

STEP_BACKOFF = Backoff(initial=SECOND, maximum=300 * SECOND, reset=600 * SECOND)
"""Waiting times after a failed provider call: 1 s doubling to 5 min."""

REFUSED_BACKOFF = Backoff(initial=5 * SECOND, maximum=300 * SECOND, reset=600 * SECOND)
"""Waiting times after a call that was refused: 5 s doubling to 5 min. The cause may be removed where nothing shows it."""


class Try(StrEnum):
    """The next action for a replica that fails again and again."""

    RESTART = "restart"
    RECREATE = "recreate"
    GIVE_UP = "give up"


def next_try(tries: int, workload: Workload, fact: ContainerFact) -> Try:
    """The next action after so many tries that did not make a replica available: restarts, one recreation, restarts, no more.

    Containers that were not made from the manifest (adopted, or marked for restarts only) are never recreated.
    """
    rule = workload.restarts.escalation
    if fact.adopted or workload.restart_only:
        return Try.RESTART if tries < rule.recreate_after + rule.give_up_after else Try.GIVE_UP
    if tries == rule.recreate_after:
        return Try.RECREATE
    return Try.RESTART if tries <= rule.recreate_after + rule.give_up_after else Try.GIVE_UP


def exhausted(tries: int, workload: Workload, fact: ContainerFact) -> bool:
    """Whether a replica is Failed: only an operator or another template lets it be tried again."""
    return next_try(tries, workload, fact) is Try.GIVE_UP


def _fraction(name: str, attempt: int) -> float:
    digest = sha256(f"{name}\x00{attempt}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def delay(name: str, failures: int, backoff: Backoff) -> int:
    """Nanoseconds to wait after the n-th consecutive failure before the next try: none after the first."""
    if failures <= 1:
        return 0
    full = min(backoff.maximum, backoff.initial << min(failures - 2, 40))
    return full - int(full * JITTER * _fraction(name, failures))


def start_at(name: str, failures: Failures | None, backoff: Backoff, now: Now) -> int:
    """The steady instant from which a replica that is down may be started again; <= now.steady when it may."""
    if failures is None:
        return now.steady
    return due(failures.last, delay(name, failures.streak, backoff), now)


def restart_at(name: str, failures: Failures | None, backoff: Backoff, now: Now) -> int:
    """The steady instant from which a replica that fails now may be restarted: this failure is one more in the row."""
    if failures is None or elapsed(failures.last, now) >= backoff.reset:
        return now.steady
    return due(failures.last, delay(name, failures.streak + 1, backoff), now)


def step_at(step: str, failure: StepFailure, now: Now) -> int:
    """The steady instant of the next try of a failed step; not before the time for which the other side asked."""
    times = REFUSED_BACKOFF if failure.refused else STEP_BACKOFF
    wait = 0 if failure.again else delay(step, failure.streak + 1, times)
    return due(failure.last, max(wait, failure.wait), now)


def recent(attempts: tuple[Instant, ...], window: int, now: Now) -> tuple[Instant, ...]:
    """The attempts that still count."""
    return tuple(attempt for attempt in attempts if elapsed(attempt, now) < window)


def attempts_left_at(attempts: tuple[Instant, ...], limit: int, window: int, now: Now) -> int:
    """The steady instant from which one more attempt fits the window; <= now.steady when it does. The limit is at least 1."""
    counted = recent(attempts, window, now)
    if len(counted) < limit:
        return now.steady
    oldest_first = sorted(counted, key=lambda attempt: elapsed(attempt, now), reverse=True)
    oldest_that_must_leave = oldest_first[len(counted) - limit]
    return due(oldest_that_must_leave, window, now)


# --- token buckets --------------------------------------------------------------------------------------------------

MEMORY = 3600 * SECOND
"""How long restarts are remembered for the buckets: at the rates that manifests may ask for, every bucket is full by then."""


def next_at(taken: Iterable[Instant], rate: Rate, now: Now) -> int:
    """The steady instant from which one more token can be taken; <= now.steady when it can.

    Args:
        taken: the instants at which tokens were taken, in any order.
        rate: the bucket.
    """
    interval = 60 * SECOND // rate.per_minute
    ages = sorted(elapsed(at, now) for at in taken)
    soonest = now.steady
    for number, age in enumerate(ages, start=1):
        wait = (number + 1 - rate.burst) * interval
        if wait > age:
            soonest = max(soonest, now.steady + wait - age)
    return soonest


def remembered(taken: tuple[Instant, ...], now: Now) -> tuple[Instant, ...]:
    """The instants that a bucket may still count."""
    return tuple(at for at in taken if elapsed(at, now) < MEMORY)
