"""How a list of record sets is divided into steps: as few as possible, and after a refusal ever smaller ones.

A server that refuses one record set refuses the whole request. So a batch that was refused is halved until the bad set stands alone;
all others are written. Which half a set belongs to follows from a hash of its name and type: the halves stay the same while more and
more of their sets are written. Sets that must be written together stay together, and what depends on a set in another half waits
(`dns/list_order`). `dns/publish` calls `divide` for the groups of lists in one zone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from manifests.values.desired import Desired
from providers.actions import ChangeRecords, RecordChange
from providers.facts import ZoneFact
from reconciler.core.dns import list_order, records
from reconciler.core.dns.records import RecordDiff
from reconciler.core.model.ledger import Ledger, StepFailure
from reconciler.core.model.reasons import Reason, Wait, Waiting
from reconciler.core.model.step import Step

FULL_BATCH = 5_000
"""Most record sets in one step of a list: writing and reading back must end within the deadline of a call."""

SMALL_BATCH = 100
"""A batch above this size is halved as well when it fails again and again without being refused: it may be too large to end in time."""

CALLS = 16
"""Most steps of one list that begin in one decision while it has refused ones."""

REFUSALS = 512
"""A list with so many refused batches is not divided any further: then the server refuses more than single sets."""

_BITS = 128

Group = Sequence[RecordDiff]


@dataclass(slots=True)
class Division:
    """The steps of one list, and the ids of batches that were divided: their failures stay known. `limit`: how many may begin.

    `waits`: what may not be written before other sets of the list.
    """

    steps: list[Step] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    divided: set[str] = field(default_factory=set)
    limit: int | None = None


def divide(desired: Desired, groups: Iterable[Group], ledger: Ledger, zone: ZoneFact) -> list[Division]:
    """The steps of all groups of lists in one zone, as it was read. A group stays in one step; deletions come last."""
    by_list: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        by_list.setdefault(group[0][:3], []).append(group)
    return [_divided(desired, key, of_list, ledger, zone) for key, of_list in sorted(by_list.items())]


def _divided(
    desired: Desired, key: tuple[str, str, str], groups: list[Group], ledger: Ledger, fact: ZoneFact
) -> Division:
    obj, provider, zone = key
    name = f"records {provider}/{zone}/{obj}/"
    groups = list_order.together(groups)
    failures = {step: failure for step, failure in ledger.step_failures.items() if step.startswith(name)}
    out = Division(limit=CALLS if failures else None)
    divider = _Divider(desired, name, failures, out)
    groups.sort(key=_rank)
    whole = f"{name}all"
    if len(groups) > 1 and sum(map(len, groups)) <= FULL_BATCH and not divider.divides(whole, "all", groups):
        out.steps.append(_step(desired, whole, groups))
        return out
    count = len(groups) if whole in out.divided else 0
    if failures:
        groups, waiting = list_order.ready(groups, fact)
        for group, need in waiting:
            # The failures of what waits stay known.
            out.divided.add(f"{name}{group[0].key.name} {group[0].key.type}")
            out.waits.append(Wait(obj, Waiting.NAMES, list_order.why(group, need)))
    by_rank: dict[int, list[Group]] = {}
    for group in groups:
        by_rank.setdefault(_rank(group)[0], []).append(group)
    for rank, of_rank in sorted(by_rank.items()):
        divider.put(f"{name}{rank}", "", of_rank, len(of_rank) == count)
    return out


class _Divider:
    """Divides the groups of one list. `failures` are those of its steps."""

    def __init__(self, desired: Desired, name: str, failures: dict[str, StepFailure], out: Division) -> None:
        self.desired, self.name, self.failures, self.out = desired, name, failures, out
        self._inner = self._divided_before() if sum(row.refused for row in failures.values()) >= REFUSALS else None

    def _divided_before(self) -> set[str]:
        """The paths of batches that were divided already, and the whole: those of all failures, without their last bit."""
        inner = {"all"} if len(self.failures) > 1 else set()
        for step in self.failures:
            tail = step.removeprefix(self.name)
            path = tail.partition("/")[2] if " " not in tail else f"{_bits_of(tail):0{_BITS}b}"[::-1]
            inner |= {path[:length] for length in range(len(path))}
        return inner

    def divides(self, identity: str, path: str, groups: Sequence[Group]) -> bool:
        """Whether a batch is divided because of its failures; remembers that it was."""
        failure = self.failures.get(identity)
        if failure is None or len(groups) < 2:
            return False
        large = sum(map(len, groups)) > SMALL_BATCH
        divides = not failure.whole if failure.refused else failure.streak > 1 and large
        if self._inner is not None:
            divides = divides and path in self._inner
        if divides:
            self.out.divided.add(identity)
        return divides

    def put(self, prefix: str, path: str, groups: Sequence[Group], all_of_them: bool = False) -> None:
        """Add the steps of these groups: one, or those of their halves.

        `path` has a bit for each time they were divided. `all_of_them`: a batch with the same groups is divided already, because
        the other half is empty; another call for the same would be refused as well.
        """
        if len(groups) == 1:
            key = groups[0][0].key
            self.out.steps.append(_step(self.desired, f"{self.name}{key.name} {key.type}", groups))
            return
        identity = f"{prefix}/{path}"
        too_large = sum(map(len, groups)) > FULL_BATCH
        if len(path) >= _BITS or not (self.divides(identity, path, groups) or too_large or all_of_them):
            self.out.steps.append(_step(self.desired, identity, groups))
            return
        halves: tuple[list[Group], list[Group]] = ([], [])
        for group in groups:
            halves[_bits(group) >> len(path) & 1].append(group)
        for bit, half in enumerate(halves):
            if half:
                self.put(prefix, f"{path}{bit}", half, len(half) == len(groups))


def _bits(group: Group) -> int:
    key = group[0].key
    return _bits_of(f"{key.name} {key.type}")


def _bits_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=_BITS // 8).digest())


def _rank(group: Group) -> tuple[int, str, str]:
    """Addresses before the names that point at them; of deletions, those names first."""
    gone = all(diff.after is None for diff in group)
    points = any(diff.key.type == "CNAME" for diff in group)
    return (3 - points if gone else int(points), *group[0].key[:2])


def _step(desired: Desired, identity: str, groups: Iterable[Group]) -> Step:
    diffs = [diff for group in groups for diff in group]
    first = diffs[0]
    owner = records.owner_mark(desired.instance.id, first.object)
    action = ChangeRecords(
        first.provider,
        first.zone,
        tuple(RecordChange(diff.key, diff.before, diff.after, owner, diff.adopts) for diff in diffs),
    )
    new = sum(1 for diff in diffs if diff.before is None)
    gone = sum(1 for diff in diffs if diff.after is None)
    counts = ((new, "in"), (gone, "out"), (len(diffs) - new - gone, "changed"))
    message = "; ".join(f"{change}: {_sets(count)}" for count, change in counts if count)
    reason = Reason.PRUNED if gone == len(diffs) else Reason.PUBLISHED if new else Reason.CHANGED
    return Step(identity, first.object, action, reason, message, journal=gone > 0 or any(diff.adopts for diff in diffs))


def _sets(count: int) -> str:
    return f"{count} record set{'' if count == 1 else 's'}"
