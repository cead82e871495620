"""Overrides: an operator's drain or force of endpoints and targets of names. They rank above pushes and probes; only facts rank higher.

An override is about a replica with all its endpoints (`workload/web/0`) or about one member of one pool
(`endpoint/PROVIDER/POOL/ADDRESS:PORT`); the latter ranks higher, because it is more exact. An override of one target of a name
(`dnspolicy/app/eu`) decides whether it is healthy, and ranks above its manifest. Called by `replicas/roster` for replicas, by
`traffic/pool` for members, by `dns/targets` for targets.
"""

from collections.abc import Mapping

from providers.facts import Endpoint
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.override import Force, Override
from reconciler.core.model.reasons import Hold, Rule


def endpoint_key(provider: str, pool: str, endpoint: Endpoint) -> str:
    """The key of one member of one pool."""
    return f"endpoint/{provider}/{pool}/{endpoint.address}:{endpoint.port}"


def target_key(policy: str, target: str) -> str:
    """The key of one target of a name."""
    return f"{policy}/{target}"


def in_force(overrides: Mapping[str, Override], key: str, now: Now) -> Override | None:
    """The override of this object that is in effect: it has not expired, and does not wait until something else serves."""
    override = overrides.get(key)
    if override is None or override.waits or (override.until_wall and override.until_wall <= now.wall):
        return None
    return override


def kept_out(overrides: Mapping[str, Override], key: str, name: str, now: Now) -> Hold | None:
    """The hold on a replica (`key`, its container's `name`) that an operator took out of traffic; None without an override."""
    override = in_force(overrides, key, now)
    if override is None or override.force is Force.UP:
        return None
    done = f"drained {key}" if override.force is Force.DRAIN else f"forced {key} down"
    message = f"{override.who or 'an operator'} {done}: {override.reason or 'no reason given'}"
    until = expires_at(override, now) if override.until_wall else None
    return Hold(
        key, f"give traffic to {name}", Rule.OVERRIDDEN, message, until=until, next_step=f"reconcile release {key}"
    )


def expires_at(override: Override, now: Now) -> int:
    """The steady instant at which an override expires by itself."""
    return now.steady + override.until_wall - now.wall if override.until_wall else FOREVER
