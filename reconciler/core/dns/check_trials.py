"""Trials of health checks: a check that asks something else is tried on each address beside the one that decided until now.

As with the probes of containers, times and thresholds take effect at once, a removed check ends at once, and a changed or added one
decides about an address once it has passed there. A wrong path in a manifest must take no address out of a name. `decide` calls
`follow` before it compares names, and `report` after; `target_health` asks `deciding` for the check of an address.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from manifests.values.dns import Check
from providers.facts import ProbeFact, ProbeValue
from reconciler.core.dns import target_health, targets
from reconciler.core.model.dns_memory import CheckRow
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import accepts
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas.snapshot import Snapshot


class _Checked(NamedTuple):
    """One object with a check: a DNSPolicy, or a HealthCheck. `addresses` gives those that its check decides about.

    `partly_unseen` says whether there may be more, on nodes that cannot be read. Few checks change at a time, so the addresses are collected for these only.
    """

    key: str
    check: Check | None
    addresses: Callable[[], frozenset[str]]
    partly_unseen: Callable[[], bool]


@dataclass(slots=True)
class CheckTrials:
    """The holds and waits of all trials of checks. `objects`: the policies and checks with a trial."""

    objects: set[str] = field(default_factory=set)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


def _checked(snap: Snapshot) -> Iterator[_Checked]:
    for check in snap.desired.checks:
        yield _Checked(check.key, check.check, partial(frozenset, {check.address}), bool)
    services = {service.key: service for service in snap.desired.services}
    for policy in snap.desired.policies:
        addresses = partial(target_health.checked_addresses, policy, snap.desired, snap.roster)
        yield _Checked(
            policy.key, policy.check, addresses, partial(targets.partly_unseen, policy, services, snap.roster)
        )


def follow(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the checks that decide. Without a row, after a loss, the declared check decides at once."""
    rows: dict[str, CheckRow] = {}
    answers = snap.observed.target_answers
    for key, declared, addresses_of, partly_unseen in _checked(snap):
        row = ledger.checks.get(key)
        if row is None or declared is None or target_health.same_request(row.check, declared):
            # The row has the manifest's own object: comparing that costs nothing at the next decision.
            rows[key] = row if row is not None and row.check is declared and not row.proven else CheckRow(declared)
            continue
        is_accepted, addresses = accepts(ledger, key), addresses_of()
        proven = {
            address
            for address in addresses
            if address in row.proven
            or _passed(answers, address, declared)
            or (is_accepted and _failed(answers, address, declared))
        }
        if partly_unseen():
            proven.update(row.proven)  # a node that cannot be read may have more addresses, proven ones and others
        elif proven == addresses:
            rows[key] = CheckRow(declared)
            continue
        rows[key] = CheckRow(target_health.tuned(row.check, declared), tuple(sorted(proven)))
    changed = rows.keys() != ledger.checks.keys() or any(rows[key] is not ledger.checks[key] for key in rows)
    return replace(ledger, checks=rows) if changed else ledger


def _passed(answers: Mapping[TargetProbe, ProbeFact], address: str, check: Check) -> bool:
    fact = answers.get(TargetProbe(address, check))
    return fact is not None and ProbeValue.PASS in (fact.value, fact.last)


def _failed(answers: Mapping[TargetProbe, ProbeFact], address: str, check: Check) -> bool:
    fact = answers.get(TargetProbe(address, check))
    return fact is not None and fact.value is ProbeValue.FAIL


def report(snap: Snapshot, ledger: Ledger) -> CheckTrials:
    """A hold for every check that fails where another one decides, and a wait for every other trial."""
    out = CheckTrials()
    for key, declared, addresses_of, _ in _checked(snap):
        row = ledger.checks.get(key)
        if row is None or declared is None or target_health.same_request(row.check, declared):
            continue
        out.objects.add(key)
        tried = f"the new check of {key} ({declared.protocol} {declared.path}, port {declared.port})"
        before = "the earlier one still decides" if row.check is not None else "it decides nothing there"
        for address in sorted(addresses_of() - set(row.proven)):
            fact = snap.observed.target_answers.get(TargetProbe(address, declared))
            if fact is None or fact.value is not ProbeValue.FAIL:
                out.waits.append(Wait(key, Waiting.VERDICT, f"{tried} has not passed on {address} yet; {before}"))
                continue
            message = f"{tried} fails on {address}: {fact.detail}; {before}"
            next_step = f"correct the healthCheck of {key}, or accept it although it fails: reconcile resume {key}"
            out.holds.append(Hold(key, f"check {address}", Rule.PROBE_UNPROVEN, message, next_step=next_step))
    return out
