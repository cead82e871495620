"""What drifted, as `reconcile drift` lists it: containers, weights and record sets that moved while the manifests did not.

A weight or a record set that differs because health or a ramp decided otherwise has not drifted: only what another writer moved, or a
balancer lost, is listed. Called by `decide`; it looks at differences only.
"""

from collections.abc import Iterable, Mapping

from reconciler.core.dns import other_writers, records
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff
from reconciler.core.drift.fields import Watch
from reconciler.core.drift.why import Movement, Outside
from reconciler.core.model.drift import Drift, Moved, Why
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold
from reconciler.core.model.want import Want
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import other_writers as weight_writers
from reconciler.core.traffic.weights import MemberChange, Weights

CORRECTED = "corrected"
"""The answer to drift that nothing holds."""


def outside(snap: Snapshot, ledger: Ledger, weights: Weights, names: Names) -> Outside:
    """What other writers moved in pools and zones, or a balancer lost in a restart. Arguments as `find`."""
    return Outside(
        frozenset(
            (f"{change.provider}/{change.pool}", change.endpoint) for change in _moved_weights(snap, ledger, weights)
        ),
        frozenset((*diff.provider_zone, diff.key) for diff in _moved_sets(snap, ledger, names)),
    )


def find(
    wants: Iterable[Want],
    watch: Watch,
    weights: Weights,
    names: Names,
    holds: Iterable[Hold],
    moved_outside: Outside,
) -> tuple[Drift, ...]:
    """All drift of one decision, by object and field.

    Args:
        wants: the candidates, with what moved.
        watch: the drift of containers that is not corrected.
        weights, names: the differences of pools and zones.
        holds: of this decision, for the answers.
        moved_outside: what of these differences other writers made.
    """
    drifted = list(watch.reported)
    pending = [want for want in wants if want.why is Why.DRIFT and want.workload is not None]
    members, moved_sets = moved_outside
    changes = [change for change in weights.changes if (f"{change.provider}/{change.pool}", change.endpoint) in members]
    sets = [diff for diff in names.changes if (*diff.provider_zone, diff.key) in moved_sets] if moved_sets else []
    if not (pending or changes or sets):
        return tuple(sorted(drifted))
    held: Mapping[tuple[str, str], Hold] = {(hold.object, hold.action): hold for hold in holds}
    for want in pending:
        answer, next_step = _answer(held.get((want.object, want.id)))
        drifted += [
            Drift(want.object, want.container, moved, want.cause.value, answer, next_step) for moved in want.moved
        ]
    for change in changes:
        observed = "absent" if change.before is None else str(change.before)
        moved = Moved("weight", "absent" if change.after is None else str(change.after), observed)
        answer, next_step = _answer(held.get((change.object, f"weight of {change.container} in pool {change.pool}")))
        target = f"{change.provider}/{change.pool}/{change.endpoint.address}:{change.endpoint.port}"
        drifted.append(Drift(change.object, target, moved, change.reason.value, answer, next_step))
    for diff in sets:
        name = f"{diff.key.name} {diff.key.type}"
        moved = Moved(name, records.show_set(diff.after), records.show_set(diff.before))
        hold = held.get((diff.object, f"change {name}")) or held.get((diff.object, f"records of {diff.key.name}"))
        answer, next_step = _answer(hold)
        target = f"{diff.provider}/{diff.zone}"
        drifted.append(Drift(diff.object, target, moved, diff.reason.value, answer, next_step))
    return tuple(sorted(drifted))


def _answer(hold: Hold | None) -> tuple[str, str]:
    return (CORRECTED, "") if hold is None else (f"held ({hold.rule.value}: {hold.message})", hold.next_step)


def _moved_weights(snap: Snapshot, ledger: Ledger, weights: Weights) -> list[MemberChange]:
    """The members whose weight another writer moved, or their balancer lost, by the rows before and after this look."""
    if not weights.changes:
        return []
    pools = {f"{change.provider}/{change.pool}" for change in weights.changes}
    rows = [
        {(pool, row.endpoint): row for pool in pools for row in known.weighed.get(pool, ())}
        for known in (snap.observed.ledger, ledger)
    ]

    def moved(change: MemberChange) -> bool:
        place = f"{change.provider}/{change.pool}", change.endpoint
        known = (of_ledger.get(place) for of_ledger in rows)
        return any(row is not None and weight_writers.moved(row, change.before) for row in known)

    return [change for change in weights.changes if moved(change)]


def _moved_sets(snap: Snapshot, ledger: Ledger, names: Names) -> list[RecordDiff]:
    """The record sets that another program changed, by the rows before this look."""
    movement, moved = Movement(snap.desired, ledger), list[RecordDiff]()
    for diff in names.changes:
        row = snap.observed.ledger.written.get(other_writers.row_key(diff.provider_zone, diff.key))
        if row is not None and row.asked != other_writers.digest(diff.after):
            continue  # the wanted set is another one than before: health, a ramp or the manifests moved
        if row is None and (diff.before is None or movement.why(diff.reason, diff.object) is Why.CHANGE):
            continue  # nothing was written there before, or the manifests moved
        moved.append(diff)
    return moved


def drift_json(drift: Drift) -> dict[str, str | None]:
    """One row for JSON."""
    return {
        "object": drift.object,
        "target": drift.target,
        "field": drift.moved.field,
        "declared": drift.moved.declared,
        "observed": drift.moved.observed,
        "cause": drift.cause,
        "answer": drift.answer,
        "next_step": drift.next_step or None,
    }
