"""Turns differences of names into steps, and into holds of suspensions and the guard of deletions, and waits of the write order.

The guard does not see changes for health: a withdrawal is not a deletion. `decide` calls it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from providers.facts import ZoneFact, fingerprint
from reconciler.core.actions.outbox import Outbox
from reconciler.core.actions.steps import Links
from reconciler.core.dns import list_batches, steps, write_order
from reconciler.core.dns.list_batches import Division
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneKey
from reconciler.core.dns.write_order import Order
from reconciler.core.limits import prune_guard, suspensions
from reconciler.core.limits.prune_guard import Pruning
from reconciler.core.model.dns_memory import NOTHING, NameRow, Withdrawal
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.replicas.snapshot import Snapshot


def publish(snap: Snapshot, names: Names, pruning: Pruning, out: Outbox) -> str:
    """Add the due steps, waits and holds to `out`, and remember the names that are being withdrawn.

    Returns:
        The hash that an operator approves when a zone would lose too many record sets; else empty.
    """
    out.waits += names.waits
    over_limit = _over_limit(snap, out.ledger, names)
    due: dict[ZoneKey, list[RecordDiff]] = {}
    for diff in names.changes:
        hold = suspensions.suspended_document(
            snap.desired, out.ledger, diff.object, f"records of {diff.key.name}", out.now
        )
        if hold is None and diff.edited:
            hold = _mass_hold(diff, over_limit)
        _add(diff, hold, due, out)
    for stray in names.strays:
        action = f"delete {stray.key.name} {stray.key.type}"
        hold = prune_guard.hold(snap.desired, out.ledger, pruning, stray.object, action, out.now)
        _add(stray, hold if hold is not None else _mass_hold(stray, over_limit), due, out)
    withdrawals: dict[str, list[Withdrawal]] = {}
    if due:
        links = Links(snap)
        policies = {policy.key: policy for policy in snap.desired.policies}
        for zone_key, diffs in sorted(due.items()):
            order = Order(
                snap.sight.zones[zone_key], zone_key[0], snap.desired.instance.id, not snap.desired.destroy, out.now
            )
            wanted = frozenset(names.own.get(zone_key, ()))
            arranged = order.arrange(
                diffs, wanted, out.ledger.names, lambda diff: write_order.pointer_ttl(policies.get(diff.object), diff)
            )
            alone, listed = steps.split(arranged.groups)
            for group in alone:
                out.put(steps.of_name(snap.desired, group, links))
            for division in list_batches.divide(snap.desired, listed, out.ledger, snap.sight.zones[zone_key]):
                _put_list(division, out)
            out.waits += arranged.waits
            for owner, rows in arranged.withdrawals.items():
                withdrawals.setdefault(owner, []).extend(rows)
    out.ledger = _remember(out.ledger, names.rows, withdrawals)
    if snap.desired.record_lists or names.strays:
        out.holds, out.waits = steps.merged(out.holds, out.waits)
    return next((over_limit[zone_key].hash for zone_key in sorted(over_limit)), "")


def _put_list(division: Division, out: Outbox) -> None:
    """Add the steps of a list, so many as may begin now; the others follow the results of these."""
    out.ids |= division.divided
    out.waits += division.waits
    before = len(out.steps)
    for step in division.steps:
        if division.limit is not None and len(out.steps) - before >= division.limit:
            out.ids.add(step.id)
            message = (
                "the server refused some of its record sets; the rest is written in small parts, one after the other"
            )
            out.waits.append(Wait(step.object, Waiting.CALL, message))
        else:
            out.put(step)


def _add(diff: RecordDiff, hold: Hold | None, due: dict[ZoneKey, list[RecordDiff]], out: Outbox) -> None:
    if hold is not None:
        out.holds.append(hold)
    else:
        due.setdefault((diff.provider, diff.zone), []).append(diff)


def _remember(ledger: Ledger, rows: Mapping[str, NameRow], withdrawals: Mapping[str, list[Withdrawal]]) -> Ledger:
    """The ledger with what names wait for; an object without such facts has no row."""
    remembered = {
        key: rows.get(key, NOTHING)._replace(withdrawals=tuple(sorted(withdrawals.get(key, ()))))
        for key in sorted({*rows, *withdrawals})
    }
    remembered = {key: row for key, row in remembered.items() if row != NOTHING}
    return ledger if remembered == ledger.names else replace(ledger, names=remembered)


# --- the guard of one zone --------------------------------------------------------------------------------------------


def _over_limit(snap: Snapshot, ledger: Ledger, names: Names) -> dict[ZoneKey, Pruning]:
    """Zones that would lose more than the guard allows without approval: share, number of record sets, and names that end."""
    going: dict[ZoneKey, list[RecordDiff]] = {}
    # Strays that are not pruned must not hold back the rest.
    strays = names.strays if snap.desired.prune else ()
    for diff in (*strays, *(change for change in names.changes if change.edited)):
        going.setdefault((diff.provider, diff.zone), []).append(diff)
    over_limit: dict[ZoneKey, Pruning] = {}
    limit = snap.desired.guard.mass_change
    for zone_key, diffs in going.items():
        count, owned = len(diffs), _owned(snap.sight.zones[zone_key], snap.desired.instance.id)
        few = count <= limit.minimum or count * 100 <= limit.share * owned
        ending = _ending(snap.sight.zones[zone_key], zone_key, diffs, names) if len(diffs) > limit.names else 0
        if snap.desired.destroy or (few and count <= limit.records and ending <= limit.names):
            continue
        digest = fingerprint(snap.desired.revision, *zone_key, *sorted("/".join(diff.key) for diff in diffs))
        if digest in ledger.approvals:
            continue
        share = count * 100 // max(owned, 1)
        why = f"more than {limit.records}" if count > limit.records else f"more than {limit.share} %"
        if few and count <= limit.records:
            names_lost = "1 name would lose its" if ending == 1 else f"{ending} names would lose their"
            why = f"and {names_lost} last record set, more than {limit.names}"
        mass = f"{count} of {owned} owned record sets ({share} %) of zone {zone_key[1]} would be deleted, {why}"
        over_limit[zone_key] = Pruning(digest, mass, snap.observed.source_read_at)
    return over_limit


def _ending(zone: ZoneFact, zone_key: ZoneKey, going: Sequence[RecordDiff], names: Names) -> int:
    """The number of names that would lose their last record set without a new one."""
    gone = {diff.key for diff in going}
    stay = {
        diff.key.name for diff in names.changes if (diff.provider, diff.zone) == zone_key and diff.after is not None
    }
    ending = {key.name for key in gone} - stay
    return len(ending - {key.name for key in zone.records if key.name in ending and key not in gone})


def _owned(zone: ZoneFact, instance: str) -> int:
    prefix = f"{instance}/"
    return sum(1 for key, mark in zone.owners.items() if mark.startswith(prefix) and key in zone.records)


def _mass_hold(diff: RecordDiff, over_limit: Mapping[ZoneKey, Pruning]) -> Hold | None:
    """The hold of a deletion in a zone that needs approval."""
    pruning = over_limit.get((diff.provider, diff.zone))
    if pruning is None:
        return None
    next_step = f"reconcile apply --approve {pruning.hash}"
    return Hold(
        diff.object, f"delete {diff.key.name} {diff.key.type}", Rule.MASS_CHANGE, pruning.mass, next_step=next_step
    )
