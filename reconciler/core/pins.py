"""Pins: from which images the replicas of a revision are made. A tag may move; a revision keeps the image that it began with.

The first containers of a revision tell their digests; from then on each further one is created from those, also when it is made
anew after a failure. `decide` calls `learn` at every look; `steps.create` asks `pins_of`. Kept in the ledger: lost, they are read
again from the containers.
"""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.core.activation import Group, Roster
from reconciler.core.ledger import Ledger

Pins = tuple[tuple[str, str], ...]
"""(container of the pod, digest), as `ContainerFact.digests`."""


def pin_key(workload: str, revision: str) -> str:
    """The key of a revision's pins in the ledger."""
    return f"{workload}@{revision}"


def pins_of(ledger: Ledger, workload: str, revision: str) -> Pins:
    """What further containers of a revision are made from; empty for one that has none yet."""
    return ledger.pins.get(pin_key(workload, revision), ())


def learn(ledger: Ledger, crew: Roster) -> Ledger:
    """The ledger with the digests of new revisions, and without those of revisions that are gone."""
    pins: dict[str, Pins] = {}
    for key, group in crew.groups.items():
        if not group.workload.restart_only:
            pins |= _of(key, group, ledger)
    return ledger if pins == ledger.pins else replace(ledger, pins=pins)


def _of(key: str, group: Group, ledger: Ledger) -> Mapping[str, Pins]:
    """The pins of one workload: what is known counts, then what its containers say."""
    facts = [belief.fact for belief in (*group.members(), *group.kept)]
    told = [(one.mark.revision, one.digests) for one in facts if one.mark is not None and not one.adopted]
    rollout = ledger.rollouts.get(key)
    listed = [one.revision for one in rollout.rows] if rollout is not None else []
    revisions = {group.workload.template.revision, *listed, *(revision for revision, _ in told)}
    pins = {name: ledger.pins[name] for one in revisions if (name := pin_key(key, one)) in ledger.pins}
    for revision, digests in told:
        name = pin_key(key, revision)
        before = ledger.pins.get(name, ())
        if digests and digests != before:
            # Two that differ were made before either was known: the lower digest counts, whoever is seen first.
            mine = dict(pins.get(name, ()))
            new = {one: min(digest, mine.get(one, digest)) for one, digest in digests}
            pins[name] = tuple(sorted({**mine, **new, **dict(before)}.items()))
    return pins
