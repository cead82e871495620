"""Names, the fifth stage: compares what each policy and record should have in its zone with what the zone has.

Neither health nor a planned step empties a name that has addresses: without a target address that is known to be healthy, the
published ones stay. Record sets without this instance's owner mark are never changed. Only `decide` calls it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.dns import DNSPolicy, Record
from providers.facts import ProbeValue, RecordKey, RecordSet, ZoneFact
from reconciler.core.dns import capabilities_fit, publication, record_lists, targets, tree
from reconciler.core.dns.capabilities_fit import Note
from reconciler.core.dns.publication import Answer, Mode
from reconciler.core.dns.records import (
    ADDRESS_TYPES,
    ByName,
    RecordDiff,
    Sets,
    addresses,
    owner_mark,
    owner_of,
    protected,
    why,
)
from reconciler.core.dns.takeover import ANSWERS, Claims
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.model.dns_memory import NOTHING, NameRow
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait, Waiting
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights

_PASS, _FAIL, _KEPT = ProbeValue.PASS, ProbeValue.FAIL, Mode.KEPT


@dataclass(slots=True)
class Named:
    """One policy, for status: its target addresses, the decision about them, and what the provider does not support."""

    target_addresses: tuple[TargetAddress, ...]
    answer: Answer
    published: frozenset[str] | None
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class Names:
    """The answer for all names. Filled while this stage runs, read-only after it.

    By container id: `named` is the TTL (ns) of names that publish the container's address and should withdraw it, now or when
    it leaves; `kept` are containers whose address a name keeps because it is the last; `hidden` is the unreadable zone.
    `wanted`: all record sets that names should have. `strays`: owned record sets that no manifest wants, to be pruned.
    By (provider, zone): `own` are the names published there, `taken` the record sets taken over from another owned object.
    By policy: `rows` are to be remembered, `policies` are for status. `until`: the steady instant until which the answer holds.
    """

    changes: list[RecordDiff] = field(default_factory=list)
    strays: list[RecordDiff] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    hidden: dict[str, str] = field(default_factory=dict)
    wanted: list[Sets] = field(default_factory=list)
    own: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    taken: dict[tuple[str, str], set[RecordKey]] = field(default_factory=dict)
    rows: dict[str, NameRow] = field(default_factory=dict)
    until: int = FOREVER
    policies: dict[str, Named] = field(default_factory=dict)


def name_all(snap: Snapshot, ledger: Ledger, weights: Weights) -> Names:
    """Compare all policies and records with their zones, then find owned record sets that no manifest wants."""
    out = Names()
    context = targets.context_of(snap, ledger, weights)
    marked = {key: _by_mark(zone) for key, zone in snap.sight.zones.items()}
    claims = Claims(snap.desired, snap.sight.zones, marked, out.taken)
    by_name = {key: ByName(zone) for key, zone in snap.sight.zones.items()}
    for policy in sorted(snap.desired.policies, key=lambda policy: policy.key):
        mark = owner_mark(snap.desired.instance.id, policy.key)
        target_addresses = targets.target_addresses_of(policy, context)
        place = (policy.provider, policy.zone)
        zone = snap.sight.zones.get(place)
        row = ledger.names.get(policy.key, NOTHING)
        if zone is None:
            for target_address in target_addresses:
                for name in target_address.behind:
                    out.hidden.setdefault(name, policy.zone)
            if row != NOTHING:
                out.rows[policy.key] = row
            out.policies[policy.key] = Named(target_addresses, Answer(Mode.WAITING, {}, row), None)
            continue
        mine = {key: zone.records[key] for key in marked[place].get(mark, ()) if tree.managed(policy, key.name)}
        inherited = {key: zone.records[key] for key in claims.inherit(policy)}
        current = _Current(mine | inherited, bool(inherited))
        _PolicyDiff(snap, policy, by_name[place], target_addresses, current, out).compare(row)
    for record in snap.desired.records:
        _record(snap, record, owner_mark(snap.desired.instance.id, record.key), by_name, claims, out)
    _strays(snap, marked, out)
    record_lists.compare(snap.desired, snap.sight.zones, marked, claims, out)
    if snap.roster.orphans:
        _orphans(snap, out)
    return out


def _by_mark(zone: ZoneFact) -> dict[str, list[RecordKey]]:
    """The existing record sets by their owner mark."""
    keys: dict[str, list[RecordKey]] = {}
    records = zone.records
    for key, mark in zone.owners.items():
        if key in records:
            keys.setdefault(mark, []).append(key)
    return keys


# --- policies ---------------------------------------------------------------------------------------------------------


class _Current(NamedTuple):
    """What a policy has in its zone, and whether some record sets still carry the mark of their previous object."""

    sets: Sets
    inherited: bool


class _PolicyDiff:
    """One policy while it is compared with its zone."""

    def __init__(
        self,
        snap: Snapshot,
        policy: DNSPolicy,
        by_name: ByName,
        target_addresses: tuple[TargetAddress, ...],
        current: _Current,
        out: Names,
    ) -> None:
        self.policy, self.zone, self.by_name, self.out, self.now = policy, by_name.zone, by_name, out, snap.now
        self.mark, blind = owner_mark(snap.desired.instance.id, policy.key), bool(snap.roster.unreadable_nodes)
        self.current, self.inherited = current.sets, current.inherited
        self.reached = publication.reached(policy.host, self.current)
        target_addresses = tuple(
            targets.proven(target_address, self.reached) if target_address.unproven else target_address
            for target_address in target_addresses
        )
        if blind:
            target_addresses = (*target_addresses, *publication.unseen(policy, target_addresses, self.reached))
        self.target_addresses, self.blind = target_addresses, blind

    def compare(self, row: NameRow) -> None:
        """Decide what should be published, and collect the differences."""
        policy, out = self.policy, self.out
        answer = publication.choose(policy, self.target_addresses, self.reached, row, self.blind, self.now)
        named = Named(self.target_addresses, answer, self.reached)
        out.policies[policy.key] = named
        if answer.row != NOTHING:
            out.rows[policy.key] = answer.row
        out.until = min(out.until, answer.until)
        if answer.wait is not None:
            message = (
                f"{policy.host} has no probe results yet"
                if answer.mode is Mode.WAITING
                else f"{policy.host} is healthy again, but not yet for long enough to withdraw the other addresses"
            )
            out.waits.append(Wait(policy.key, Waiting.VERDICT, message, answer.wait))
        foreign = self._foreign((policy.host, kind, "") for kind in ANSWERS)
        if foreign:
            self._refuse(foreign)
            return
        wanted = self._keep() if answer.mode is _KEPT else self._fit(answer, named)
        if wanted is None:
            return
        if wanted is not self.current:
            foreign = self._foreign(self._rivals(wanted))
            if foreign:
                self._refuse(foreign)
                return
        self._links(wanted, kept=answer.mode is _KEPT)
        self._differ(wanted, named)

    def _fit(self, answer: Answer, named: Named) -> Sets | None:
        """The record sets of the chosen target addresses as the provider supports them; None without an answer for the host.

        Returns `current` itself where nothing differs.
        """
        policy = self.policy
        wanted = tree.tree(policy, answer.target_addresses)
        if wanted == self.current:
            return self.current
        order = sorted({target.geo for target in policy.targets if target.default})
        adapted = capabilities_fit.adapt(wanted, policy.zone, self.zone.capabilities, order)
        named.notes = adapted.notes
        if wanted and not any(key.name == policy.host for key in adapted.records):
            why_not = "; ".join(sorted({note.message for note in adapted.notes if note.key.name == policy.host}))
            message = f"provider {policy.provider} cannot publish {policy.host}: {why_not}"
            next_step = "give the target addresses instead of a host name, or use a provider that supports aliases"
            self.out.holds.append(
                Hold(policy.key, f"publish {policy.host}", Rule.CANNOT_PUBLISH, message, next_step=next_step)
            )
            return None
        return self.current if adapted.records == self.current else adapted.records

    def _keep(self) -> Sets:
        """Keep the published record sets, with a hold where something would be withdrawn."""
        policy, reached = self.policy, self.reached
        unhealthy = {
            target_address.address
            for target_address in self.target_addresses
            if target_address.value is _FAIL or target_address.leaving
        }
        known = {target_address.address for target_address in self.target_addresses}
        going = sorted(reached & unhealthy | (reached - known))
        if going:
            message = f"no address of {policy.host} is known to be ready, so the published ones stay: {', '.join(sorted(reached))}"
            next_step = f"bring a target of {policy.key} back, or delete the policy to remove the name"
            self.out.holds.append(
                Hold(policy.key, f"withdraw {', '.join(going)}", Rule.LAST_RECORD, message, next_step=next_step)
            )
        return self.current

    def _links(self, wanted: Sets, kept: bool) -> None:
        """Collect the containers that a name still publishes, and those that it keeps because they are its last."""
        out = self.out
        out.wanted.append(wanted)
        doubtful = [
            target_address
            for target_address in self.target_addresses
            if target_address.value is not _PASS and target_address.behind
        ]
        if not doubtful:
            return
        before, after = addresses(self.current), addresses(wanted)
        healthy = {target_address.address for target_address in self.target_addresses if target_address.value is _PASS}
        for target_address in doubtful:
            ttl = before.get(target_address.address)
            if ttl is None or target_address.address in healthy:
                # A healthy endpoint shares the address: it does not disappear, so no TTL has to expire.
                continue
            stays = kept and (target_address.value is _FAIL or target_address.leaving)
            for name in target_address.behind:
                if stays or target_address.address not in after:
                    out.named[name] = max(out.named.get(name, 0), max(ttl, self.policy.ttl) * SECOND)
                if stays:
                    out.kept.add(name)

    def _differ(self, wanted: Sets, named: Named) -> None:
        policy, current = self.policy, self.current
        self.out.own.setdefault((policy.provider, policy.zone), set()).update(key.name for key in wanted)
        if wanted is current and not self.inherited:
            return
        notes: dict[str, set[str]] = {}
        for lacking in named.notes:
            notes.setdefault(lacking.key.name, set()).add(lacking.message)
        names = tree.names_of(policy)
        for key in sorted(wanted.keys() | current.keys()):
            before, after = current.get(key), wanted.get(key)
            owner = "" if before is None else self.zone.owners.get(key, "")
            taken = owner and owner != self.mark
            if before != after or taken:
                edited = after is None and key.name not in names
                takeover = {f"taken over from {owner_of(owner)[1]}"} if taken and after is not None else set()
                note = "; ".join(sorted(notes.get(key.name, set()) | takeover))
                reason = Reason.CHANGED if before == after else why(before, after)
                place = (policy.provider, policy.zone)
                self.out.changes.append(RecordDiff(policy.key, *place, key, before, after, reason, edited, note))

    # --- record sets of others --------------------------------------------------------------------------------------

    def _rivals(self, wanted: Sets) -> Iterable[RecordKey]:
        """Record sets that cannot stand beside the wanted ones: the same type, a CNAME, and anything beside a CNAME."""
        names = {key.name: key.type == "CNAME" for key in sorted(wanted) if key not in self.current}
        if not names:
            return ()
        types = {name: {key.type for key in wanted if key.name == name} for name in names}
        return [
            key
            for name, alone in names.items()
            for key in self.by_name.at(name)
            if alone or key.type == "CNAME" or key.type in types[name]
        ]

    def _foreign(self, keys: Iterable[tuple[str, str, str]]) -> list[RecordKey]:
        """The keys that belong to another writer."""
        records, current = self.zone.records, self.current
        return sorted(RecordKey(*key) for key in keys if key in records and key not in current)

    def _refuse(self, foreign: list[RecordKey]) -> None:
        policy = self.policy
        message, next_step = _foreign_texts(foreign, policy.zone, self.mark, "give the policy another host")
        self.out.own.setdefault((policy.provider, policy.zone), set()).update(key.name for key in self.current)
        self.out.holds.append(
            Hold(policy.key, f"publish {policy.host}", Rule.FOREIGN_RECORD, message, next_step=next_step)
        )


def _foreign_texts(foreign: list[RecordKey], zone: str, mark: str, alternative: str) -> tuple[str, str]:
    """The message and the next step of a hold for record sets of another writer."""
    listed = ", ".join(f"{key.name} {key.type}" for key in foreign)
    carry, records = ("carries", "that record") if len(foreign) == 1 else ("carry", "these records")
    return f"{listed} in zone {zone} {carry} no owner mark of {mark}", f"remove {records} by hand, or {alternative}"


# --- records, strays, orphans ------------------------------------------------------------------------------------------


def _record(
    snap: Snapshot, record: Record, mark: str, by_name: Mapping[tuple[str, str], ByName], claims: Claims, out: Names
) -> None:
    """Compare one plain record set with its zone."""
    place = (record.provider, record.zone)
    zone = snap.sight.zones.get(place)
    if zone is None:
        return
    out.own.setdefault(place, set()).add(record.host)
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
    beside = _beside(record, by_name[place])
    free = [other for other in beside if claims.yields(record, other)]
    others = [
        other for other in beside if other not in free and not record_lists.yields(zone.owners.get(other, ""), mark)
    ]
    if others:
        message, next_step = _foreign_texts(others, record.zone, mark, "remove the Record")
        out.holds.append(Hold(record.key, f"publish {record.host}", Rule.FOREIGN_RECORD, message, next_step=next_step))
        return
    claims.take(place, free)
    for other in free:
        if other != key:
            out.changes.append(RecordDiff(record.key, *place, other, zone.records[other], None, Reason.CHANGED))
    if before != after or not mine:
        out.changes.append(RecordDiff(record.key, *place, key, before, after, why(before, after)))


def _beside(record: Record, by_name: ByName) -> list[RecordKey]:
    """Existing record sets that this one must replace: the same key, a CNAME, and anything beside a CNAME."""
    if record.type == "CNAME":
        return sorted(by_name.at(record.host))
    keys = (RecordKey(record.host, record.type), RecordKey(record.host, "CNAME"))
    return [key for key in keys if key in by_name.at(record.host)]


def _strays(snap: Snapshot, marked: Mapping[tuple[str, str], Mapping[str, list[RecordKey]]], out: Names) -> None:
    """Collect owned record sets that no policy or record wants. Record sets of the zone itself are never changed."""
    policies = {
        (policy.provider, policy.zone, owner_mark(snap.desired.instance.id, policy.key)): policy
        for policy in snap.desired.policies
    }
    record_keys = {
        (plain.provider, plain.zone, owner_mark(snap.desired.instance.id, plain.key)): RecordKey(plain.host, plain.type)
        for plain in snap.desired.records
    }
    prefix = f"{snap.desired.instance.id}/"
    for (provider, zone_name), by_mark in marked.items():
        records = snap.sight.zones[provider, zone_name].records
        for mark, keys in by_mark.items():
            if not mark.startswith(prefix) or record_lists.is_list(mark):
                continue
            policy, record = policies.get((provider, zone_name, mark)), record_keys.get((provider, zone_name, mark))
            taken = out.taken.get((provider, zone_name), ())
            for key in keys:
                if (
                    key in taken
                    or key == record
                    or (policy is not None and tree.managed(policy, key.name))
                    or protected(key, zone_name)
                ):
                    continue
                diff = RecordDiff(owner_of(mark)[1], provider, zone_name, key, records[key], None, Reason.PRUNED, True)
                out.strays.append(diff)
    out.strays.sort(key=lambda stray: (stray.provider, stray.zone, stray.key))


def _orphans(snap: Snapshot, out: Names) -> None:
    """Collect orphans whose address any owned record set still publishes."""
    published: dict[str, int] = {}
    for zone in snap.sight.zones.values():
        for key, mark in zone.owners.items():
            record = zone.records.get(key)
            if record is None or key.type not in ADDRESS_TYPES or owner_of(mark)[0] != snap.desired.instance.id:
                continue
            for value in record.values:
                published[value] = max(published.get(value, 0), record.ttl * SECOND)
    wanted = {address for sets in out.wanted for address in addresses(sets)}
    hidden = next(iter(sorted(zone for _, zone in snap.sight.unknown_zones)), "")
    for fact in snap.roster.orphans:
        if hidden:
            out.hidden[fact.id] = hidden
        for port in fact.ports:
            if port.address in published and port.address not in wanted:
                out.named[fact.id] = max(out.named.get(fact.id, 0), published[port.address])
