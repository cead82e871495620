"""Which revisions of a workload carry weight, as read back from every pool that should have them. Called by `evidence`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from providers.facts import Endpoint
from providers.facts import Weights as Takes
from reconciler.core.health.belief import Belief
from reconciler.core.model.revision import FULL
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import health
from reconciler.core.traffic import balancer_checks, pools


class ReadBack(NamedTuple):
    """`carrying`: revisions with weight on any replica. `raised`: revisions with weight on every replica in every pool, where no
    balancer's check keeps the traffic from it. `short`: revisions that have less than their share of a pool.
    """

    carrying: frozenset[str]
    raised: frozenset[str]
    short: frozenset[str]


NOTHING = ReadBack(frozenset(), frozenset(), frozenset())


def read_back(snap: Snapshot, group: Group, revisions: Iterable[str]) -> ReadBack:
    """Compare these revisions of a workload with the pools of its services.

    A replica without an address has no weight yet. A replica that an operator keeps out of traffic does not count. With an
    unreadable pool no revision is raised; without pools every revision is.
    """
    key = group.workload.key
    weighed: dict[str, set[str]] = defaultdict(set)
    carrying: set[str] = set()
    lacking: set[str] = set()
    short: set[str] = set()
    shares = snap.roster.shares.get(group.workload.name) or {}
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
            carrying |= _unseen(snap, key, weights)
            if pool is not None and pool.weights is not Takes.ON_OFF:
                given = {
                    name: [weights.get(endpoint, 0) for endpoint, _ in placed] for name, placed in replicas.items()
                }
                short |= _short(given, shares)
            for revision, placed in replicas.items():
                weighed[revision] |= {belief.fact.id for _, belief in placed}
                if any(weights.get(endpoint) for endpoint, _ in placed):
                    carrying.add(revision)
                if any(not weights.get(endpoint) and not health.kept_out(belief) for endpoint, belief in placed):
                    lacking.add(revision)
                if pool is not None and balancer_checks.failing(members, {endpoint for endpoint, _ in placed}):
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
    return ReadBack(frozenset(carrying), frozenset(raised), frozenset(short))


def _unseen(snap: Snapshot, key: str, weights: Mapping[Endpoint, int]) -> set[str]:
    """The revisions of containers on nodes that cannot be read that have weight in a pool."""
    if not snap.roster.unseen.by_reach:
        return set()
    containers = (snap.roster.unseen.at(endpoint) for endpoint, weight in weights.items() if weight)
    return {container.revision for container in containers if container is not None and container.workload == key} - {
        ""
    }


def _short(weights: Mapping[str, Sequence[int]], shares: Mapping[str, int]) -> set[str]:
    """The revisions of one pool whose weights give them less than their share of 10,000.

    Weights are whole numbers, so each replica may have one less than its exact part.
    """
    total = sum(sum(of_revision) for of_revision in weights.values())
    return {
        revision
        for revision, of_revision in weights.items()
        if (share := shares.get(revision, 0)) < FULL
        and (sum(of_revision) + len(of_revision)) * FULL < share * (total + len(of_revision))
    }
