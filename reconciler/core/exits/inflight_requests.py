"""Requests in flight on a container that leaves: one number from the counts of balancers and of its own pushes, or unknown.

`traffic/pool` and `traffic/pools` collect the counts; `disruptions` asks for the number.
"""

from typing import NamedTuple

from manifests.values.desired import Push
from providers.facts import Endpoint
from reconciler.core.model.push_fact import PushFact


class Place(NamedTuple):
    """One pool that the container is in. `requests` is the balancer's count of requests in flight, None = it has none."""

    pool: str
    endpoint: Endpoint
    requests: int | None
    epoch: str


class InflightRequests(NamedTuple):
    """All pools that the container is in."""

    places: tuple[Place, ...]

    @property
    def epochs(self) -> str:
        """The processes of the balancers that count."""
        return " ".join(f"{place.pool}={place.epoch}" for place in sorted(self.places))

    def at(self, place: Place) -> "InflightRequests":
        """The same with one more pool."""
        return InflightRequests((*self.places, place))


NO_POOLS = InflightRequests(())


def count(inflight: InflightRequests, same: bool, push: PushFact | None, rules: Push | None, steady: int) -> int | None:
    """How many requests are in flight: the larger of the balancers' and the container's own count; None = unknown.

    Args:
        inflight: the counts of the balancers.
        same: the processes that count are those that counted when the drain began; if not, an earlier process may still
            have requests that this one does not count.
        push: the latest push of this generation, which counts while it is fresh.
    """
    counts = [place.requests for place in inflight.places]
    known = [count for count in counts if count is not None]
    complete = same and len(known) == len(counts)
    pushed = None
    if push is not None and rules is not None and not push.restored and steady < push.at + rules.fresh:
        pushed = push.inflight
    largest = max([*known, *([pushed] if pushed is not None else [])], default=0)
    if largest or complete or pushed is not None:
        return largest
    return None
