"""Turns differences of names into steps, and into holds of suspensions and missing approvals, and waits of the write order.

`decide` calls it.
"""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.core.actions.outbox import Outbox
from reconciler.core.actions.steps import Links
from reconciler.core.dns import deletions, held_ttls, list_batches, other_writers, records, steps, write_order
from reconciler.core.dns.list_batches import Division
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneKey
from reconciler.core.dns.write_order import Order
from reconciler.core.limits import approval_classes, prune_guard, suspensions
from reconciler.core.limits.prune_guard import Pruning
from reconciler.core.model.dns_memory import NOTHING, NameRow, Withdrawal
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.replicas.snapshot import Snapshot

SEPARATE = 50
"""So many sets of an object that need approval have a hold each; more share one."""


def publish(snap: Snapshot, names: Names, pruning: Pruning, over_limit: Mapping[ZoneKey, str], out: Outbox) -> None:
    """Add the due steps, waits and holds to `out`, and remember the names that are being withdrawn.

    `over_limit`: the zones that would lose too many record sets, and why.
    """
    out.waits += names.waits
    out.ledger = _observe(snap, names, out.ledger)
    due: dict[ZoneKey, list[RecordDiff]] = {}
    unapproved = _unapproved_names(names, pruning)
    replacing: dict[str, list[RecordDiff]] = {}
    for diff in names.changes:
        holds = suspensions.suspended_document(
            snap.desired, out.ledger, diff.object, f"records of {diff.key.name}", out.now, diff.held
        )
        if not holds and diff.edited:
            holds = _listed(_mass_hold(snap, diff, pruning, over_limit) or _class_hold(snap, diff, pruning))
        if not holds and (*diff.provider_zone, diff.key.name, diff.object) in unapproved:
            # What replaces nothing is written together with another set of its name, whose hold says why.
            if diff.replaces:
                replacing.setdefault(diff.object, []).append(diff)
            continue
        if not holds:
            holds = _listed(other_writers.hold(out.ledger.written, diff, names, out.now))
        _add(diff, holds, due, out)
    for obj, diffs in replacing.items():
        out.holds += _replace_holds(snap, obj, diffs, pruning)
    for stray in names.strays:
        action = f"delete {stray.key.name} {stray.key.type}"
        item = deletions.item(stray) if pruning.mass else ""
        hold = prune_guard.hold(snap.desired, out.ledger, pruning, stray.object, action, item, out.now)
        hold = hold or _mass_hold(snap, stray, pruning, over_limit) or _class_hold(snap, stray, pruning)
        _add(stray, _listed(hold), due, out)
    withdrawals: dict[str, list[Withdrawal]] = {}
    if due:
        links = Links(snap)
        policies = {policy.key: policy for policy in snap.desired.policies}
        for zone_key, diffs in sorted(due.items()):
            order = Order(
                snap.sight.zones[zone_key],
                zone_key[0],
                snap.desired.instance.id,
                out.ledger,
                not snap.desired.destroy,
                out.now,
            )
            wanted = frozenset(names.own.get(zone_key, ()))
            arranged = order.arrange(
                diffs, wanted, lambda diff: write_order.pointer_ttl(policies.get(diff.object), diff)
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
    if names.flaps != out.ledger.flaps:
        out.ledger = replace(out.ledger, flaps=names.flaps)
    if snap.desired.record_lists or names.strays:
        out.holds, out.waits = steps.merged(out.holds, out.waits)


def _observe(snap: Snapshot, names: Names, ledger: Ledger) -> Ledger:
    """The ledger with what these differences say about resolvers and other writers."""
    zones, now, differing = snap.sight.zones, snap.now, (*names.changes, *names.strays)
    held = held_ttls.follow(ledger.held_ttls, differing, zones, now)
    known = held_ttls.known_since(ledger.pointers_known, zones, snap.desired.instance.id, now)
    written = other_writers.follow(ledger.written, differing, zones, now)
    if held is ledger.held_ttls and known is ledger.pointers_known and written is ledger.written:
        return ledger
    return replace(ledger, held_ttls=held, pointers_known=known, written=written)


def _unapproved_names(names: Names, pruning: Pruning) -> set[tuple[str, str, str, str]]:
    """Provider, zone, name and object of changes that take over sets with other values without approval. A name is written at once."""
    covered = pruning.approvals.covered
    return {
        (*change.provider_zone, change.key.name, change.object)
        for change in names.changes
        if change.replaces and deletions.item(change) not in covered
    }


def _replace_holds(snap: Snapshot, obj: str, diffs: list[RecordDiff], pruning: Pruning) -> list[Hold]:
    """The holds of sets that other writers made, and that get other values when an object takes them over.

    Many sets of one object share a hold: a list may take over a whole zone with other TTLs.
    """
    given = pruning.approvals
    diffs = [diff for diff in diffs if deletions.item(diff) not in given.covered]
    if len(diffs) > SEPARATE:
        shown = "; ".join(f"{_name(diff)}: {_values(diff)}" for diff in diffs[: records.SHOWN])
        message = (
            f"{len(diffs)} record sets exist without an owner mark and with other values; taking them over would "
            f"change them: {shown}; and {len(diffs) - records.SHOWN} more"
        )
        messages = [(f"take over {len(diffs)} record sets", message, deletions.item(diffs[0]))]
    else:
        text = "exists without an owner mark and with other values; taking it over would change it"
        messages = [
            (f"take over {_name(diff)}", f"{_name(diff)} {text}: {_values(diff)}", deletions.item(diff))
            for diff in diffs
        ]
    holds = (
        prune_guard.unapproved(snap.desired, given, message, obj, action, item, Rule.FOREIGN_RECORD)
        for action, message, item in messages
    )
    return [hold for hold in holds if hold is not None]


def _name(diff: RecordDiff) -> str:
    return f"{diff.key.name} {diff.key.type}"


def _values(diff: RecordDiff) -> str:
    return f"{records.show_set(diff.before)} -> {records.show_set(diff.after)}"


def _mass_hold(snap: Snapshot, diff: RecordDiff, pruning: Pruning, over_limit: Mapping[ZoneKey, str]) -> Hold | None:
    """The hold of a deletion in a zone that needs approval."""
    message = over_limit.get(diff.provider_zone, "")
    if not message:
        return None
    action = f"delete {diff.key.name} {diff.key.type}"
    return prune_guard.unapproved(snap.desired, pruning.approvals, message, diff.object, action, deletions.item(diff))


def _class_hold(snap: Snapshot, diff: RecordDiff, pruning: Pruning) -> Hold | None:
    """The hold of a deletion that needs approval for what it is, or that the saved plan of the run does not have."""
    if diff.after is not None:
        return None
    subject, action = (
        approval_classes.record_set(diff.provider, diff.zone, diff.key),
        f"delete {diff.key.name} {diff.key.type}",
    )
    item = deletions.item(diff)
    return approval_classes.hold(
        snap.desired, pruning.classes, pruning.approvals, subject, diff.object, action, item=item, held=diff.held
    )


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


def _listed(hold: Hold | None) -> list[Hold]:
    return [] if hold is None else [hold]


def _add(diff: RecordDiff, holds: list[Hold], due: dict[ZoneKey, list[RecordDiff]], out: Outbox) -> None:
    if holds:
        out.holds.extend(holds)
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
