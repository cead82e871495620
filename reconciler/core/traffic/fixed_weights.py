"""Weights that a pool does not take: some balancing algorithms take only 0 and full weight at run time.

Such a pool still gets traffic, so weights are rounded, and a hold names what is lost: an own weight, a ramp, the share of a
canary. Called by `traffic/pool`, and by `reconcile doctor`.
"""

from manifests.values.desired import Balancer, Service
from providers.facts import ON_WEIGHT, PoolFact, Weights
from reconciler.core.model.reasons import Hold, Rule

NEXT_STEP = (
    "use balance roundrobin, leastconn or random (for hashing: hash-type consistent) and slots of weight 0,"
    f" or set weight {ON_WEIGHT} without ramp"
)


def rounded(service: Service, pool: PoolFact) -> int:
    """The full weight of an endpoint of this service in this pool."""
    return ON_WEIGHT if service.weight and pool.weights is Weights.ON_OFF else service.weight


def lost(service: Service, pool: PoolFact, shares: bool) -> str:
    """What of the manifest this pool does not take, and why; empty if it takes everything.

    Args:
        shares: revisions share the traffic.
    """
    if pool.weights is not Weights.ON_OFF or not service.weight:
        return ""
    parts = [f"weight {service.weight} becomes {ON_WEIGHT}"] if service.weight != ON_WEIGHT else []
    parts += ["its ramp has no effect"] if service.ramp is not None else []
    parts += ["a canary gets the same weight as every other replica"] if shares else []
    if not parts:
        return ""
    why = f"{pool.algorithm or 'its algorithm'} takes only weights 0 and {ON_WEIGHT} at run time"
    return f"in pool {pool.pool} {', '.join(parts)}: {why}"


def hold(service: Service, balancer: Balancer, pool: PoolFact, shares: bool) -> Hold | None:
    """The hold that names what is lost."""
    message = lost(service, pool, shares)
    action = f"weights of {balancer.provider}/{balancer.pool} as declared"
    return Hold(service.key, action, Rule.FIXED_WEIGHTS, message, next_step=NEXT_STEP) if message else None
