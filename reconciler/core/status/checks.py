"""What the checks of leaves say, in the words of people: rows for `reconcile get records` and `get healthchecks`.

Called by `status.rows`, when somebody asks or a decision is stored; pure, and told in instants, never in ages.
"""

from collections.abc import Mapping
from typing import Any

from manifests.values.desired import Desired
from providers.facts import ProbeFact, ProbeValue
from reconciler.core.dns.target_health import verdict
from reconciler.core.model.instant import Now
from reconciler.core.model.leaf_probe import LeafProbe

_HEALTHY = {ProbeValue.PASS: True, ProbeValue.FAIL: False}
"""Everything else is not known: None."""


def failures(fact: ProbeFact, leaf: LeafProbe) -> int:
    """How many checks in a row failed; one that says nothing of the leaf neither adds to them nor ends them."""
    if fact.last is ProbeValue.PASS:
        return 0
    if fact.last is ProbeValue.FAIL or fact.value is ProbeValue.FAIL:
        return fact.streak
    fails, passes = leaf.check.failure_threshold, leaf.check.success_threshold
    return fact.streak if fails != passes and fact.threshold == fails else 0


def answer_row(leaf: LeafProbe | None, answers: Mapping[LeafProbe, ProbeFact], now: Now) -> dict[str, Any]:
    """What is known of one leaf by its check: `healthy` (None = not known), `consecutive_failures` of `failure_threshold`,
    `reason`, and `last_check_wall` (ns, None = none yet). Without a check, all of it is None."""
    fact = None if leaf is None else answers.get(leaf)
    if leaf is None or fact is None:
        return {
            "healthy": None,
            "consecutive_failures": None if leaf is None else 0,
            "failure_threshold": None if leaf is None else leaf.check.failure_threshold,
            "reason": "no check is asked" if leaf is None else "not checked yet",
            "last_check_wall": None,
        }
    value = verdict(answers, leaf, now.steady).value
    reason = fact.detail
    if value is ProbeValue.UNKNOWN and fact.last_at + fact.valid_for <= now.steady:
        reason = f"the last check is too old to count: {reason}"
    return {
        "healthy": _HEALTHY.get(value),
        "consecutive_failures": failures(fact, leaf),
        "failure_threshold": leaf.check.failure_threshold,
        "reason": reason,
        "last_check_wall": now.wall - now.steady + fact.last_at,
    }


def check_rows(desired: Desired, answers: Mapping[LeafProbe, ProbeFact], now: Now) -> list[dict[str, Any]]:
    """One row for each HealthCheck document, with the targets that it decides about as `policy key/target`."""
    users: dict[str, list[str]] = {}
    for policy in desired.policies:
        for target in policy.targets:
            if target.check:
                users.setdefault(target.check, []).append(f"{policy.key}/{target.name}")
    return [
        {
            "key": one.key,
            "address": one.address.removesuffix("."),
            "protocol": one.check.protocol,
            "port": one.check.port,
            "path": one.check.path,
            **answer_row(LeafProbe(one.address, one.check), answers, now),
            "decides_about": sorted(users.get(one.key, ())),
        }
        for one in desired.checks
    ]
