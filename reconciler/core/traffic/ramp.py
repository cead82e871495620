"""The ramp: how the weight of a new endpoint grows. It is a function of time since the endpoint was ready first, so nothing is kept.

Called by `pool` for endpoints that carried no weight when their generation became ready.
"""

from manifests.values.desired import SECOND
from manifests.values.traffic import Ramp
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed

STEP = SECOND
"""The shortest time between two steps: balancers are looked at about that often, and finer steps would show nowhere."""


def grown(full: int, ramp: Ramp, since: Instant, now: Now) -> tuple[int, int]:
    """(its weight now, the steady instant of the next step). Never 0, and only whole weights are steps.

    Args:
        full: the weight that it comes to.
        since: when it was ready for the first time in its generation.
    """
    low = max(1, -(-full * ramp.min_share // 100))
    age = elapsed(since, now)
    if low >= full or age >= ramp.duration:
        return full, FOREVER
    steps = min(full - low, max(1, ramp.duration // STEP))
    done = age * steps // ramp.duration
    return low + (full - low) * done // steps, due(since, -(-(done + 1) * ramp.duration // steps), now)
