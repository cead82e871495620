"""Finds owned record sets that no manifest wants any more, so that the new document at their name takes them over unchanged.

A name that moves from one document to another (a list becomes a policy, a policy gets another name) must not vanish on the way:
its record set gets another owner mark and is not deleted and created again. Only record sets that answer for addresses are taken
over, because the new document answers the same question. `dns/policies` and `dns/record_lists` call it.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from manifests.values.desired import Desired
from manifests.values.dns import DNSPolicy, Record
from providers.facts import RecordKey, ZoneFact
from reconciler.core.dns import records, tree

ANSWERS = ("A", "AAAA", "CNAME")
"""Types that may replace one another: a query for addresses still gets an answer."""

_POLICY = "dnspolicy/"

Place = tuple[str, str]
"""Provider and zone."""

ByMark = Mapping[str, Sequence[RecordKey]]
"""The existing record sets of a zone by their owner mark."""


class Claims:
    """What the manifests want in the zones, to find owned record sets that are free.

    `taken` is filled with what policies, records and lists take over, so that it is not pruned.
    """

    def __init__(
        self,
        desired: Desired,
        zones: Mapping[Place, ZoneFact],
        marked: Mapping[Place, ByMark],
        taken: dict[Place, set[RecordKey]],
    ) -> None:
        self._prefix = f"{desired.instance.id}/"
        self._zones, self._taken = zones, taken
        self._lists = {record_list.key: record_list for record_list in desired.record_lists}
        self._policies = {policy.key: policy for policy in desired.policies}
        self._records = {(record.provider, record.zone, record.host, record.type) for record in desired.records}
        places = {
            (policy.provider, policy.zone) for policy in desired.policies if (policy.provider, policy.zone) in zones
        }
        self._left = {place: self._leftovers(place, marked[place]) for place in places}

    def _leftovers(self, place: Place, by_mark: ByMark) -> dict[str, list[RecordKey]]:
        """The free sets of a zone, by the hosts whose policies may have them. Almost always there are none."""
        free: dict[str, list[RecordKey]] = {}
        for mark, keys in by_mark.items():
            if not mark.startswith(self._prefix):
                continue
            owner = records.owner_of(mark)[1]
            policy, listed = self._policies.get(owner), self._lists.get(owner)
            # A set that its own document wants is not free. Most sets are such, so they are left out first.
            rest = keys
            if policy is not None and (policy.provider, policy.zone) == place:
                rest = [key for key in keys if not tree.managed(policy, key.name)]
            elif listed is not None and (listed.provider, listed.zone) == place:
                rest = [key for key in keys if key not in listed.sets]
            for key in rest:
                if self._free(place, key):
                    for host in tree.managing(key.name):
                        free.setdefault(host, []).append(key)
        return free

    def inherit(self, policy: DNSPolicy) -> list[RecordKey]:
        """Take over the free sets at the names of a policy. Each set is taken once."""
        place = (policy.provider, policy.zone)
        left = self._left[place].get(policy.host)
        if not left:
            return []
        names = tree.names_of(policy)
        mine = sorted({key for key in left if self._fits(place, key, policy, names) and self._free(place, key)})
        self.take(place, mine)
        return mine

    def _fits(self, place: Place, key: RecordKey, policy: DNSPolicy, names: Container[str]) -> bool:
        """Whether a free set is at a name of the policy. Only policies have members of routed sets."""
        if key.name in names and not key.set_id:
            return True
        mark = self._zones[place].owners[key]
        return mark.startswith(self._prefix + _POLICY) and tree.managed(policy, key.name)

    def yields(self, record: Record, key: RecordKey) -> bool:
        """Whether a plain record may replace an existing set: one at its own key, or one that answers the same question."""
        place, own = (record.provider, record.zone), RecordKey(record.host, record.type)
        if key == own:
            return self._ours(place, key)
        return record.type in ANSWERS and self._free(place, key)

    def rivals(self, place: Place, key: RecordKey, mark: str) -> list[RecordKey]:
        """Take over the free sets that cannot stand beside a new set of a list; sets with `mark` already belong to the list."""
        fact = self._zones[place]
        if key.type not in ANSWERS:
            return []
        others = ("A", "AAAA") if key.type == "CNAME" else ("CNAME",)
        existing = [rival for rival in (RecordKey(key.name, kind) for kind in others) if rival in fact.records]
        rivals = [rival for rival in existing if fact.owners.get(rival) != mark and self._free(place, rival)]
        self.take(place, rivals)
        return rivals

    def take(self, place: Place, keys: Iterable[RecordKey]) -> None:
        """Record that these sets are taken over."""
        self._taken.setdefault(place, set()).update(keys)

    def _free(self, place: Place, key: RecordKey) -> bool:
        """Whether this instance owns an existing set that answers for addresses and that no manifest wants."""
        if key.type not in ANSWERS or (*place, key.name, key.type) in self._records or not self._ours(place, key):
            return False
        return not any(
            (record_list.provider, record_list.zone) == place and key in record_list.sets
            for record_list in self._lists.values()
        )

    def _ours(self, place: Place, key: RecordKey) -> bool:
        """Whether a set carries a mark of this instance, but not of a policy that manages its name."""
        mark = self._zones[place].owners.get(key, "")
        if not mark.startswith(self._prefix) or key in self._taken.get(place, ()):
            return False
        owner = self._policies.get(records.owner_of(mark)[1])
        return owner is None or (owner.provider, owner.zone) != place or not tree.managed(owner, key.name)
