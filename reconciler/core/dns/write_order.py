"""The order of writes in one zone: a name is there before anything points at it, and as long as anything may point at it.

Growing: leaves, then what points at them. Shrinking: what points, then its TTL is waited for, then the leaves. Nothing is
remembered of writes: each decision compares with the zone as it was read, so it does not matter where a run was killed.
Called by `dns_plan` for each zone in which something differs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manifests.values.desired import SECOND
from manifests.values.dns import DNSPolicy
from manifests.values.dns_names import balancer_name
from providers.facts import RecordKey, ZoneFact
from reconciler.core.dns import records
from reconciler.core.dns.records import RecordDiff
from reconciler.core.model.dns_memory import NameRow, Withdrawal
from reconciler.core.model.instant import Now, due, instant
from reconciler.core.model.reasons import Wait, Waiting

STRANGE = 300 * SECOND
"""How long a name of a tree is kept that no policy describes any more and of which nothing is remembered: the default TTL of
what may have pointed at it."""


@dataclass(slots=True)
class Arranged:
    """What may be written now, in groups that are written together; what waits; and names on their way out, by owner."""

    groups: list[tuple[RecordDiff, ...]] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    withdrawals: dict[str, list[Withdrawal]] = field(default_factory=dict)


class Order:
    """The changes of one zone while they are put in order."""

    def __init__(self, zone: ZoneFact, provider: str, instance: str, patient: bool, now: Now) -> None:
        """`patient`: whether a TTL is waited for before a name goes."""
        self.zone, self.provider, self.prefix, self.patient, self.now = zone, provider, f"{instance}/", patient, now
        self._at: dict[str, set[RecordKey]] | None = None
        self._pointed: dict[str, int] | None = None

    def arrange(
        self,
        diffs: Iterable[RecordDiff],
        wanted: frozenset[str],
        rows: Mapping[str, NameRow],
        patience: Callable[[RecordDiff], int],
    ) -> Arranged:
        """Put changes in order.

        Args:
            diffs: everything that should be otherwise and is not held.
            wanted: names that this instance publishes in the zone: pointing at one of them waits until it is there.
            rows: what is remembered, by owner.
            patience: how long (ns) the name of a change is kept when nothing is remembered of what pointed at it.
        """
        out = Arranged()
        for group in grouped(diffs):
            aims = {name for diff in group for name in _new_targets(diff) if name in wanted}
            missing = sorted(name for name in aims if name not in self._index())
            if missing:
                be, them = ("is", "it") if len(missing) == 1 else ("are", "them")
                message = f"{', '.join(missing)} {be} not published yet, so {group[0].key.name} cannot point at {them}"
                out.waits.append(Wait(group[0].object, Waiting.NAMES, message))
            elif not self._vanishes(group) or self._may_go(group[0], rows, patience, out):
                out.groups.append(group)
        return out

    def _may_go(
        self, diff: RecordDiff, rows: Mapping[str, NameRow], patience: Callable[[RecordDiff], int], out: Arranged
    ) -> bool:
        """Whether a name may vanish now: nothing points at it, and nobody remembers that something did."""
        name = diff.key.name
        place = f"{self.provider}/{self.zone.zone}/{name}"
        pointed = self._pointed_at().get(name)
        if pointed is not None:
            out.withdrawals.setdefault(diff.object, []).append(Withdrawal(place, pointed))
            out.waits.append(Wait(diff.object, Waiting.NAMES, f"other records still point at {name}"))
            return False
        known = next(
            (farewell for farewell in rows.get(diff.object, NameRow()).withdrawals if farewell.place == place), None
        )
        if known is None:
            known = Withdrawal(place, patience(diff), instant(self.now))
        elif known.since is None:
            known = known._replace(since=instant(self.now))
        assert known.since is not None  # noqa: S101  (set just above; for the type checker)
        until = due(known.since, known.ttl, self.now)
        if known.ttl:
            out.withdrawals.setdefault(diff.object, []).append(known)
        if until <= self.now.steady or not self.patient:
            return True
        out.waits.append(
            Wait(
                diff.object, Waiting.TTL, f"resolvers may still follow a pointer to {name} until its TTL expires", until
            )
        )
        return False

    def _vanishes(self, group: Sequence[RecordDiff]) -> bool:
        """Whether these changes leave nothing at their name."""
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
        """Names that sets of ours point at, and the longest TTL (ns) of those."""
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
    """Changes that must be one action: all sets of a routed name, and what takes the place of something else at its name.

    Plain address sets of one name stand for themselves: one that cannot be written must not keep the other.
    """
    by_name: dict[tuple[str, str], list[RecordDiff]] = {}
    for diff in sorted(diffs, key=lambda one: (one.key, one.object)):
        by_name.setdefault((diff.key.name, diff.object), []).append(diff)
    groups: list[tuple[RecordDiff, ...]] = []
    for members in by_name.values():
        together = any(member.key.set_id or member.key.type == "CNAME" or _alias(member) for member in members)
        leaves_nothing = all(member.after is None for member in members)
        groups += [tuple(members)] if together or leaves_nothing else [(member,) for member in members]
    return groups


def _alias(diff: RecordDiff) -> bool:
    return any(record is not None and record.alias for record in (diff.before, diff.after))


def patience_of(policy: DNSPolicy | None, diff: RecordDiff) -> int:
    """How long (ns) a name is kept when nothing is remembered: the TTL of the level above it; nothing points at a host."""
    name = diff.key.name
    if policy is None:
        return STRANGE if any(label in ("klb", "klb-wildcard") for label in name.split(".")) else 0
    balancer = balancer_name(policy.host)
    if name == balancer:
        return policy.tree_ttl.host * SECOND
    if name.endswith("." + balancer):
        return max(policy.tree_ttl.balancer, policy.tree_ttl.geo) * SECOND
    return 0
