"""Compares Records, which are plain record sets, with their zones. `dns/compare` calls it."""

from collections.abc import Mapping

from manifests.values.desired import Desired
from manifests.values.dns import Record
from providers.facts import RecordKey, RecordSet
from reconciler.core.dns import capabilities_fit, record_lists, records, takeover
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneIndex, ZoneKey
from reconciler.core.dns.takeover import TakeOvers
from reconciler.core.model.reasons import Hold, Reason, Rule


def compare(
    desired: Desired, record: Record, indexes: Mapping[ZoneKey, ZoneIndex], takeovers: TakeOvers, out: Names
) -> None:
    """Collect the differences between one record and its zone; an unknown zone has none."""
    zone_key = (record.provider, record.zone)
    index = indexes.get(zone_key)
    if index is None:
        return
    zone, mark = index.zone, records.owner_mark(desired.instance.id, record.key)
    out.own.setdefault(zone_key, set()).add(record.host)
    key, wanted = RecordKey(record.host, record.type), RecordSet(record.ttl, record.values)
    before = zone.records.get(key)
    mine = zone.owners.get(key) == mark
    if before == wanted and mine:
        return
    fitted = capabilities_fit.adapt({key: wanted}, record.zone, zone.capabilities)
    after = fitted.records.get(key)
    if after is None:
        message = "; ".join(note.message for note in fitted.notes) or "the provider cannot hold it"
        next_step = f"use a provider that supports type {record.type}"
        out.holds.append(Hold(record.key, f"publish {record.host}", Rule.CANNOT_PUBLISH, message, next_step=next_step))
        return
    beside = _beside(record, index)
    free = [other for other in beside if takeovers.allowed(record, other)]
    rest = (other for other in beside if other not in free)
    foreign = [other for other in rest if not record_lists.may_take_over(zone.owners.get(other, ""), mark)]
    adopted = [other for other in foreign if record.adopt and takeover.adoptable(zone, other, key)]
    foreign = [other for other in foreign if other not in adopted]
    if foreign:
        can_adopt = not record.adopt and all(takeover.adoptable(zone, other, key) for other in foreign)
        message, next_step = records.foreign_texts(foreign, zone.owners, record.zone, can_adopt, "remove the Record")
        out.holds.append(Hold(record.key, f"publish {record.host}", Rule.FOREIGN_RECORD, message, next_step=next_step))
        return
    takeovers.add(zone_key, free)
    for other in (*free, *adopted):
        if other != key:
            adopts = other in adopted
            goes = RecordDiff(record.key, *zone_key, other, zone.records[other], None, Reason.CHANGED)
            out.changes.append(goes._replace(adopts=adopts, replaces=adopts))
    if before != after or not mine:
        diff = RecordDiff(record.key, *zone_key, key, before, after, records.reason_of(before, after))
        if key in adopted:
            note = records.TAKEN_OVER if before == after else ""
            diff = diff._replace(adopts=True, replaces=before != after, note=note)
        elif adopted:
            # It can stand only when the adopted ones are gone.
            diff = diff._replace(replaces=True)
        out.changes.append(diff)


def _beside(record: Record, index: ZoneIndex) -> list[RecordKey]:
    """Existing record sets that this one must replace: the same key, a CNAME, and anything beside a CNAME."""
    if record.type == "CNAME":
        return sorted(index.at(record.host))
    keys = (RecordKey(record.host, record.type), RecordKey(record.host, "CNAME"))
    return [key for key in keys if key in index.at(record.host)]
