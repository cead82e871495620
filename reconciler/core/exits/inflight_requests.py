"""Requests in flight on a container that leaves: from the counts of balancers and of its own pushes to one number, or unknown.

`traffic/pool` and `traffic/pools` collect the counts, `disruptions` asks.
"""

from typing import NamedTuple

from manifests.values.desired import Push
from providers.facts import Endpoint
from reconciler.core.model.push_fact import PushFact


class Place(NamedTuple):
    """One pool that the container is in. `requests` is what the balancer says is in flight there, None = it cannot say."""

    pool: str
    endpoint: Endpoint
    requests: int | None
    epoch: str


class InflightRequests(NamedTuple):
    """All pools that the container is in."""

    places: tuple[Place, ...]

    @property
    def epochs(self) -> str:
        """Which processes of the balancers count."""
        return " ".join(f"{place.pool}={place.epoch}" for place in sorted(self.places))

    def at(self, place: Place) -> "InflightRequests":
        """The same with one more pool."""
        return InflightRequests((*self.places, place))


NO_POOLS = InflightRequests(())


def count(flight: InflightRequests, same: bool, push: PushFact | None, rules: Push | None, steady: int) -> int | None:
    """How many requests are under way: the larger of what balancers and the container itself count; None = nobody knows.

    Args:
        flight: the counts of the balancers.
        same: the processes that count are those that counted when the drain began; if not, a process of before may still
            have requests of which this one knows nothing.
        push: the latest push of this generation, which counts while it is fresh.
    """
    counts = [place.requests for place in flight.places]
    known = [count for count in counts if count is not None]
    complete = same and len(known) == len(counts)
    said = None
    if push is not None and rules is not None and not push.restored and steady < push.at + rules.fresh:
        said = push.inflight
    largest = max([*known, *([said] if said is not None else [])], default=0)
    if largest or complete or said is not None:
        return largest
    return None
