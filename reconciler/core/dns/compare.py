"""The names stage: compares what policies, records and record lists should have in their zones with what the zones have.

Record sets without this instance's owner mark are never changed. Only `decide` calls it.
"""

from collections.abc import Mapping

from manifests.values.desired import SECOND
from providers.facts import RecordKey
from reconciler.core.dns import held_ttls, plain_records, policies, record_lists, records, targets, tree
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, ZoneIndex, ZoneKey
from reconciler.core.dns.takeover import TakeOvers
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Reason
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights


def compare(snap: Snapshot, ledger: Ledger, weights: Weights) -> Names:
    """Compare all names with their zones, then find owned record sets that no manifest wants."""
    out = Names()
    context = targets.context_of(snap, ledger, weights)
    indexes = {zone_key: ZoneIndex(zone) for zone_key, zone in snap.sight.zones.items()}
    takeovers = TakeOvers(snap.desired, indexes, out.taken)
    for policy in sorted(snap.desired.policies, key=lambda policy: policy.key):
        policies.compare(snap, policy, context, indexes, takeovers, out)
    for record in snap.desired.records:
        plain_records.compare(snap.desired, record, indexes, takeovers, out)
    _strays(snap, indexes, out)
    record_lists.compare(snap.desired, indexes, takeovers, out)
    if snap.roster.orphans:
        _orphans(snap, ledger, out)
    return out


def _strays(snap: Snapshot, indexes: Mapping[ZoneKey, ZoneIndex], out: Names) -> None:
    """Collect owned record sets that no policy or record wants. Record sets of the zone itself are never changed."""
    instance = snap.desired.instance.id
    by_mark = {
        (policy.provider, policy.zone, records.owner_mark(instance, policy.key)): policy
        for policy in snap.desired.policies
    }
    keys_by_mark = {
        (record.provider, record.zone, records.owner_mark(instance, record.key)): RecordKey(record.host, record.type)
        for record in snap.desired.records
    }
    for (provider, zone), index in indexes.items():
        taken = out.taken.get((provider, zone), ())
        for mark, keys in index.by_mark.items():
            if not mark.startswith(f"{instance}/") or record_lists.is_list(mark):
                continue
            policy, own_key = by_mark.get((provider, zone, mark)), keys_by_mark.get((provider, zone, mark))
            for key in keys:
                if (
                    key in taken
                    or key == own_key
                    or (policy is not None and tree.manages(policy, key.name))
                    or records.protected(key, zone)
                ):
                    continue
                owner, before = records.owner_of(mark)[1], index.zone.records[key]
                diff = RecordDiff(owner, provider, zone, key, before, None, Reason.PRUNED, True)
                out.strays.append(diff)
    out.strays.sort(key=lambda stray: (stray.provider, stray.zone, stray.key))


def _orphans(snap: Snapshot, ledger: Ledger, out: Names) -> None:
    """Collect orphans whose address any owned record set still publishes."""
    published: dict[str, int] = {}
    instance = snap.desired.instance.id
    for zone_key, zone in snap.sight.zones.items():
        for key, mark in zone.owners.items():
            record = zone.records.get(key)
            if record is None or key.type not in records.ADDRESS_TYPES or records.owner_of(mark)[0] != instance:
                continue
            for value in record.values:
                earlier = held_ttls.left(ledger.held_ttls, held_ttls.place(zone_key, value), snap.now)
                published[value] = max(published.get(value, 0), record.ttl * SECOND, earlier)
    wanted = {address for sets in out.wanted for address in records.ttl_by_address(sets)}
    hidden = next(iter(sorted(zone for _, zone in snap.sight.unknown_zones)), "")
    for fact in snap.roster.orphans:
        if hidden:
            out.hidden[fact.id] = hidden
        for port in fact.ports:
            if port.address in published and port.address not in wanted:
                out.named[fact.id] = max(out.named.get(fact.id, 0), published[port.address])
