"""One row for each name: what it publishes, and for each target address whether it is healthy and why it is in or out.

Called by `status/objects.rows`; `decide` only keeps the result of its stage of names.
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
    """Some target addresses are unhealthy, or the provider cannot publish all that the policy declares."""
    PROGRESSING = "Progressing"
    """First verdicts are missing, or addresses that were published because none was healthy are about to be withdrawn."""
    UNHEALTHY = "Unhealthy"
    """No target address is healthy: the policy's answer for that case is published."""
    UNKNOWN = "Unknown"
    """The zone cannot be read, or no target address has a verdict."""


def name_rows(snap: Snapshot, names: Names | None) -> list[dict[str, Any]]:
    """Every policy: its published addresses, its condition, its target addresses, and what the provider cannot publish.

    Args:
        names: the result of the stage of names; None for a status without one.
    """
    rows: list[dict[str, Any]] = []
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
                "leaves": [
                    _target_row(snap, policy, target_address, named) for target_address in named.target_addresses
                ],
            }
        rows.append(row)
    return rows


def record_rows(snap: Snapshot) -> list[dict[str, Any]]:
    """Every plain record: its declared values, and the values in its zone; None where the zone cannot be read."""
    rows: list[dict[str, Any]] = []
    for record in snap.desired.records:
        zone = snap.sight.zones.get((record.provider, record.zone))
        published = None if zone is None else zone.records.get(RecordKey(record.host, record.type))
        rows.append(
            {
                "key": record.key,
                "host": record.host,
                "zone": record.zone,
                "type": record.type,
                "ttl": record.ttl,
                "wanted": list(record.values),
                "published": None if zone is None else list(published.values) if published is not None else [],
            }
        )
    return rows


def _at_host(policy: DNSPolicy, zone: ZoneFact, named: Named | None) -> frozenset[str]:
    """What clients get: the addresses that the host leads to, or the records at the host itself."""
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


def _target_row(snap: Snapshot, policy: DNSPolicy, target_address: TargetAddress, named: Named) -> dict[str, Any]:
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
        "override": None if target_address.order is None else endpoints.override_row(target_address.order, snap.now),
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
    Mode.KEPT: "no address is known to be healthy, so published addresses stay",
    Mode.WAITING: "has no verdict yet",
    Mode.HOLD_DOWN: "an address is healthy again, but not for long enough yet to withdraw the others",
    Mode.NOTHING: "no address is healthy, and none was published",
}


def _why(policy: DNSPolicy, target_address: TargetAddress, named: Named, *, wanted: bool, published: bool) -> str:
    """Why a target address is in or out."""
    mode = named.answer.mode
    if target_address.force == "down" and not (mode is Mode.KEPT and published):
        return f"{_by(target_address)}, about to be withdrawn" if published else _by(target_address)
    if mode is Mode.ALL_UNHEALTHY:
        if wanted:
            fallback = target_address.target == policy.fallback
            return "no other target is healthy" if fallback else "all targets are unhealthy, so all are published"
        return f"all targets are unhealthy, and the policy says {policy.fallback or policy.all_unhealthy.value}"
    if mode is not Mode.HEALTHY:
        return _BY_MODE[mode]
    if target_address.target == policy.fallback:
        return "serves only when no other target is healthy"
    if target_address.leaving:
        return "is leaving service"
    if target_address.value is ProbeValue.PASS:
        healthy = _by(target_address) if target_address.force else "healthy"
        return healthy if published else f"{healthy}, about to be published"
    if target_address.value is ProbeValue.FAIL:
        return "unhealthy, about to be withdrawn" if published else "unhealthy"
    return "health is unknown, so it stays" if wanted else "is published after its first success"


def _by(target_address: TargetAddress) -> str:
    """Who forces a target address, and why."""
    override = target_address.order
    if override is None:
        return f"forced {target_address.force} by the policy"
    return f"forced {target_address.force} by {override.who or 'an operator'} ({override.reason or 'no reason given'})"


_HEALTHY = {ProbeValue.PASS: True, ProbeValue.FAIL: False}
"""Every other value is unknown: None."""


def failures(fact: ProbeFact, target: TargetProbe) -> int:
    """How many checks in a row failed. A check without a result neither adds to them nor ends them."""
    if fact.last is ProbeValue.PASS:
        return 0
    if fact.last is ProbeValue.FAIL or fact.value is ProbeValue.FAIL:
        return fact.streak
    fails, passes = target.check.failure_threshold, target.check.success_threshold
    return fact.streak if fails != passes and fact.threshold == fails else 0


def answer_row(target: TargetProbe | None, answers: Mapping[TargetProbe, ProbeFact], now: Now) -> dict[str, Any]:
    """The check of one target address: `healthy` (None = unknown), `consecutive_failures` of `failure_threshold`,
    `reason`, and `last_check_wall` (ns, None = none yet). Without a check, all of it is None."""
    fact = None if target is None else answers.get(target)
    if target is None or fact is None:
        return {
            "healthy": None,
            "consecutive_failures": None if target is None else 0,
            "failure_threshold": None if target is None else target.check.failure_threshold,
            "reason": "has no check" if target is None else "not checked yet",
            "last_check_wall": None,
        }
    value = target_health.verdict(answers, target, now.steady).value
    reason = fact.detail
    if value is ProbeValue.UNKNOWN and fact.last_at + fact.valid_for <= now.steady:
        reason = f"the last check is too old to count: {reason}"
    return {
        "healthy": _HEALTHY.get(value),
        "consecutive_failures": failures(fact, target),
        "failure_threshold": target.check.failure_threshold,
        "reason": reason,
        "last_check_wall": now.wall - now.steady + fact.last_at,
    }


def check_rows(desired: Desired, answers: Mapping[TargetProbe, ProbeFact], now: Now) -> list[dict[str, Any]]:
    """One row for each HealthCheck document, with the targets that use it as `policy key/target`."""
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
