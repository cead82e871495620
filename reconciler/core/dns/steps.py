"""Steps that change record sets: one action for the differences at a name.

`dns/publish` calls it: `of_name` for a group of policies and records, and `merged` so that holds and waits of a list are as few as
its steps. `list_batches` makes the steps of lists.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from manifests.values.desired import Desired
from providers.actions import ChangeRecords, RecordChange
from reconciler.core.actions.steps import Links, records_id
from reconciler.core.dns import record_lists, records
from reconciler.core.dns.records import RecordDiff
from reconciler.core.model.reasons import UNSPECIFIED, Hold, Reason, Wait
from reconciler.core.model.step import Step

Group = Sequence[RecordDiff]


def of_name(desired: Desired, diffs: Sequence[RecordDiff], links: Links) -> Step:
    """Change the record sets of one name together."""
    first, changes, parts = diffs[0], [], []
    before = frozenset(value for diff in diffs if diff.before for value in diff.before.values)
    after = frozenset(value for diff in diffs if diff.after for value in diff.after.values)
    for diff in diffs:
        owner = records.owner_mark(desired.instance.id, diff.object)
        changes.append(RecordChange(diff.key, diff.before, diff.after, owner, diff.adopts))
    if after - before:
        parts.append(f"in: {', '.join(sorted(after - before))}")
    if before - after:
        parts.append(f"out: {', '.join(sorted(before - after))}")
    action = ChangeRecords(first.provider, first.zone, tuple(changes))
    follows = links.weights_of(frozenset(), after - before) if after - before else ()
    notes = sorted({diff.note for diff in diffs if diff.note})
    same = all(diff.before == diff.after for diff in diffs)
    message = "; ".join(parts) or ("owner" if same else "TTL" if len(diffs) == 1 else "routing")
    message = "; ".join([message, *notes])
    keys = {diff.key._replace(set_id="") for diff in diffs}
    key = first.key if len(diffs) == 1 else keys.pop() if len(keys) == 1 else None
    name = f"records {first.provider}/{first.zone}/{first.key.name}"
    identity = name if key is None else records_id(first.provider, first.zone, key)
    gone = all(diff.after is None for diff in diffs)
    reason = Reason.WITHDRAWN if gone and first.reason is not Reason.PRUNED else _main_reason(diffs)
    return Step(
        identity, first.object, action, reason, message, follows, journal=gone or any(diff.adopts for diff in diffs)
    )


def split(groups: Iterable[Group]) -> tuple[list[Group], list[Group]]:
    """Split groups into those of policies and records, and those of lists."""
    alone: list[Group] = []
    listed: list[Group] = []
    for group in groups:
        (listed if group[0].object.startswith(record_lists.PREFIX) else alone).append(group)
    return alone, listed


def merged(holds: Iterable[Hold], waits: Iterable[Wait]) -> tuple[list[Hold], list[Wait]]:
    """Merge equal holds and equal waits of the record sets of a list: 100,000 separate holds would be unreadable."""
    alike_holds: dict[Hold, list[Hold]] = {}
    for hold in holds:
        alike_holds.setdefault(
            replace(hold, action="", held=UNSPECIFIED, item="")
            if hold.object.startswith(record_lists.PREFIX)
            else hold,
            [],
        ).append(hold)
    alike_waits: dict[Wait, list[Wait]] = {}
    for wait in waits:
        alike_waits.setdefault(
            replace(wait, message="") if wait.object.startswith(record_lists.PREFIX) else wait, []
        ).append(wait)
    merged_holds, merged_waits = [], []
    for holds_of_list in alike_holds.values():
        first = min(holds_of_list, key=lambda hold: hold.action)
        more = len({hold.action for hold in holds_of_list}) - 1
        merged_holds.append(replace(first, action=f"{first.action} and {more} more") if more else first)
    for waits_of_list in alike_waits.values():
        earliest = min(waits_of_list, key=lambda wait: wait.message)
        more = len({wait.message for wait in waits_of_list}) - 1
        merged_waits.append(replace(earliest, message=f"{earliest.message}; and {more} more") if more else earliest)
    return merged_holds, merged_waits


def _main_reason(diffs: Sequence[RecordDiff]) -> Reason:
    """The reason of several changes: a withdrawal for health comes before all others."""
    reasons = {diff.reason for diff in diffs}
    order = (Reason.WITHDRAWN, Reason.PUBLISHED, Reason.CHANGED)
    return next((reason for reason in order if reason in reasons), diffs[0].reason)
