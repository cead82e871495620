"""Pins: from which images the replicas of a revision are made. A tag may move; a revision keeps the image that it began with.

The first containers of a revision tell their digests; from then on each further one is created from those, also when it is made
anew after a failure. `decide` calls `learn` at every look; `steps.create` asks `pins_of`. Kept in the ledger: lost, they are read
again from the containers.
"""

from dataclasses import replace

from reconciler.core.model.ledger import Ledger
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot

Pins = tuple[tuple[str, str], ...]
"""(container of the pod, digest), as `ContainerFact.digests`."""


def pin_key(workload: str, revision: str) -> str:
    """The key of a revision's pins in the ledger."""
    return f"{workload}@{revision}"


def pins_of(ledger: Ledger, workload: str, revision: str) -> Pins:
    """What further containers of a revision are made from; empty for one that has none yet."""
    return ledger.pins.get(pin_key(workload, revision), ())


def learn(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the digests of new revisions, and without those of revisions that are gone."""
    pins: dict[str, Pins] = {}
    for key, group in snap.roster.groups.items():
        if not group.workload.restart_only:
            _learn(key, group, ledger, pins)
    return ledger if pins == ledger.pins else replace(ledger, pins=pins)


def _learn(key: str, group: Group, ledger: Ledger, pins: dict[str, Pins]) -> None:
    """Add the pins of one workload: what is known counts, then what its containers say."""
    revisions = {group.workload.template.revision}
    rollout = ledger.rollouts.get(key)
    if rollout is not None:
        revisions.update([row.revision for row in rollout.rows])
    told: list[tuple[str, Pins]] = []
    for belief in (*group.members(), *group.kept):
        fact = belief.fact
        if fact.mark is None or fact.adopted:
            continue
        revisions.add(fact.mark.revision)
        if fact.digests:
            told.append((pin_key(key, fact.mark.revision), fact.digests))
    for revision in revisions:
        name = pin_key(key, revision)
        if name in ledger.pins:
            pins[name] = ledger.pins[name]
    for name, digests in told:
        before = ledger.pins.get(name, ())
        if digests != before:
            # Two that differ were made before either was known: the lower digest counts, whoever is seen first.
            mine = dict(pins.get(name, ()))
            new = {one: min(digest, mine.get(one, digest)) for one, digest in digests}
            pins[name] = tuple(sorted({**mine, **new, **dict(before)}.items()))
