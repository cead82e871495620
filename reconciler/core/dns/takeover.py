"""Finds owned record sets that no manifest wants any more, so that the new document at their name takes them over unchanged.

A name that moves from one document to another (a list becomes a policy, a policy gets another name) must not vanish on the way:
its record set gets another owner mark and is not deleted and created again. Only record sets that answer for addresses are taken
over, because the new document answers the same question. `dns/policies`, `dns/plain_records` and `dns/record_lists` call it.
"""

from collections.abc import Container, Iterable, Mapping

from manifests.values.desired import Desired
from manifests.values.dns import DNSPolicy, Record
from providers.facts import RecordKey, ZoneFact
from reconciler.core.dns import records, tree
from reconciler.core.dns.records import ZoneIndex, ZoneKey

ANSWERS = ("A", "AAAA", "CNAME")
"""Types that may replace one another: a query for addresses still gets an answer."""

_POLICY = "dnspolicy/"


def adoptable(zone: ZoneFact, key: RecordKey, wanted: RecordKey) -> bool:
    """Whether a manifest with `adopt: true` that wants `wanted` may take over an existing set: one without any owner mark, at the
    same name and type, or one that answers the same question for addresses. Everything else at the name stays its author's."""
    if key not in zone.records or zone.owners.get(key, "") or records.protected(key, zone.zone):
        return False
    return key == wanted or (key.name == wanted.name and key.type in ANSWERS and wanted.type in ANSWERS)


class TakeOvers:
    """Owned record sets that are free because no manifest wants them, and what is taken over of them.

    `taken` is filled with the record sets that policies, records and lists take over, so that they are not pruned.
    """

    def __init__(
        self,
        desired: Desired,
        indexes: Mapping[ZoneKey, ZoneIndex],
        taken: dict[ZoneKey, set[RecordKey]],
    ) -> None:
        self._prefix = f"{desired.instance.id}/"
        self._indexes, self._taken = indexes, taken
        self._lists = {record_list.key: record_list for record_list in desired.record_lists}
        self._policies = {policy.key: policy for policy in desired.policies}
        self._records = {(record.provider, record.zone, record.host, record.type) for record in desired.records}
        zone_keys = {(policy.provider, policy.zone) for policy in desired.policies}
        self._left = {zone_key: self._leftovers(zone_key) for zone_key in zone_keys if zone_key in indexes}

    def _leftovers(self, zone_key: ZoneKey) -> dict[str, list[RecordKey]]:
        """The free sets of a zone, by the hosts whose policies may have them. Almost always there are none."""
        free: dict[str, list[RecordKey]] = {}
        for mark, keys in self._indexes[zone_key].by_mark.items():
            if not mark.startswith(self._prefix):
                continue
            owner = records.owner_of(mark)[1]
            policy, listed = self._policies.get(owner), self._lists.get(owner)
            # A set that its own document wants is not free. Most sets are such, so they are left out first.
            rest = keys
            if policy is not None and (policy.provider, policy.zone) == zone_key:
                rest = [key for key in keys if not tree.manages(policy, key.name)]
            elif listed is not None and (listed.provider, listed.zone) == zone_key:
                rest = [key for key in keys if key not in listed.sets]
            for key in rest:
                if self._free(zone_key, key):
                    for host in tree.possible_hosts(key.name):
                        free.setdefault(host, []).append(key)
        return free

    def of_policy(self, policy: DNSPolicy) -> list[RecordKey]:
        """Take over the free sets at the names of a policy. Each set is taken once."""
        zone_key = (policy.provider, policy.zone)
        left = self._left[zone_key].get(policy.host)
        if not left:
            return []
        names = tree.names_of(policy)
        mine = sorted({key for key in left if self._fits(zone_key, key, policy, names) and self._free(zone_key, key)})
        self.add(zone_key, mine)
        return mine

    def _fits(self, zone_key: ZoneKey, key: RecordKey, policy: DNSPolicy, names: Container[str]) -> bool:
        """Whether a free set is at a name of the policy. Only policies have members of routed sets."""
        if key.name in names and not key.set_id:
            return True
        mark = self._indexes[zone_key].zone.owners[key]
        return mark.startswith(self._prefix + _POLICY) and tree.manages(policy, key.name)

    def allowed(self, record: Record, key: RecordKey) -> bool:
        """Whether a plain record may replace an existing set: one at its own key, or one that answers the same question."""
        zone_key, own = (record.provider, record.zone), RecordKey(record.host, record.type)
        if key == own:
            return self._ours(zone_key, key)
        return record.type in ANSWERS and self._free(zone_key, key)

    def of_list(self, zone_key: ZoneKey, key: RecordKey, mark: str) -> list[RecordKey]:
        """Take over the free sets that cannot stand beside a new set of a list; sets with `mark` already belong to the list."""
        zone = self._indexes[zone_key].zone
        if key.type not in ANSWERS:
            return []
        others = ("A", "AAAA") if key.type == "CNAME" else ("CNAME",)
        existing = [rival for rival in (RecordKey(key.name, kind) for kind in others) if rival in zone.records]
        rivals = [rival for rival in existing if zone.owners.get(rival) != mark and self._free(zone_key, rival)]
        self.add(zone_key, rivals)
        return rivals

    def add(self, zone_key: ZoneKey, keys: Iterable[RecordKey]) -> None:
        """Record that these sets are taken over."""
        self._taken.setdefault(zone_key, set()).update(keys)

    def _free(self, zone_key: ZoneKey, key: RecordKey) -> bool:
        """Whether this instance owns an existing set that answers for addresses and that no manifest wants."""
        if key.type not in ANSWERS or (*zone_key, key.name, key.type) in self._records or not self._ours(zone_key, key):
            return False
        return not any(
            (record_list.provider, record_list.zone) == zone_key and key in record_list.sets
            for record_list in self._lists.values()
        )

    def _ours(self, zone_key: ZoneKey, key: RecordKey) -> bool:
        """Whether a set carries a mark of this instance, but not of a policy that manages its name."""
        mark = self._indexes[zone_key].zone.owners.get(key, "")
        if not mark.startswith(self._prefix) or key in self._taken.get(zone_key, ()):
            return False
        owner = self._policies.get(records.owner_of(mark)[1])
        return owner is None or (owner.provider, owner.zone) != zone_key or not tree.manages(owner, key.name)
