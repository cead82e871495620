"""Pins: the image digests of each revision. A tag may move; a revision keeps the image of its first container.

The first containers of a revision give their digests; every later one is created from those, also when it is recreated after a
failure. `decide` calls `learn` at every look; `actions/steps` asks `pins_of`. The ledger keeps the pins; if it is lost, they are
read again from the containers.
"""

from dataclasses import replace

from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import revision_key
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot

Pins = tuple[tuple[str, str], ...]
"""(container of the pod, digest), as `ContainerFact.digests`."""


def pins_of(ledger: Ledger, workload: str, revision: str) -> Pins:
    """The digests for further containers of a revision; empty while it has no container."""
    return ledger.pins.get(revision_key(workload, revision), ())


def learn(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the digests of new revisions, and without those of revisions that are gone."""
    pins: dict[str, Pins] = {}
    for key, group in snap.roster.groups.items():
        if not group.workload.restart_only:
            _learn(key, group, ledger, pins)
    return ledger if pins == ledger.pins else replace(ledger, pins=pins)


def _learn(key: str, group: Group, ledger: Ledger, pins: dict[str, Pins]) -> None:
    """Add the pins of one workload: known pins first, then the digests of its containers."""
    revisions = {group.workload.template.revision}
    rollout = ledger.rollouts.get(key)
    if rollout is not None:
        revisions.update([row.revision for row in rollout.rows])
    revisions.update([container.revision for container in group.unseen])
    observed: list[tuple[str, Pins]] = []
    for belief in (*group.members(), *group.kept):
        fact = belief.fact
        if fact.mark is None or fact.adopted:
            continue
        revisions.add(fact.mark.revision)
        if fact.digests:
            observed.append((revision_key(key, fact.mark.revision), fact.digests))
    for revision in revisions:
        name = revision_key(key, revision)
        if name in ledger.pins:
            pins[name] = ledger.pins[name]
    for name, digests in observed:
        known = ledger.pins.get(name, ())
        if digests != known:
            # Two containers with different digests were created before either was known: the lower digest counts, in any order.
            pinned = dict(pins.get(name, ()))
            new = {container: min(digest, pinned.get(container, digest)) for container, digest in digests}
            pins[name] = tuple(sorted({**pinned, **new, **dict(known)}.items()))
