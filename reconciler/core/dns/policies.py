"""Compares DNSPolicies with their zones: which target addresses each publishes, and which record sets that takes.

Neither health nor a planned step empties a name that has addresses: without a target address that is known to be healthy, the
published ones stay. `dns/compare` calls it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.dns import DNSPolicy
from providers.facts import ProbeValue, RecordKey
from reconciler.core.dns import capabilities_fit, flapping, held_ttls, publication, records, takeover, targets, tree
from reconciler.core.dns.capabilities_fit import Note
from reconciler.core.dns.names import Names, PolicyOutcome
from reconciler.core.dns.publication import Answer, Mode
from reconciler.core.dns.records import RecordDiff, Sets, ZoneIndex, ZoneKey
from reconciler.core.dns.takeover import TakeOvers
from reconciler.core.dns.targets import TargetAddress, TargetContext
from reconciler.core.model.dns_memory import NOTHING, NameRow
from reconciler.core.model.reasons import Act, HeldAction, Hold, Reason, Rule, Wait, Waiting
from reconciler.core.replicas.snapshot import Snapshot

_PASS, _FAIL, _KEPT = ProbeValue.PASS, ProbeValue.FAIL, Mode.KEPT

_AWAITED = {
    Mode.WAITING: "has no probe results yet",
    Mode.ALL_UNHEALTHY: "has no probe results yet",
    Mode.HOLD_DOWN: "is healthy again, but not yet for long enough to withdraw the other addresses",
    Mode.FAILED_AGAIN: "has only unhealthy addresses again; the published ones stay for now, and then all are published",
}
"""What a name waits for, by the mode of its answer."""


def compare(
    snap: Snapshot,
    policy: DNSPolicy,
    context: TargetContext,
    indexes: Mapping[ZoneKey, ZoneIndex],
    takeovers: TakeOvers,
    out: Names,
) -> None:
    """Decide what one policy publishes, and collect the differences between that and its zone.

    While the zone is unknown, the containers behind the policy are `hidden` and its memory stays.
    """
    target_addresses = targets.target_addresses_of(policy, context)
    row = context.ledger.names.get(policy.key, NOTHING)
    index = indexes.get((policy.provider, policy.zone))
    if index is None:
        for target_address in target_addresses:
            for container in target_address.behind:
                out.hidden.setdefault(container, policy.zone)
        if row != NOTHING:
            out.rows[policy.key] = row
        out.flaps.update((key, flap) for key, flap in context.ledger.flaps.items() if key.startswith(f"{policy.key}/"))
        out.policies[policy.key] = PolicyOutcome(target_addresses, Answer(Mode.WAITING, {}, row), None)
        return
    mark = records.owner_mark(snap.desired.instance.id, policy.key)
    keys = [key for key in index.by_mark.get(mark, ()) if tree.manages(policy, key.name)]
    inherited = takeovers.of_policy(policy)
    adopted = _adoptable(policy, index) if policy.adopt else frozenset()
    sets = {key: index.zone.records[key] for key in (*keys, *inherited, *sorted(adopted))}
    current = _Current(sets, bool(inherited), adopted)
    _Comparison(snap, policy, index, target_addresses, current, context, out).compare(row)


class _Current(NamedTuple):
    """What a policy has in its zone, and whether some record sets still carry the mark of their previous object.

    `adopted` are those without any mark that the policy takes over.
    """

    sets: Sets
    inherited: bool
    adopted: frozenset[RecordKey]


def _adoptable(policy: DNSPolicy, index: ZoneIndex) -> frozenset[RecordKey]:
    """The sets at the names of a policy that answer for addresses and have no owner mark."""
    host = RecordKey(policy.host, "A")
    names = (name for name in sorted(tree.names_of(policy)) if index.at(name))
    return frozenset(
        key for name in names for key in index.at(name) if takeover.adoptable(index.zone, key, host._replace(name=name))
    )


class _Comparison:
    """One policy while it is compared with its zone."""

    def __init__(
        self,
        snap: Snapshot,
        policy: DNSPolicy,
        index: ZoneIndex,
        target_addresses: tuple[TargetAddress, ...],
        current: _Current,
        context: TargetContext,
        out: Names,
    ) -> None:
        self.policy, self.zone, self.index, self.out, self.now = policy, index.zone, index, out, snap.now
        self.mark = records.owner_mark(snap.desired.instance.id, policy.key)
        self.current, self.inherited, self.adopted = current
        self.reachable = publication.reachable(policy.host, self.current)
        target_addresses = tuple(
            targets.until_checked(target_address, self.reachable) if target_address.unchecked else target_address
            for target_address in target_addresses
        )
        self.partly_unseen = targets.partly_unseen(policy, context.services, snap.roster)
        if self.partly_unseen:
            known = {target_address.address for target_address in target_addresses}
            target_addresses += tuple(targets.unseen_addresses(policy, self.reachable - known, context))
        followed = flapping.follow(policy, target_addresses, self.reachable, context.ledger.flaps, snap.now)
        self.held_ttls = context.ledger.held_ttls
        self.target_addresses = followed.target_addresses
        out.flaps.update(followed.rows)
        out.until = min(out.until, followed.until)

    def compare(self, row: NameRow) -> None:
        """Decide what should be published, and collect the differences."""
        policy, out = self.policy, self.out
        answer = publication.choose(policy, self.target_addresses, self.reachable, row, self.partly_unseen, self.now)
        outcome = PolicyOutcome(self.target_addresses, answer, self.reachable, self.reachable)
        out.policies[policy.key] = outcome
        if answer.row != NOTHING:
            out.rows[policy.key] = answer.row
        out.until = min(out.until, answer.until)
        if answer.wait is not None:
            out.waits.append(Wait(policy.key, Waiting.VERDICT, f"{policy.host} {_AWAITED[answer.mode]}", answer.wait))
        for target_address in self.target_addresses:
            if target_address.held_until:
                self._wait_for_steady_health(target_address)
        foreign = self._foreign((policy.host, kind, "") for kind in takeover.ANSWERS)
        if foreign:
            self._refuse(foreign)
            return
        wanted = self._keep() if answer.mode is _KEPT else self._fit(self._with_floors(answer), outcome)
        if wanted is None:
            return
        if wanted is not self.current:
            foreign = self._foreign(self._rivals(wanted))
            if foreign:
                self._refuse(foreign)
                return
            outcome.wanted = publication.reachable(policy.host, wanted)
        self._add_containers(wanted, kept=answer.mode is _KEPT)
        self._add_changes(wanted, outcome.notes, kept=answer.mode is _KEPT)

    def _wait_for_steady_health(self, target_address: TargetAddress) -> None:
        """Wait until an address that flaps has been healthy for long enough."""
        times, until = target_address.failures, target_address.held_until
        message = f"{target_address.address} is healthy, but failed {times} times in a row; it stays out of {self.policy.host} until its health has lasted"
        self.out.waits.append(Wait(self.policy.key, Waiting.STEADY, message, until))

    def _with_floors(self, answer: Answer) -> Answer:
        """Keep published addresses of a revision without traffic while a target would have too few others.

        An address that joins counts only where the same write withdraws the other one: else that write alone might succeed.
        """
        superseded: dict[str, list[TargetAddress]] = {}
        for target_address in self.target_addresses:
            if target_address.floor and target_address.address in self.reachable:
                superseded.setdefault(target_address.target, []).append(target_address)
        if not superseded or answer.mode not in (Mode.HEALTHY, Mode.HOLD_DOWN):
            return answer
        chosen = dict(answer.target_addresses)
        for target, leaving in superseded.items():
            for kind in records.ADDRESS_TYPES:
                stays = chosen.get(target, frozenset())
                others = sum(
                    1 for address in stays if address in self.reachable or records.record_type(address) == kind
                )
                of_kind = [address for address in leaving if records.record_type(address.address) == kind]
                missing = max((address.floor for address in of_kind), default=0) - others
                if missing > 0:
                    chosen[target] = stays.union(address.address for address in of_kind[:missing])
        return answer._replace(target_addresses=chosen)

    def _fit(self, answer: Answer, outcome: PolicyOutcome) -> Sets | None:
        """The record sets of the chosen target addresses as the provider supports them; None without an answer for the host.

        Returns `current` itself where nothing differs.
        """
        policy = self.policy
        wanted = tree.build(policy, answer.target_addresses, answer.spare)
        if wanted == self.current:
            return self.current
        order = sorted({target.geo for target in policy.targets if target.default})
        adapted = capabilities_fit.adapt(wanted, policy.zone, self.zone.capabilities, order)
        outcome.notes = adapted.notes
        if wanted and not any(key.name == policy.host for key in adapted.records):
            why_not = "; ".join(sorted({note.message for note in adapted.notes if note.key.name == policy.host}))
            message = f"provider {policy.provider} cannot publish {policy.host}: {why_not}"
            next_step = "give the target addresses instead of a host name, or use a provider that supports aliases"
            self.out.holds.append(self._held(f"publish {policy.host}", Rule.CANNOT_PUBLISH, message, next_step))
            return None
        return self.current if adapted.records == self.current else adapted.records

    def _held(self, action: str, rule: Rule, message: str, next_step: str) -> Hold:
        """A hold of everything at the host: the health of every target address counts for nothing there."""
        addresses = {target_address.address for target_address in self.target_addresses} | self.reachable
        held = HeldAction(Act.RECORDS, host=self.policy.host, addresses=tuple(sorted(addresses)))
        return Hold(self.policy.key, action, rule, message, next_step=next_step, held=held)

    def _keep(self) -> Sets:
        """Keep the published record sets, with a hold where something would be withdrawn."""
        policy, reachable = self.policy, self.reachable
        unhealthy = {
            target_address.address
            for target_address in self.target_addresses
            if target_address.value is _FAIL or target_address.leaving
        }
        known = {target_address.address for target_address in self.target_addresses}
        going = sorted(reachable & unhealthy | (reachable - known))
        if going:
            stay = ", ".join(sorted(reachable))
            message = f"no address of {policy.host} is known to be ready, so the published ones stay: {stay}"
            next_step = f"bring an endpoint of {policy.key} back, or delete the policy to remove the name"
            self.out.holds.append(
                Hold(
                    policy.key,
                    f"withdraw {', '.join(going)}",
                    Rule.LAST_RECORD,
                    message,
                    next_step=next_step,
                    held=HeldAction(Act.RECORDS, host=policy.host, addresses=tuple(going)),
                )
            )
        return self.current

    def _add_containers(self, wanted: Sets, kept: bool) -> None:
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
        before, after = records.ttl_by_address(self.current), records.ttl_by_address(wanted)
        healthy = {target_address.address for target_address in self.target_addresses if target_address.value is _PASS}
        for target_address in doubtful:
            ttl = before.get(target_address.address)
            if ttl is None or target_address.address in healthy:
                # A healthy endpoint shares the address: it does not disappear, so no TTL has to expire.
                continue
            place = held_ttls.place((self.policy.provider, self.policy.zone), target_address.address)
            earlier = held_ttls.left(self.held_ttls, place, self.now)
            stays = kept and (target_address.value is _FAIL or target_address.leaving)
            for name in target_address.behind:
                if stays or target_address.address not in after:
                    out.named[name] = max(out.named.get(name, 0), ttl * SECOND, earlier)
                if stays:
                    out.kept.add(name)

    def _add_changes(self, wanted: Sets, lacking: Iterable[Note], kept: bool) -> None:
        """Collect the differences between the wanted and the current record sets. `kept`: the current ones stay."""
        policy, current = self.policy, self.current
        self.out.own.setdefault((policy.provider, policy.zone), set()).update(key.name for key in wanted)
        if wanted is current and not self.inherited and (kept or not self.adopted):
            return
        notes: dict[str, set[str]] = {}
        for note in lacking:
            notes.setdefault(note.key.name, set()).add(note.message)
        names = tree.names_of(policy)
        # Where a set of another value is taken over, all changes of its name need approval, because they are one write.
        replaced = {key.name for key in self.adopted if current[key] != wanted.get(key)}
        # While nothing is known to be healthy, sets of others stay what they are: nothing says that the policy wants them.
        left = self.adopted if kept else frozenset()
        for key in sorted((wanted.keys() | current.keys()) - left):
            before, after = current.get(key), wanted.get(key)
            owner = "" if before is None else self.zone.owners.get(key, "")
            taken = owner and owner != self.mark
            adopts = key in self.adopted
            if before != after or taken or adopts:
                edited = after is None and key.name not in names and not adopts
                moved = {f"taken over from {records.owner_of(owner)[1]}"} if taken and after is not None else set()
                moved |= {records.TAKEN_OVER} if adopts and before == after else set()
                text = "; ".join(sorted(notes.get(key.name, set()) | moved))
                reason = Reason.CHANGED if before == after else records.reason_of(before, after)
                zone_key = (policy.provider, policy.zone)
                replaces = key.name in replaced and before != after
                diff = RecordDiff(policy.key, *zone_key, key, before, after, reason, edited, text, adopts, replaces)
                self.out.changes.append(diff)

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
            for key in self.index.at(name)
            if alone or key.type == "CNAME" or key.type in types[name]
        ]

    def _foreign(self, keys: Iterable[tuple[str, str, str]]) -> list[RecordKey]:
        """The keys that belong to another writer."""
        existing, current = self.zone.records, self.current
        return sorted(RecordKey(*key) for key in keys if key in existing and key not in current)

    def _refuse(self, foreign: list[RecordKey]) -> None:
        policy = self.policy
        zone, host = self.zone, RecordKey(policy.host, "A")
        can_adopt = not policy.adopt and all(
            takeover.adoptable(zone, key, host._replace(name=key.name)) for key in foreign
        )
        message, next_step = records.foreign_texts(
            foreign, zone.owners, policy.zone, can_adopt, "give the policy another host"
        )
        self.out.own.setdefault((policy.provider, policy.zone), set()).update(key.name for key in self.current)
        self.out.holds.append(self._held(f"publish {policy.host}", Rule.FOREIGN_RECORD, message, next_step))
