"""Target addresses that flap: each failure soon after the one before makes the way back into the name longer.

A withdrawal is never delayed. What is delayed is only the return of an address that the name does not publish now, and only while
another healthy address is there: a name does not stay without its last healthy address. `dns/policies` calls `follow`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.dns import DNSPolicy
from providers.facts import ProbeValue
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.dns_memory import Flap
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant

FIRST = 30 * SECOND
"""How long (ns) an address must be healthy again after its second failure in a row, or two intervals of its check if that is longer.
It doubles with each further failure. Below half a minute, resolvers that cache for the usual 60 s would see most of the changes."""

LONGEST = 900 * SECOND
"""The longest such time (ns). RFC 2439, the damping of routes that flap, has a half-life of 15 minutes in the usual settings
(RIPE-580); a longer time would hide from the operator that the address is good again."""

FORGET = 900 * SECOND
"""After this time of health beyond the delay (ns), a failure counts as the first one again."""

MOST = 20
"""Failures are not counted beyond this: the delay is the longest one long before."""


class Followed(NamedTuple):
    """The target addresses, those that stay out with `held_until`; the rows to remember; and when the answer changes (steady ns)."""

    target_addresses: tuple[TargetAddress, ...]
    rows: dict[str, Flap]
    until: int


def key_of(policy: str, target_address: TargetAddress) -> str:
    """The key of a row: one target address of one policy."""
    return f"{policy}/{target_address.target}/{target_address.address}"


def delay(failures: int, interval: int) -> int:
    """How long (ns) an address must be healthy before it returns: nothing after the first failure, then doubling up to `LONGEST`."""
    if failures < 2:
        return 0
    return min(LONGEST, max(FIRST, 2 * interval) << min(failures - 2, MOST))


def follow(
    policy: DNSPolicy,
    target_addresses: Iterable[TargetAddress],
    published: frozenset[str],
    rows: Mapping[str, Flap],
    now: Now,
) -> Followed:
    """Count the failures of published addresses, and hold back those that failed again and again.

    Args:
        policy: the policy; its fallback is never held back.
        target_addresses: all of them, with their health.
        published: addresses and host names that the zone has for this policy.
        rows: the rows of all policies before this decision.
        now: this instant.
    """
    found = tuple(target_addresses)
    kept: dict[str, Flap] = {}
    times: dict[int, tuple[int, Flap]] = {}
    steady = False
    for index, target_address in enumerate(found):
        key = key_of(policy.key, target_address)
        row = _next(rows.get(key), target_address, published, _interval(policy, target_address), now)
        if row is not None:
            kept[key] = row
        if target_address.value is not ProbeValue.PASS or target_address.target == policy.fallback:
            continue
        ends = _ends(row, target_address, published, _interval(policy, target_address), now)
        if row is None or ends <= now.steady:
            steady = True
        else:
            times[index] = ends, row
    if not steady or not times:
        return Followed(found, kept, FOREVER)
    held = tuple(
        target_address
        if index not in times
        else target_address._replace(held_until=times[index][0], failures=times[index][1].failures)
        for index, target_address in enumerate(found)
    )
    return Followed(held, kept, min(ends for ends, _ in times.values()))


def _next(
    row: Flap | None, target_address: TargetAddress, published: frozenset[str], interval: int, now: Now
) -> Flap | None:
    """The row of an address after this look. A planned exit or an operator's override is no failure."""
    if target_address.value is ProbeValue.FAIL and not target_address.leaving:
        if row is None:
            return Flap(1) if target_address.address in published else None
        if row.passed is None:
            return row
        again = elapsed(row.passed, now) < delay(row.failures, interval) + FORGET
        return Flap(min(row.failures + 1, MOST) if again else 1)
    if target_address.value is ProbeValue.PASS and row is not None and row.passed is None:
        return row._replace(passed=instant(now))
    return row


def _ends(row: Flap | None, target_address: TargetAddress, published: frozenset[str], interval: int, now: Now) -> int:
    """The steady instant until which a healthy address stays out; <= now.steady when it may be published."""
    if row is None or row.passed is None or target_address.force or target_address.address in published:
        return now.steady
    return due(row.passed, delay(row.failures, interval), now)


def _interval(policy: DNSPolicy, target_address: TargetAddress) -> int:
    """The time between two probes of an address (ns); 0 where readiness decides alone."""
    if target_address.probe is not None:
        return target_address.probe.check.interval
    return 0 if policy.check is None else policy.check.interval
