"""The order of writes in one zone: a name exists before anything points at it, and as long as anything may point at it.

Growing: the address records, then the pointers. Shrinking: the pointers, then their TTL expires, then the address records. Each
decision compares with the zone as it was read and remembers no writes, so a run may be killed at any point. `dns/publish` calls
it for each zone with differences.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from manifests.values.desired import SECOND
from manifests.values.dns import DNSPolicy
from manifests.values.dns_names import balancer_name
from providers.facts import RecordKey, ZoneFact
from reconciler.core.dns import delegations, held_ttls, records
from reconciler.core.dns.records import RecordDiff
from reconciler.core.model.dns_memory import NameRow, Withdrawal
from reconciler.core.model.instant import Now, due, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Wait, Waiting

UNKNOWN_TTL = 300 * SECOND
"""How long a name of a tree is kept without a policy and without memory of it (ns): the default TTL of pointers."""


@dataclass(slots=True)
class Arranged:
    """The groups of changes to write now, each in one action; the waits; and the names being withdrawn, by owner."""

    groups: list[tuple[RecordDiff, ...]] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    withdrawals: dict[str, list[Withdrawal]] = field(default_factory=dict)


class Order:
    """The changes of one zone while they are ordered."""

    def __init__(
        self, zone: ZoneFact, provider: str, instance: str, ledger: Ledger, keep_for_ttl: bool, now: Now
    ) -> None:
        """`ledger`: what is remembered. `keep_for_ttl`: whether a name is kept until the TTL of its pointers expires."""
        self.zone, self.provider, self.prefix = zone, provider, f"{instance}/"
        self.ledger, self.keep_for_ttl, self.now = ledger, keep_for_ttl, now
        self._at: dict[str, set[RecordKey]] | None = None
        self._pointed: dict[str, int] | None = None

    def arrange(
        self,
        diffs: Iterable[RecordDiff],
        wanted: frozenset[str],
        default_ttl: Callable[[RecordDiff], int],
    ) -> Arranged:
        """Order the changes.

        Args:
            diffs: all differences that are not held.
            wanted: names that this instance publishes in the zone: a pointer to one waits until it exists.
            default_ttl: the TTL (ns) for which the name of a change is kept where it is not known what pointed at it.
        """
        out = Arranged()
        diffs = list(diffs)
        cuts = delegations.changed(diffs, self.zone.zone)
        for group in grouped(diffs):
            waits = delegations.waits(group, cuts, self.zone) if cuts else ""
            if waits:
                out.waits.append(Wait(group[0].object, Waiting.NAMES, waits))
                continue
            pointed_at = {name for diff in group for name in _new_targets(diff) if name in wanted}
            missing = sorted(name for name in pointed_at if name not in self._index())
            if missing:
                be, them = ("is", "it") if len(missing) == 1 else ("are", "them")
                message = f"{', '.join(missing)} {be} not published yet, so {group[0].key.name} cannot point at {them}"
                out.waits.append(Wait(group[0].object, Waiting.NAMES, message))
            elif not self._vanishes(group) or self._may_be_deleted(group[0], default_ttl, out):
                out.groups.append(group)
        return out

    def _may_be_deleted(self, diff: RecordDiff, default_ttl: Callable[[RecordDiff], int], out: Arranged) -> bool:
        """Whether a name may be deleted now: nothing points at it, and the TTL of what pointed at it has expired."""
        name = diff.key.name
        place = f"{self.provider}/{self.zone.zone}/{name}"
        pointed = self._pointed_at().get(name)
        if pointed is not None:
            out.withdrawals.setdefault(diff.object, []).append(Withdrawal(place, pointed))
            out.waits.append(Wait(diff.object, Waiting.NAMES, f"other records still point at {name}"))
            return False
        known = next(
            (
                withdrawal
                for withdrawal in self.ledger.names.get(diff.object, NameRow()).withdrawals
                if withdrawal.place == place
            ),
            None,
        )
        held = self.ledger.held_ttls.get(place)
        if known is None and held is None:
            # What pointed at the name before the ledger knew it may still be in resolvers.
            since = self.ledger.pointers_known.get(held_ttls.place((self.provider, self.zone.zone), ""))
            known = Withdrawal(place, default_ttl(diff), since or instant(self.now))
        elif known is None:
            known = Withdrawal(place, 0, instant(self.now))
        elif known.since is None:
            known = known._replace(since=instant(self.now))
        assert known.since is not None  # noqa: S101  (set just above; for the type checker)
        # A longer TTL that was lowered shortly before counts as it was published.
        until = max(
            due(known.since, known.ttl, self.now),
            self.now.steady + held_ttls.left(self.ledger.held_ttls, place, self.now),
        )
        if known.ttl:
            out.withdrawals.setdefault(diff.object, []).append(known)
        if until <= self.now.steady or not self.keep_for_ttl:
            return True
        out.waits.append(
            Wait(
                diff.object, Waiting.TTL, f"resolvers may still follow a pointer to {name} until its TTL expires", until
            )
        )
        return False

    def _vanishes(self, group: Sequence[RecordDiff]) -> bool:
        """Whether these changes leave no record set at their name."""
        if any(diff.after is not None for diff in group):
            return False
        return self._keys_at(group[0].key.name) <= {diff.key for diff in group}

    # --- the zone as it was read ------------------------------------------------------------------------------------

    def _index(self) -> dict[str, set[RecordKey]]:
        if self._at is None:
            self._at = {}
            for key in self.zone.records:
                self._at.setdefault(key.name, set()).add(key)
        return self._at

    def _keys_at(self, name: str) -> set[RecordKey]:
        return self._index().get(name, set())

    def _pointed_at(self) -> dict[str, int]:
        """Names that owned record sets point at, with the longest TTL (ns) of those sets."""
        if self._pointed is None:
            self._pointed = {}
            for key, mark in self.zone.owners.items():
                record = self.zone.records.get(key)
                if record is None or not mark.startswith(self.prefix):
                    continue
                for name in records.points_at(key, record):
                    self._pointed[name] = max(self._pointed.get(name, 0), record.ttl * SECOND)
        return self._pointed


def _new_targets(diff: RecordDiff) -> tuple[str, ...]:
    return () if diff.after is None else records.points_at(diff.key, diff.after)


def grouped(diffs: Iterable[RecordDiff]) -> list[tuple[RecordDiff, ...]]:
    """Group changes that must be one action: all sets of a routed name, and sets that replace others at their name.

    Plain address sets of one name are separate: a failed write of one must not stop the other.
    """
    by_name: dict[tuple[str, str], list[RecordDiff]] = {}
    for diff in sorted(diffs, key=lambda diff: (diff.key, diff.object)):
        by_name.setdefault((diff.key.name, diff.object), []).append(diff)
    groups: list[tuple[RecordDiff, ...]] = []
    for members in by_name.values():
        together = any(member.key.set_id or member.key.type == "CNAME" or _alias(member) for member in members)
        leaves_nothing = all(member.after is None for member in members)
        groups += [tuple(members)] if together or leaves_nothing else [(member,) for member in members]
    return groups


def _alias(diff: RecordDiff) -> bool:
    return any(record is not None and record.alias for record in (diff.before, diff.after))


def pointer_ttl(policy: DNSPolicy | None, diff: RecordDiff) -> int:
    """How long (ns) a name is kept without memory: the TTL of the level above it; 0 for a host, as nothing points at it."""
    name = diff.key.name
    if policy is None:
        return UNKNOWN_TTL if any(label in ("klb", "klb-wildcard") for label in name.split(".")) else 0
    balancer = balancer_name(policy.host)
    if name == balancer:
        return policy.tree_ttl.host * SECOND
    if name.endswith("." + balancer):
        return max(policy.tree_ttl.balancer, policy.tree_ttl.geo) * SECOND
    return 0
