"""Omission: which leaves of a name are published. A pure function of the policy, its leaves, what is published, and the time.

Unhealthy leaves go; with all of them unhealthy the policy says what is published. What is not known stays as it is: in while
it is published, out while it is not. While every leaf passes or fails, outside a hold-down and with `publishAll`, the answer
depends on nothing else: it is the same whatever happened before. Called by `names`.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.dns import AllUnhealthy, DNSPolicy, Publish
from providers.facts import ProbeValue, RecordKey, RecordSet
from reconciler.core.dns import records, target_health
from reconciler.core.dns.records import Sets
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.dns_memory import NOTHING, NameRow
from reconciler.core.model.instant import FOREVER, Now, due, instant

HOLD_DOWN = 60 * SECOND
"""How long something must be healthy again, at least, before what was published for want of it goes: clients of resolvers
that remember for a minute would otherwise see the name swing between one address and all."""

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN


class Mode(StrEnum):
    """What an answer follows from."""

    HEALTHY = "Healthy"
    ALL_UNHEALTHY = "AllUnhealthy"
    HOLD_DOWN = "HoldDown"
    KEPT = "Kept"
    """Nothing is sure to be healthy, so what is published stays."""
    WAITING = "Waiting"
    """Nothing is published yet, and first verdicts are awaited."""
    NOTHING = "Nothing"
    """There is nothing to publish."""


_HEALTHY = Mode.HEALTHY


class Answer(NamedTuple):
    """Which leaves are in, by target. `mode` KEPT: the records stay as they are, whatever `leaves` says.

    `row` is what is to be remembered, `until` the steady instant until which this holds on the same facts, `wait` the one at
    which a round of first verdicts or a hold-down ends.
    """

    mode: Mode
    target_addresses: Mapping[str, frozenset[str]]
    row: NameRow
    until: int = FOREVER
    wait: int | None = None


def omit(
    policy: DNSPolicy,
    target_addresses: Collection[TargetAddress],
    published: frozenset[str],
    row: NameRow,
    blind: bool,
    now: Now,
) -> Answer:
    """Which leaves are published.

    Args:
        policy: says what happens when nothing is healthy.
        leaves: all of them, with their health.
        published: addresses and host names that the zone has for this policy.
        row: what is remembered of this policy.
        blind: a node cannot be seen, so there may be endpoints that are not among the leaves.
        now: this instant.
    """
    until = min([target_address.until for target_address in target_addresses], default=FOREVER)
    regular = (
        [target_address for target_address in target_addresses if target_address.target != policy.fallback]
        if policy.fallback
        else target_addresses
    )
    blind = blind and any(target.publish is Publish.ENDPOINTS for target in policy.targets)
    case = _Case(policy, tuple(target_addresses), tuple(regular), published, row, until, now)
    if any(target_address.value is _PASS for target_address in regular):
        return _healthy(case)
    if blind or any(target_address.value is _UNKNOWN for target_address in regular):
        return _undecided(case)
    return _all_unhealthy(case)


class _Case(NamedTuple):
    """What one policy is judged by. `regular` are the leaves of all targets but the fallback."""

    policy: DNSPolicy
    target_addresses: tuple[TargetAddress, ...]
    regular: tuple[TargetAddress, ...]
    published: frozenset[str]
    row: NameRow
    until: int
    now: Now


def _healthy(case: _Case) -> Answer:
    chosen = [
        one for one in case.regular if one.value is _PASS or (one.value is _UNKNOWN and one.address in case.published)
    ]
    if case.row.down is None:
        return Answer(_HEALTHY, _by_target(chosen), NOTHING, case.until)
    over = case.row.over or instant(case.now)
    end = due(over, _hold_down(case.policy), case.now)
    if end <= case.now.steady or not _swings(case.policy):
        return Answer(_HEALTHY, _by_target(chosen), NOTHING, case.until)
    # Only what is there is kept: nothing unhealthy joins because something else has become healthy.
    sure = {one.address for one in chosen}
    kept = [
        target_address
        for target_address in case.target_addresses
        if target_address.address in case.published
        and target_address.address not in sure
        and _spare(case.policy, target_address)
    ]
    if not kept:
        return Answer(_HEALTHY, _by_target(chosen), NOTHING, case.until)
    chosen += kept
    return Answer(Mode.HOLD_DOWN, _by_target(chosen), NameRow(down=case.row.down, over=over), min(case.until, end), end)


def _undecided(case: _Case) -> Answer:
    """Nothing is sure to be healthy, and of something it is not known: that counts on the side that holds."""
    if case.published:
        return Answer(Mode.KEPT, {}, case.row, case.until)
    asked = [case.policy.check] if case.policy.check is not None else []
    asked += [one.probe.check for one in case.regular if one.probe is not None]
    if not asked:
        return Answer(Mode.WAITING, {}, NOTHING, case.until)
    waiting = case.row.waiting or instant(case.now)
    end = due(waiting, max(target_health.round_of(check) for check in asked), case.now)
    if end > case.now.steady:
        return Answer(Mode.WAITING, {}, NameRow(waiting=waiting), min(case.until, end), end)
    # Waited for one round: from here on as if all had failed, because a name without an answer helps nobody.
    return _all_unhealthy(case._replace(row=NameRow(waiting, case.row.down, case.row.over)))


def _all_unhealthy(case: _Case) -> Answer:
    candidates = [one for one in case.regular if not one.leaving]
    row = NameRow(waiting=case.row.waiting, down=case.row.down)
    if _swings(case.policy) and row.down is None:
        # A name that nobody has had an answer from cannot swing: its first healthy leaf is not held down.
        first = row.waiting or (None if case.published else instant(case.now))
        row = NameRow(waiting=first) if first is not None else NameRow(down=instant(case.now))
    if case.policy.all_unhealthy is AllUnhealthy.CLOSED and (candidates or not case.published):
        return Answer(Mode.ALL_UNHEALTHY, {}, row, case.until)
    if case.policy.all_unhealthy is AllUnhealthy.FALLBACK:
        spare = [
            target_address
            for target_address in case.target_addresses
            if target_address.target == case.policy.fallback and not target_address.leaving
        ]
        if spare:
            return Answer(Mode.ALL_UNHEALTHY, _by_target(spare), row, case.until)
    if case.policy.all_unhealthy is AllUnhealthy.PUBLISH_ALL and candidates:
        return Answer(Mode.ALL_UNHEALTHY, _by_target(candidates), row, case.until)
    return Answer(Mode.KEPT if case.published else Mode.NOTHING, {}, NameRow(waiting=row.waiting), case.until)


def _spare(policy: DNSPolicy, target_address: TargetAddress) -> bool:
    """Whether a leaf may be published while nothing is healthy."""
    if policy.all_unhealthy is AllUnhealthy.FALLBACK:
        return target_address.target == policy.fallback
    return target_address.target != policy.fallback and not target_address.leaving


def _swings(policy: DNSPolicy) -> bool:
    """Whether something else is published while nothing is healthy, which must not swing back and forth."""
    return policy.all_unhealthy in (AllUnhealthy.PUBLISH_ALL, AllUnhealthy.FALLBACK)


def _hold_down(policy: DNSPolicy) -> int:
    """Two rounds of the check, and a minute at least (ns)."""
    return HOLD_DOWN if policy.check is None else max(HOLD_DOWN, 2 * policy.check.interval)


def _by_target(target_addresses: Iterable[TargetAddress]) -> dict[str, frozenset[str]]:
    found: dict[str, list[str]] = {}
    for target_address in target_addresses:
        found.setdefault(target_address.target, []).append(target_address.address)
    return {target: frozenset(found[target]) for target in sorted(found)}


# --- what clients reach ------------------------------------------------------------------------------------------------


def reached(host: str, current: Sets) -> frozenset[str]:
    """Addresses and outside names that the host leads to: what clients can get."""
    at: dict[str, list[tuple[RecordKey, RecordSet]]] = {}
    for key, record in current.items():
        at.setdefault(key.name, []).append((key, record))
    found: set[str] = set()
    waiting, done = [host], {host}
    while waiting:
        for key, record in at.get(waiting.pop(), ()):
            targets = records.points_at(key, record)
            if not targets:
                if key.type in records.ADDRESS_TYPES:
                    found.update(record.values)
                continue
            for name in targets:
                if name not in at:
                    found.add(name)
                elif name not in done:
                    done.add(name)
                    waiting.append(name)
    return frozenset(found)


def unseen(
    policy: DNSPolicy, target_addresses: tuple[TargetAddress, ...], there: frozenset[str]
) -> list[TargetAddress]:
    """Published addresses without an endpoint that can be seen, while a node cannot: they may well be alive."""
    target = next((one for one in policy.targets if one.publish == "endpoints"), None)
    if target is None:
        return []
    alive = {target_address.address for target_address in target_addresses}
    return [
        TargetAddress(target.name, address, ProbeValue.UNKNOWN, service=ProbeValue.UNKNOWN)
        for address in sorted(there - alive)
        if not address.endswith(".")
    ]
