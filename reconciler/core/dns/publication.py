"""Chooses the target addresses that a name publishes, from the policy, their health, what is published, and the time. Pure.

Unhealthy target addresses are withdrawn; when all are unhealthy, the policy says what is published. A target address of unknown
health stays as it is, published or not. While all pass or fail, outside a hold-down and with `publishAll`, the answer does not
depend on history. `dns/policies` calls it.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.dns import AllUnhealthy, DNSPolicy, Routing
from providers.facts import ProbeValue, RecordKey, RecordSet
from reconciler.core.dns import records
from reconciler.core.dns.records import Sets
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.dns_memory import NOTHING, NameRow
from reconciler.core.model.instant import FOREVER, Now, due, instant

HOLD_DOWN = 60 * SECOND
"""Shortest time that a target address must be healthy again before the unhealthy ones are withdrawn (ns). Otherwise clients of
resolvers that cache for a minute would see the name swing between one address and all."""

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN


class Mode(StrEnum):
    """What an answer follows from."""

    HEALTHY = "Healthy"
    ALL_UNHEALTHY = "AllUnhealthy"
    HOLD_DOWN = "HoldDown"
    FAILED_AGAIN = "FailedAgain"
    """All are unhealthy again soon after one was healthy, so the published ones stay for a while."""
    KEPT = "Kept"
    """Nothing is known to be healthy, so the published record sets stay."""
    WAITING = "Waiting"
    """Nothing is published yet, and there are no probe results yet."""
    NOTHING = "Nothing"
    """There is nothing to publish."""


_HEALTHY = Mode.HEALTHY


class Answer(NamedTuple):
    """The chosen target addresses by target. With `mode` KEPT the records stay as they are, whatever `target_addresses` says.

    `row` is to be remembered. On the same facts the answer holds until the steady instant `until`. `wait` is the steady instant
    at which the first round of probes or a hold-down ends. `spare` are targets that are published for want of better ones: their
    place never serves the clients of no other place while another one can.
    """

    mode: Mode
    target_addresses: Mapping[str, frozenset[str]]
    row: NameRow
    until: int = FOREVER
    wait: int | None = None
    spare: frozenset[str] = frozenset()


def choose(
    policy: DNSPolicy,
    target_addresses: Collection[TargetAddress],
    published: frozenset[str],
    row: NameRow,
    partly_unseen: bool,
    now: Now,
) -> Answer:
    """Choose the target addresses to publish.

    Args:
        policy: says what is published when nothing is healthy.
        target_addresses: all of them, with their health.
        published: addresses and host names that the zone has for this policy.
        row: what is remembered of this policy.
        partly_unseen: endpoints may be missing from `target_addresses`, because they are on nodes that cannot be read.
        now: this instant.
    """
    until = min([target_address.until for target_address in target_addresses], default=FOREVER)
    regular = (
        [target_address for target_address in target_addresses if target_address.target != policy.fallback]
        if policy.fallback
        else target_addresses
    )
    case = _Case(policy, tuple(target_addresses), tuple(regular), published, row, until, now)
    if any(target_address.value is _PASS for target_address in regular):
        return _healthy(case)
    if partly_unseen or any(target_address.value is _UNKNOWN for target_address in regular):
        return _undecided(case)
    return _all_unhealthy(case)


class _Case(NamedTuple):
    """The facts about one policy. `regular` are the target addresses of all targets but the fallback."""

    policy: DNSPolicy
    target_addresses: tuple[TargetAddress, ...]
    regular: tuple[TargetAddress, ...]
    published: frozenset[str]
    row: NameRow
    until: int
    now: Now


def _healthy(case: _Case) -> Answer:
    chosen = [
        target_address
        for target_address in case.regular
        if (target_address.value is _PASS and not target_address.held_until)
        or (target_address.value is _UNKNOWN and target_address.address in case.published)
    ]
    if case.row.down is None:
        return Answer(_HEALTHY, _by_target(chosen), NOTHING, case.until)
    over = case.row.over or instant(case.now)
    end = due(over, _hold_down(case.policy), case.now)
    if end <= case.now.steady or not _swings(case.policy):
        return Answer(_HEALTHY, _by_target(chosen), NOTHING, case.until)
    row, until = NameRow(down=case.row.down, over=over), min(case.until, end)
    # Only published addresses are kept: no unhealthy one joins because another has become healthy. And only beside a healthy one:
    # in a tree, the clients of a target or place without any would get nothing else.
    healthy = {target_address.address for target_address in chosen}
    sound = frozenset(target_address.target for target_address in chosen)
    kept = [
        target_address
        for target_address in case.target_addresses
        if target_address.address in case.published
        and target_address.address not in healthy
        and _spare(case.policy, target_address)
        and (
            case.policy.routing is Routing.SIMPLE
            or target_address.target in sound
            or target_address.target == case.policy.fallback
        )
    ]
    if not kept:
        return Answer(_HEALTHY, _by_target(chosen), row, until)
    spare = frozenset(target_address.target for target_address in kept) - sound
    return Answer(Mode.HOLD_DOWN, _by_target([*chosen, *kept]), row, until, end, spare)


def _undecided(case: _Case) -> Answer:
    """No address is known to be healthy, some are unknown: the published ones stay; else one round of probes is awaited."""
    if case.published:
        return Answer(Mode.KEPT, {}, case.row, case.until)
    checks = [case.policy.check] if case.policy.check is not None else []
    checks += [target_address.probe.check for target_address in case.regular if target_address.probe is not None]
    if not checks:
        return Answer(Mode.WAITING, {}, NOTHING, case.until)
    waiting = case.row.waiting or instant(case.now)
    end = due(waiting, max(check.first_verdict for check in checks), case.now)
    if end > case.now.steady:
        return Answer(Mode.WAITING, {}, NameRow(waiting=waiting), min(case.until, end), end)
    # The first round is over: treat all as failed, because a name without an answer serves no client.
    return _all_unhealthy(case._replace(row=NameRow(waiting, case.row.down, case.row.over)))


def _all_unhealthy(case: _Case) -> Answer:
    candidates = [target_address for target_address in case.regular if not target_address.leaving]
    row = NameRow(waiting=case.row.waiting, down=case.row.down)
    if _swings(case.policy) and row.down is None:
        # A name that was never published cannot swing: its first healthy target address is not held down.
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
        again = _failed_again(case, candidates)
        if again is not None:
            return again
        return Answer(Mode.ALL_UNHEALTHY, _by_target(candidates), row, case.until)
    return Answer(Mode.KEPT if case.published else Mode.NOTHING, {}, NameRow(waiting=row.waiting), case.until)


def _failed_again(case: _Case, candidates: list[TargetAddress]) -> Answer | None:
    """The published addresses stay when all fail again before the hold-down is over: the name would swing with each flap."""
    if case.row.down is None or case.row.over is None:
        return None
    end = due(case.row.over, _hold_down(case.policy), case.now)
    stay = [target_address for target_address in candidates if target_address.address in case.published]
    if end <= case.now.steady or not stay or len(stay) == len(candidates):
        return None
    row = NameRow(case.row.waiting, case.row.down, case.row.over)
    return Answer(Mode.FAILED_AGAIN, _by_target(stay), row, min(case.until, end), end)


def _spare(policy: DNSPolicy, target_address: TargetAddress) -> bool:
    """Whether a target address may be published while nothing is healthy."""
    if policy.all_unhealthy is AllUnhealthy.FALLBACK:
        return target_address.target == policy.fallback
    return target_address.target != policy.fallback and not target_address.leaving


def _swings(policy: DNSPolicy) -> bool:
    """Whether the policy publishes other addresses while nothing is healthy, so that the name could swing."""
    return policy.all_unhealthy in (AllUnhealthy.PUBLISH_ALL, AllUnhealthy.FALLBACK)


def _hold_down(policy: DNSPolicy) -> int:
    """Two rounds of the check, at least a minute (ns)."""
    return HOLD_DOWN if policy.check is None else max(HOLD_DOWN, 2 * policy.check.interval)


def _by_target(target_addresses: Iterable[TargetAddress]) -> dict[str, frozenset[str]]:
    by_target: dict[str, list[str]] = {}
    for target_address in target_addresses:
        by_target.setdefault(target_address.target, []).append(target_address.address)
    return {target: frozenset(by_target[target]) for target in sorted(by_target)}


# --- what clients reach ------------------------------------------------------------------------------------------------


def reachable(host: str, current: Sets) -> frozenset[str]:
    """The addresses and outside names that clients of the host can get."""
    at: dict[str, list[tuple[RecordKey, RecordSet]]] = {}
    for key, record in current.items():
        at.setdefault(key.name, []).append((key, record))
    ends: set[str] = set()
    waiting, done = [host], {host}
    while waiting:
        for key, record in at.get(waiting.pop(), ()):
            targets = records.points_at(key, record)
            if not targets:
                if key.type in records.ADDRESS_TYPES:
                    ends.update(record.values)
                continue
            for name in targets:
                if name not in at:
                    ends.add(name)
                elif name not in done:
                    done.add(name)
                    waiting.append(name)
    return frozenset(ends)
