"""Steps of names: what differs at one name, as exactly one action. Called by `dns_plan`."""

from collections.abc import Sequence

from manifests.values.desired import Desired
from providers.actions import ChangeRecords, RecordChange
from reconciler.core.actions.steps import Links, records_id
from reconciler.core.dns.records import RecordDiff, owner_mark
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step


def records(desired: Desired, diffs: Sequence[RecordDiff], links: Links) -> Step:
    """Change the record sets of one name together."""
    first, changes, parts = diffs[0], [], []
    before = frozenset(value for diff in diffs if diff.before for value in diff.before.values)
    after = frozenset(value for diff in diffs if diff.after for value in diff.after.values)
    for diff in diffs:
        owner = owner_mark(desired.instance.id, diff.object)
        changes.append(RecordChange(diff.key, diff.before, diff.after, owner))
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
    reason = Reason.WITHDRAWN if gone and first.reason is not Reason.PRUNED else _most(diffs)
    return Step(identity, first.object, action, reason, message, follows, journal=gone)


def _most(diffs: Sequence[RecordDiff]) -> Reason:
    """What several changes amount to: what goes for health comes before all else."""
    reasons = {diff.reason for diff in diffs}
    order = (Reason.WITHDRAWN, Reason.PUBLISHED, Reason.CHANGED)
    return next((one for one in order if one in reasons), diffs[0].reason)
