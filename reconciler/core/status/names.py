"""Rows of DNS names, records and health checks: what is published, and for each target address its health and the reason.

`status/objects` calls it, only when status is asked for; it derives everything from the names stage of one decision.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from manifests.values.desired import Desired
from manifests.values.dns import DNSPolicy
from providers.facts import ProbeFact, ProbeValue, RecordKey, ZoneFact
from reconciler.core.dns import target_health
from reconciler.core.dns.names import Names, PolicyOutcome
from reconciler.core.dns.publication import Mode
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.instant import Now
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas import memory
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.status import endpoints


class NameCondition(StrEnum):
    """The state of a name, from good to bad."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    """Some target addresses are unhealthy, or the provider does not support a part of the policy."""
    PROGRESSING = "Progressing"
    """The first check results are missing, or unhealthy addresses that were published for lack of healthy ones are still there."""
    UNHEALTHY = "Unhealthy"
    """No target address is healthy: `whenAllUnhealthy` says what is published."""
    UNKNOWN = "Unknown"
    """The zone cannot be read, or the health of a target address is unknown and none is healthy."""


# --- names ------------------------------------------------------------------------------------------------------------


def name_rows(snap: Snapshot, names: Names | None) -> list[dict[str, Any]]:
    """Every policy: what is published at its host, its condition, its target addresses, and what the provider does not support.

    Args:
        names: the result of the names stage; None where there was no decision.
    """
    rows = []
    replicas = _replicas(snap) if names is not None and names.policies else {}
    for policy in snap.desired.policies:
        zone = snap.sight.zones.get((policy.provider, policy.zone))
        outcome = names.policies.get(policy.key) if names is not None else None
        row: dict[str, Any] = {
            "key": policy.key,
            "host": policy.host,
            "zone": policy.zone,
            "provider": policy.provider,
            "routing": policy.routing.value,
            "published": None if zone is None else sorted(published_at(policy, zone, outcome)),
        }
        if outcome is not None:
            row |= {
                "condition": _condition(outcome, zone).value,
                "mode": outcome.answer.mode.value,
                "notes": [
                    {"name": note.key.name, "lack": note.lack.value, "message": note.message} for note in outcome.notes
                ],
                "leaves": [_address(snap, policy, address, outcome, replicas) for address in outcome.target_addresses],
            }
        rows.append(row)
    return rows


def published_at(policy: DNSPolicy, zone: ZoneFact, outcome: PolicyOutcome | None) -> frozenset[str]:
    """What clients get: the addresses that the host leads to, or else those of the host itself."""
    if outcome is not None and outcome.published is not None:
        return outcome.published
    return frozenset(
        value
        for key, record in zone.records.items()
        if key.name == policy.host and key.type in ("A", "AAAA")
        for value in record.values
    )


def _condition(outcome: PolicyOutcome, zone: ZoneFact | None) -> NameCondition:
    mode = outcome.answer.mode
    if zone is None:
        return NameCondition.UNKNOWN
    if mode is Mode.WAITING or mode is Mode.HOLD_DOWN:
        return NameCondition.PROGRESSING
    values = {address.value for address in outcome.target_addresses}
    if mode is Mode.KEPT:
        return NameCondition.UNKNOWN if ProbeValue.UNKNOWN in values else NameCondition.UNHEALTHY
    if mode is Mode.HEALTHY:
        good = values == {ProbeValue.PASS} and not outcome.notes
        good = good and not any(address.held_until for address in outcome.target_addresses)
        return NameCondition.HEALTHY if good else NameCondition.DEGRADED
    return NameCondition.UNHEALTHY


def _replicas(snap: Snapshot) -> dict[str, str]:
    """Container id -> its replica."""
    return {
        belief.fact.id: memory.replica_of(f"workload/{belief.fact.mark.workload}", belief.fact.mark.ordinal)
        for group in snap.roster.groups.values()
        for belief in group.members()
        if belief.fact.mark is not None
    }


def _address(
    snap: Snapshot, policy: DNSPolicy, address: TargetAddress, outcome: PolicyOutcome, replicas: Mapping[str, str]
) -> dict[str, Any]:
    """One target address: its health, the `replicas` behind it, whether it is and should be published, and why."""
    published = outcome.published is not None and address.address in outcome.published
    if outcome.answer.mode is Mode.KEPT:
        wanted = published
    else:
        wanted = address.address in outcome.answer.target_addresses.get(address.target, frozenset())
    check = None if address.probe is None else answer_row(address.probe, snap.observed.target_answers, snap.now)
    return {
        "target": address.target,
        "address": address.address,
        "healthy": _HEALTHY.get(address.value),
        "published": None if outcome.published is None else published,
        "wanted": wanted,
        "forced": address.force or None,
        "override": None if address.override is None else endpoints.override_row(address.override, snap.now),
        "held_until_wall": snap.now.wall + address.held_until - snap.now.steady if address.held_until else None,
        "failures_in_a_row": address.failures,
        "why": _why(policy, address, outcome.answer.mode, wanted=wanted, published=published),
        "service": None if address.service is None else address.service.value,
        "replicas": sorted({replicas[container] for container in address.behind if container in replicas}),
        "check": check,
    }


_HEALTHY = {ProbeValue.PASS: True, ProbeValue.FAIL: False}
"""All other values are unknown: None."""

_BY_MODE = {
    Mode.KEPT: "no address is known to be healthy, so the published ones stay",
    Mode.WAITING: "waiting for the first check results",
    Mode.HOLD_DOWN: "an address is healthy again, but not yet for long enough to withdraw the others",
    Mode.FAILED_AGAIN: "all addresses failed again soon after one was healthy, so the published ones stay for now",
    Mode.NOTHING: "no address is healthy, and none was published",
}


def _why(policy: DNSPolicy, address: TargetAddress, mode: Mode, *, wanted: bool, published: bool) -> str:
    """Why a target address is published or not, in a few words."""
    if address.force == "down" and not (mode is Mode.KEPT and published):
        return f"{_forced(address)}, about to be withdrawn" if published else _forced(address)
    if mode is Mode.ALL_UNHEALTHY:
        if not wanted:
            return (
                f"all addresses are unhealthy, and whenAllUnhealthy is {policy.fallback or policy.all_unhealthy.value}"
            )
        fallback = address.target == policy.fallback
        return "no other target is healthy" if fallback else "all addresses are unhealthy, so all are published"
    if mode is not Mode.HEALTHY:
        return _BY_MODE[mode]
    if address.target == policy.fallback:
        return "published only while no other target is healthy"
    if address.leaving:
        return "leaving service"
    if address.held_until:
        return f"healthy, but it failed {address.failures} times in a row: stays out until its health has lasted"
    if address.value is ProbeValue.PASS:
        healthy = _forced(address) if address.force else "healthy"
        return healthy if published else f"{healthy}, about to be published"
    if address.value is ProbeValue.FAIL:
        return "unhealthy, about to be withdrawn" if published else "unhealthy"
    return "health unknown, so it stays published" if wanted else "health unknown, published once healthy"


def _forced(address: TargetAddress) -> str:
    """What forces a target address, and the operator's reason."""
    if address.override is None:
        return f"forced {address.force} by the policy"
    reason = address.override.reason or "no reason given"
    return f"forced {address.force} by {address.override.who or 'an operator'} ({reason})"


# --- records ----------------------------------------------------------------------------------------------------------


def record_rows(snap: Snapshot) -> list[dict[str, Any]]:
    """Every plain record: the wanted values, and those in its zone; None while the zone cannot be read."""
    rows = []
    for record in snap.desired.records:
        zone = snap.sight.zones.get((record.provider, record.zone))
        current = None if zone is None else zone.records.get(RecordKey(record.host, record.type))
        rows.append(
            {
                "key": record.key,
                "host": record.host,
                "zone": record.zone,
                "type": record.type,
                "ttl": record.ttl,
                "wanted": list(record.values),
                "published": None if zone is None else list(current.values) if current is not None else [],
            }
        )
    return rows


# --- checks -----------------------------------------------------------------------------------------------------------


def check_rows(desired: Desired, answers: Mapping[TargetProbe, ProbeFact], now: Now) -> list[dict[str, Any]]:
    """Every HealthCheck document, with the targets that it decides about as `policy key/target`."""
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


def answer_row(probe: TargetProbe, answers: Mapping[TargetProbe, ProbeFact], now: Now) -> dict[str, Any]:
    """The result of one check: `healthy` (None = unknown), `consecutive_failures` of `failure_threshold`, `reason`, and
    `last_check_wall` (ns, None = none yet)."""
    fact, threshold = answers.get(probe), probe.check.failure_threshold
    if fact is None:
        return {
            "healthy": None,
            "consecutive_failures": 0,
            "failure_threshold": threshold,
            "reason": "not checked yet",
            "last_check_wall": None,
        }
    value = target_health.verdict(answers, probe, now.steady).value
    reason = fact.detail
    if value is ProbeValue.UNKNOWN and fact.last_at + fact.valid_for <= now.steady:
        reason = f"the last check is too old to count: {reason}"
    return {
        "healthy": _HEALTHY.get(value),
        "consecutive_failures": _failures(fact, probe),
        "failure_threshold": threshold,
        "reason": reason,
        "last_check_wall": now.wall - now.steady + fact.last_at,
    }


def _failures(fact: ProbeFact, probe: TargetProbe) -> int:
    """How many checks in a row failed. A check without a pass or fail neither adds to them nor resets them."""
    if fact.last is ProbeValue.PASS:
        return 0
    if fact.last is ProbeValue.FAIL or fact.value is ProbeValue.FAIL:
        return fact.streak
    fails, passes = probe.check.failure_threshold, probe.check.success_threshold
    return fact.streak if fails != passes and fact.threshold == fails else 0
