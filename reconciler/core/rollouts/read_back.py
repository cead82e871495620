"""Which revisions of a workload carry weight, as read back from every pool that should have them. Called by `evidence`."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from providers.facts import Endpoint
from reconciler.core.health.belief import Belief
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import health
from reconciler.core.traffic import balancer_checks, pools


class ReadBack(NamedTuple):
    """`carrying`: revisions of which any replica has weight. `raised`: those of which every replica has it in every pool and
    gets traffic for it.
    """

    carrying: frozenset[str]
    raised: frozenset[str]


NOTHING = ReadBack(frozenset(), frozenset())


def read_back(snap: Snapshot, group: Group, revisions: Iterable[str]) -> ReadBack:
    """Compare these revisions of a workload with the pools of its services.

    A replica without an address has no weight yet. Those that an operator keeps out of traffic are not waited for. A pool that
    cannot be read raises nothing; a workload without pools has nothing to raise.
    """
    key = group.workload.key
    weighed: dict[str, set[str]] = defaultdict(set)
    carrying: set[str] = set()
    lacking: set[str] = set()
    pooled = False
    for service in snap.desired.services:
        backends = tuple(backend for backend in service.backends if backend.workload == key)
        if not backends or not service.weight:
            continue
        pooled = pooled or bool(service.balancers)
        replicas: dict[str, list[tuple[Endpoint, Belief]]] = defaultdict(list)
        for endpoint, belief in pools.endpoints(replace(service, backends=backends), snap.roster):
            replicas[health.revision_of(belief)].append((endpoint, belief))
        for balancer in service.balancers:
            pool = snap.sight.pools.get((balancer.provider, balancer.pool))
            members = () if pool is None else pool.members
            weights = {member.endpoint: member.weight for member in members if member.ours}
            for revision, those in replicas.items():
                weighed[revision] |= {belief.fact.id for _, belief in those}
                if any(weights.get(endpoint) for endpoint, _ in those):
                    carrying.add(revision)
                if any(not weights.get(endpoint) and not health.kept_out(belief) for endpoint, belief in those):
                    lacking.add(revision)
                if pool is not None and balancer_checks.failing(members, {endpoint for endpoint, _ in those}):
                    lacking.add(revision)
    raised = {
        revision
        for revision in revisions
        if not pooled
        or (
            revision not in lacking
            and {belief.fact.id for belief in group.of(revision) if not health.kept_out(belief)} <= weighed[revision]
        )
    }
    return ReadBack(frozenset(carrying), frozenset(raised))
