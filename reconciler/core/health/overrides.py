"""Overrides: what people order about endpoints and targets of names. An order ranks above pushes and probes; only facts rank above it.

Orders are about a replica with all its endpoints (`workload/web/0`) or one member of one pool (`endpoint/PROVIDER/POOL/ADDRESS:PORT`);
the latter ranks higher, because it says more. Those about one target of a name (`dnspolicy/app/eu`) say whether it is healthy, and
rank above its manifest. Called by `trust` for replicas, by `weights` for members, by `leaves` for targets, by `ledger.obey` for commands.
"""

from collections.abc import Mapping

from providers.facts import Endpoint
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.override import Force, Override
from reconciler.core.model.reasons import Hold, Rule


def endpoint_key(provider: str, pool: str, endpoint: Endpoint) -> str:
    """The object that stands for one member of one pool."""
    return f"endpoint/{provider}/{pool}/{endpoint.address}:{endpoint.port}"


def target_key(policy: str, target: str) -> str:
    """The object that stands for one target of a name."""
    return f"{policy}/{target}"


def in_force(overrides: Mapping[str, Override], key: str, now: Now) -> Override | None:
    """The order about this object that has not expired."""
    one = overrides.get(key)
    return one if one is not None and (not one.until_wall or one.until_wall > now.wall) else None


def kept_out(overrides: Mapping[str, Override], key: str, name: str, now: Now) -> Hold | None:
    """The hold on a replica (`key`, its container's `name`) that a person took out of traffic; None when nobody did."""
    one = in_force(overrides, key, now)
    if one is None or one.force is Force.UP:
        return None
    done = "drained" if one.force is Force.DRAIN else "forced down"
    message = f"{key} was {done} by {one.who or 'somebody'}: {one.reason or 'no reason given'}"
    until = expires_at(one, now) if one.until_wall else None
    return Hold(
        key, f"give traffic to {name}", Rule.OVERRIDDEN, message, until=until, next_step=f"reconcile release {key}"
    )


def expires_at(override: Override, now: Now) -> int:
    """The steady instant at which an order expires by itself."""
    return now.steady + override.until_wall - now.wall if override.until_wall else FOREVER
