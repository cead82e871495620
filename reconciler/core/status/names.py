"""Names in the words of people: what is published, and of each leaf whether it is healthy, and why it is in or out.

Called by `status.rows` when somebody asks; `decide` only keeps what its stage of names found.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from manifests.values.desired import Desired
from manifests.values.dns import DNSPolicy
from providers.facts import ProbeFact, ProbeValue, RecordKey, ZoneFact
from reconciler.core.dns import target_health
from reconciler.core.dns.policies import Named, Names
from reconciler.core.dns.publication import Mode
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.instant import Now
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.status import endpoints


class NameCondition(StrEnum):
    """The state of a name, from good to bad."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    """Some leaves are unhealthy, or the provider cannot hold what was asked for."""
    PROGRESSING = "Progressing"
    """First verdicts are awaited, or what was published for want of anything healthy is about to go."""
    UNHEALTHY = "Unhealthy"
    """Nothing is healthy: what the policy says for that case is published."""
    UNKNOWN = "Unknown"
    """The zone cannot be read, or nothing is known of any leaf."""


def name_rows(snap: Snapshot, names: Names | None) -> list[dict[str, Any]]:
    """Every policy: what is published at its host, its condition, its leaves, and what the provider cannot hold.

    Args:
        names: the answer of the decision; None where a status was made without one.
        now: the decision's instant, to tell steady instants as wall-clock ones.
    """
    found = []
    for policy in snap.desired.policies:
        zone = snap.sight.zones.get((policy.provider, policy.zone))
        named = names.policies.get(policy.key) if names is not None else None
        row: dict[str, Any] = {
            "key": policy.key,
            "host": policy.host,
            "zone": policy.zone,
            "provider": policy.provider,
            "routing": policy.routing.value,
            "published": None if zone is None else sorted(_at_host(policy, zone, named)),
        }
        if named is not None:
            row |= {
                "condition": _condition(named, zone).value,
                "mode": named.answer.mode.value,
                "notes": [
                    {"name": note.key.name, "lack": note.lack.value, "message": note.message} for note in named.notes
                ],
                "leaves": [_leaf(snap, policy, target_address, named) for target_address in named.target_addresses],
            }
        found.append(row)
    return found


def record_rows(snap: Snapshot) -> list[dict[str, Any]]:
    """Every plain record: what is wanted, and what its zone has there; None where the zone cannot be read."""
    found = []
    for record in snap.desired.records:
        zone = snap.sight.zones.get((record.provider, record.zone))
        there = None if zone is None else zone.records.get(RecordKey(record.host, record.type))
        found.append(
            {
                "key": record.key,
                "host": record.host,
                "zone": record.zone,
                "type": record.type,
                "ttl": record.ttl,
                "wanted": list(record.values),
                "published": None if zone is None else list(there.values) if there is not None else [],
            }
        )
    return found


def _at_host(policy: DNSPolicy, zone: ZoneFact, named: Named | None) -> frozenset[str]:
    """What clients get: where the host leads to, or what stands there."""
    if named is not None and named.published is not None:
        return named.published
    return frozenset(
        value
        for key, record in zone.records.items()
        if key.name == policy.host and key.type in ("A", "AAAA")
        for value in record.values
    )


def _condition(named: Named, zone: ZoneFact | None) -> NameCondition:
    mode = named.answer.mode
    if zone is None:
        return NameCondition.UNKNOWN
    if mode is Mode.WAITING or mode is Mode.HOLD_DOWN:
        return NameCondition.PROGRESSING
    values = {target_address.value for target_address in named.target_addresses}
    if mode is Mode.KEPT:
        return NameCondition.UNKNOWN if ProbeValue.UNKNOWN in values else NameCondition.UNHEALTHY
    if mode is Mode.HEALTHY:
        good = values == {ProbeValue.PASS} and not named.notes
        return NameCondition.HEALTHY if good else NameCondition.DEGRADED
    return NameCondition.UNHEALTHY


def _leaf(snap: Snapshot, policy: DNSPolicy, target_address: TargetAddress, named: Named) -> dict[str, Any]:
    published = named.published is not None and target_address.address in named.published
    kept = named.answer.mode is Mode.KEPT
    wanted = (
        published
        if kept
        else target_address.address in named.answer.target_addresses.get(target_address.target, frozenset())
    )
    row: dict[str, Any] = {
        "target": target_address.target,
        "address": target_address.address,
        "healthy": _as_bool(target_address.value),
        "published": None if named.published is None else published,
        "wanted": wanted,
        "forced": target_address.force or None,
        "override": None if target_address.order is None else endpoints.order_words(target_address.order, snap.now),
        "why": _why(policy, target_address, named, wanted=wanted, published=published),
        "service": None if target_address.service is None else target_address.service.value,
    }
    return row | {
        "check": None
        if target_address.probe is None
        else answer_row(target_address.probe, snap.observed.target_answers, snap.now)
    }


def _as_bool(value: ProbeValue) -> bool | None:
    if value is ProbeValue.PASS:
        return True
    return False if value is ProbeValue.FAIL else None


_BY_MODE = {
    Mode.KEPT: "nothing is sure to be healthy, so what is published stays",
    Mode.WAITING: "waits for its first verdict",
    Mode.HOLD_DOWN: "something is healthy again, but not yet for long enough to take the rest away",
    Mode.NOTHING: "nothing is healthy, and nothing was published",
}


def _why(policy: DNSPolicy, target_address: TargetAddress, named: Named, *, wanted: bool, published: bool) -> str:
    """Why a leaf is in or out, in a few words."""
    mode = named.answer.mode
    if target_address.force == "down" and not (mode is Mode.KEPT and published):
        return f"{_by(target_address)}, about to be withdrawn" if published else _by(target_address)
    if mode is Mode.ALL_UNHEALTHY:
        if wanted:
            fallback = target_address.target == policy.fallback
            return "nothing else is healthy" if fallback else "all are unhealthy, so all are published"
        return f"all are unhealthy, and the policy says {policy.fallback or policy.all_unhealthy.value}"
    if mode is not Mode.HEALTHY:
        return _BY_MODE[mode]
    if target_address.target == policy.fallback:
        return "serves only when nothing else is healthy"
    if target_address.leaving:
        return "is on its way out"
    if target_address.value is ProbeValue.PASS:
        healthy = _by(target_address) if target_address.force else "healthy"
        return healthy if published else f"{healthy}, about to be published"
    if target_address.value is ProbeValue.FAIL:
        return "unhealthy, about to be withdrawn" if published else "unhealthy"
    return "not known, so it stays" if wanted else "joins after its first success"


def _by(target_address: TargetAddress) -> str:
    """Whose word forces a leaf, and why."""
    if target_address.order is None:
        return f"forced {target_address.force} by the policy"
    return f"forced {target_address.force} by {target_address.order.who or 'somebody'} ({target_address.order.reason or 'no reason given'})"


_HEALTHY = {ProbeValue.PASS: True, ProbeValue.FAIL: False}
"""Everything else is not known: None."""


def failures(fact: ProbeFact, target_address: TargetProbe) -> int:
    """How many checks in a row failed; one that says nothing of the leaf neither adds to them nor ends them."""
    if fact.last is ProbeValue.PASS:
        return 0
    if fact.last is ProbeValue.FAIL or fact.value is ProbeValue.FAIL:
        return fact.streak
    fails, passes = target_address.check.failure_threshold, target_address.check.success_threshold
    return fact.streak if fails != passes and fact.threshold == fails else 0


def answer_row(
    target_address: TargetProbe | None, answers: Mapping[TargetProbe, ProbeFact], now: Now
) -> dict[str, Any]:
    """What is known of one leaf by its check: `healthy` (None = not known), `consecutive_failures` of `failure_threshold`,
    `reason`, and `last_check_wall` (ns, None = none yet). Without a check, all of it is None."""
    fact = None if target_address is None else answers.get(target_address)
    if target_address is None or fact is None:
        return {
            "healthy": None,
            "consecutive_failures": None if target_address is None else 0,
            "failure_threshold": None if target_address is None else target_address.check.failure_threshold,
            "reason": "no check is asked" if target_address is None else "not checked yet",
            "last_check_wall": None,
        }
    value = target_health.verdict(answers, target_address, now.steady).value
    reason = fact.detail
    if value is ProbeValue.UNKNOWN and fact.last_at + fact.valid_for <= now.steady:
        reason = f"the last check is too old to count: {reason}"
    return {
        "healthy": _HEALTHY.get(value),
        "consecutive_failures": failures(fact, target_address),
        "failure_threshold": target_address.check.failure_threshold,
        "reason": reason,
        "last_check_wall": now.wall - now.steady + fact.last_at,
    }


def check_rows(desired: Desired, answers: Mapping[TargetProbe, ProbeFact], now: Now) -> list[dict[str, Any]]:
    """One row for each HealthCheck document, with the targets that it decides about as `policy key/target`."""
    users: dict[str, list[str]] = {}
    for policy in desired.policies:
        for target in policy.targets:
            if target.check:
                users.setdefault(target.check, []).append(f"{policy.key}/{target.name}")
    return [
        {
            "key": check.key,
            "address": check.address.removesuffix("."),
            "protocol": check.check.protocol,
            "port": check.check.port,
            "path": check.check.path,
            **answer_row(TargetProbe(check.address, check.check), answers, now),
            "decides_about": sorted(users.get(check.key, ())),
        }
        for check in desired.checks
    ]
