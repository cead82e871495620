"""Which revisions of a workload serve: those whose containers get traffic, whatever is declared.

`status/objects` calls it, only when status is asked for.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from manifests.values.desired import Desired
from providers.facts import ContainerState, ProbeValue
from reconciler.core.health.belief import Sight
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import Rollout
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.traffic import pools


def carrying(desired: Desired, sight: Sight, roster: Roster) -> Mapping[str, bool | None]:
    """Container id -> whether it was read back with weight in a pool; None: one of its pools cannot be read.

    Containers that no pool reaches are not in it.
    """
    found: dict[str, bool | None] = {}
    for service in desired.services:
        members = list(pools.endpoints(service, roster)) if service.balancers else ()
        for balancer in service.balancers:
            pool = sight.pools.get((balancer.provider, balancer.pool))
            weights = {} if pool is None else {member.endpoint: member.weight for member in pool.members}
            for endpoint, belief in members:
                container = belief.fact.id
                if pool is None:
                    found[container] = found.get(container) or None
                elif weights.get(endpoint):
                    found[container] = True
                else:
                    found.setdefault(container, False)
    return found


def rows(ledger: Ledger, group: Group, carrying: Mapping[str, bool | None]) -> list[dict[str, Any]] | None:
    """The revisions that serve, with their numbers and replicas, the oldest first; None while a pool of them cannot be read.

    A container that no pool reaches serves while it runs and is ready.
    """
    key, declared = group.workload.key, group.workload.template.revision
    counts: Counter[str] = Counter()
    for belief in group.members():
        fact = belief.fact
        serves = carrying.get(fact.id, belief.ready is ProbeValue.PASS)
        if serves is None:
            return None
        if serves and fact.state is ContainerState.RUNNING and fact.mark is not None:
            counts[fact.mark.revision] += 1
    rollout, mark = ledger.rollouts.get(key, Rollout()), ledger.revisions.get(key)
    numbers = {row.revision: row.number for row in rollout.rows}
    if mark is not None:
        numbers.setdefault(mark.revision, mark.number)
    found = [
        {"revision": revision, "number": numbers.get(revision), "replicas": count, "declared": revision == declared}
        for revision, count in counts.items()
    ]
    return sorted(found, key=lambda row: (row["number"] or 0, str(row["revision"])))
