"""Which of our record sets no manifest wants any more, so that whoever wants their place now takes them over as they are.

A name that moves from one document to another (a list becomes a policy, a policy gets another name) must not vanish on the way:
its set gets another mark instead of being deleted and made again. Only sets that answer for addresses are taken over, because
the new document answers the same question. Called by `names`.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from manifests.values.desired import Desired
from manifests.values.dns import DNSPolicy, Record
from providers.facts import RecordKey, ZoneFact
from reconciler.core.dns import records, tree

ANSWERS = ("A", "AAAA", "CNAME")
"""Types of which one may take the place of another without a question being left without an answer."""

_POLICY = "dnspolicy/"

Place = tuple[str, str]
"""Provider and zone."""

ByMark = Mapping[str, Sequence[RecordKey]]
"""The record sets of a zone that exist, by their owner mark."""


class Claims:
    """What manifests want of the zones, to tell which of our sets are free.

    `taken` is filled: what policies and records took over, so that nobody else deletes it.
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
        self._lists = {one.key: one for one in desired.record_lists}
        self._policies = {policy.key: policy for policy in desired.policies}
        self._records = {(record.provider, record.zone, record.host, record.type) for record in desired.records}
        places = {
            (policy.provider, policy.zone) for policy in desired.policies if (policy.provider, policy.zone) in zones
        }
        self._left = {place: self._leftovers(place, marked[place]) for place in places}

    def _leftovers(self, place: Place, by_mark: ByMark) -> dict[str, list[RecordKey]]:
        """The free sets of a zone, by the hosts whose policies may have them. Almost always there are none."""
        found: dict[str, list[RecordKey]] = {}
        for mark, keys in by_mark.items():
            if not mark.startswith(self._prefix):
                continue
            owner = records.owner_of(mark)[1]
            policy, listed = self._policies.get(owner), self._lists.get(owner)
            # What its own document wants is not free; there may be very much of that, so it is left out first.
            rest = keys
            if policy is not None and (policy.provider, policy.zone) == place:
                rest = [key for key in keys if not tree.managed(policy, key.name)]
            elif listed is not None and (listed.provider, listed.zone) == place:
                rest = [key for key in keys if key not in listed.sets]
            for key in rest:
                if self._free(place, key):
                    for host in tree.managing(key.name):
                        found.setdefault(host, []).append(key)
        return found

    def inherit(self, policy: DNSPolicy) -> list[RecordKey]:
        """Take over what is free at the names of a policy. Each set is taken once."""
        place = (policy.provider, policy.zone)
        left = self._left[place].get(policy.host)
        if not left:
            return []
        names = tree.names_of(policy)
        mine = sorted({key for key in left if self._fits(place, key, policy, names) and self._free(place, key)})
        self.take(place, mine)
        return mine

    def _fits(self, place: Place, key: RecordKey, policy: DNSPolicy, names: Container[str]) -> bool:
        """Whether a free set is at a name of a policy. Members of routed sets come from policies only, whatever their name."""
        if key.name in names and not key.set_id:
            return True
        mark = self._zones[place].owners[key]
        return mark.startswith(self._prefix + _POLICY) and tree.managed(policy, key.name)

    def yields(self, record: Record, key: RecordKey) -> bool:
        """Whether a plain record may have the place of a set that exists: its own, or one that answers the same question."""
        place, own = (record.provider, record.zone), RecordKey(record.host, record.type)
        if key == own:
            return self._ours(place, key)
        return record.type in ANSWERS and self._free(place, key)

    def rivals(self, place: Place, key: RecordKey, mark: str) -> list[RecordKey]:
        """Take over what is free where a new set of a list is to stand and cannot stand beside it; what has `mark` is the list's."""
        fact = self._zones[place]
        if key.type not in ANSWERS:
            return []
        others = ("A", "AAAA") if key.type == "CNAME" else ("CNAME",)
        there = [one for one in (RecordKey(key.name, kind) for kind in others) if one in fact.records]
        found = [one for one in there if fact.owners.get(one) != mark and self._free(place, one)]
        self.take(place, found)
        return found

    def take(self, place: Place, keys: Iterable[RecordKey]) -> None:
        """Note that these are taken over."""
        self._taken.setdefault(place, set()).update(keys)

    def _free(self, place: Place, key: RecordKey) -> bool:
        """Whether a set that exists carries a mark of ours, answers for addresses, and is wanted by no manifest."""
        if key.type not in ANSWERS or (*place, key.name, key.type) in self._records or not self._ours(place, key):
            return False
        return not any((one.provider, one.zone) == place and key in one.sets for one in self._lists.values())

    def _ours(self, place: Place, key: RecordKey) -> bool:
        """Whether a set carries a mark of ours, and not that of a policy which has the name."""
        mark = self._zones[place].owners.get(key, "")
        if not mark.startswith(self._prefix) or key in self._taken.get(place, ()):
            return False
        owner = self._policies.get(records.owner_of(mark)[1])
        return owner is None or (owner.provider, owner.zone) != place or not tree.managed(owner, key.name)
