"""Rows of endpoints: the weight of each, the source that decides it, and what the other sources claim.

`status/objects` calls it, only when status is asked for; it derives everything from the stages and the ledger of one decision.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from manifests.values.desired import Balancer, Service
from providers.facts import ContainerState, Endpoint, MemberFact, PoolFact, ProbeFact
from reconciler.core.exits import grants
from reconciler.core.health import overrides, precedence
from reconciler.core.health.belief import Belief, By
from reconciler.core.model.instant import Instant, Now, elapsed
from reconciler.core.model.ledger import Grant
from reconciler.core.model.override import Override
from reconciler.core.model.reasons import Reason
from reconciler.core.model.weight_memory import Weighed
from reconciler.core.replicas import memory
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import balancer_checks, pools


class EndpointState(StrEnum):
    """The state of an endpoint."""

    PENDING = "pending"
    """Not ready: not yet in this generation of its container, or not any more. New requests go elsewhere."""
    READY = "ready"
    DRAINING = "draining"
    """Leaving service: it gets no new requests, and those in flight may finish."""
    REMOVED = "removed"
    """Its container does not run or is gone, so nothing can answer."""


def endpoint_rows(snap: Snapshot) -> list[dict[str, Any]]:
    """Every endpoint of every pool of a service, sorted by key. In pools that cannot be read, the weights are unknown."""
    rows = [
        row
        for service in snap.desired.services
        for balancer in service.balancers
        for row in _pool(snap, service, balancer)
    ]
    return sorted(rows, key=lambda row: str(row["key"]))


def _pool(snap: Snapshot, service: Service, balancer: Balancer) -> Iterator[dict[str, Any]]:
    fact = snap.sight.pools.get((balancer.provider, balancer.pool))
    members = {} if fact is None else {member.endpoint: member for member in fact.members if member.ours}
    others = fact is not None and any(not member.ours and balancer_checks.carries(member) for member in fact.members)
    pool = f"{balancer.provider}/{balancer.pool}"
    weighed = {row.endpoint: row for row in snap.observed.ledger.weighed.get(pool, ())}
    for endpoint, belief in pools.endpoints(service, snap.roster):
        member = members.pop(endpoint, None)
        shared = _shared(snap, service, balancer, endpoint, fact, member, others)
        yield {**shared, **_container(snap, belief, shared, weighed.get(endpoint))}
    for endpoint, member in members.items():
        shared = _shared(snap, service, balancer, endpoint, fact, member, others)
        yield {**shared, **_gone(member)}


def _shared(
    snap: Snapshot,
    service: Service,
    balancer: Balancer,
    endpoint: Endpoint,
    fact: PoolFact | None,
    member: MemberFact | None,
    others_serve: bool,
) -> dict[str, Any]:
    """The keys that all rows have. `weight` is None while the endpoint is not in the pool or the pool is not `readable`.

    `others_serve`: members of other owners in the pool carry weight.
    """
    panic = snap.observed.ledger.panics.get(f"{balancer.provider}/{balancer.pool}")
    return {
        "key": overrides.endpoint_key(balancer.provider, balancer.pool, endpoint),
        "service": service.key,
        "provider": balancer.provider,
        "pool": balancer.pool,
        "address": endpoint.address,
        "port": endpoint.port,
        "readable": fact is not None,
        "weight": None if member is None else member.weight,
        "in_flight": None if member is None else member.in_flight,
        "operational": "" if member is None else member.operational,
        "writer": "" if member is None else member.writer,
        "others_serve": others_serve,
        "panic_since_wall": None if panic is None else _wall(panic, snap.now),
    }


def _gone(member: MemberFact) -> dict[str, Any]:
    """The keys of a member without a container."""
    return {
        "replica": "",
        "container": member.name,
        "node": "",
        "runtime": "gone",
        "state": EndpointState.REMOVED.value,
        "wanted": None,
        "by": "fact",
        "reason": Reason.GONE.value,
        "overruled": False,
        "push": None,
        "observer": {"ready": "unknown", "checked_wall": None, "detail": ""},
        "override": None,
    }


def _container(snap: Snapshot, belief: Belief, shared: Mapping[str, Any], weighed: Weighed | None) -> dict[str, Any]:
    """The keys of the container behind an endpoint: its state, the source that decides it, and each claim."""
    fact, ledger = belief.fact, snap.observed.ledger
    replica = memory.replica_of(f"workload/{fact.mark.workload}", fact.mark.ordinal) if fact.mark else ""
    override = overrides.in_force(ledger.overrides, shared["key"], snap.now)
    belief = belief if override is None else precedence.apply_override(belief, override, snap.now)
    override = override or overrides.in_force(ledger.overrides, replica, snap.now)
    grant, claim = ledger.grants.get(fact.id), belief.claim
    running = fact.state is ContainerState.RUNNING
    return {
        "replica": replica,
        "container": fact.name,
        "node": fact.node,
        "runtime": fact.state.value,
        "state": _state(belief, grant, shared["weight"]).value,
        "wanted": _wanted(weighed),
        "by": "fact" if not running else By.OBSERVER.value if claim is None else claim.by.value,
        "reason": _reason(belief, grant).value,
        "overruled": claim is not None and claim.overruled,
        "push": _push(snap, belief),
        "observer": _observer(snap, belief),
        "override": None if override is None else override_row(override, snap.now),
    }


def _state(belief: Belief, grant: Grant | None, weight: int | None) -> EndpointState:
    if belief.fact.state is not ContainerState.RUNNING:
        return EndpointState.REMOVED
    claim = belief.claim
    if grant is not None or (claim is not None and claim.draining):
        return EndpointState.DRAINING
    if belief.ready.value == "pass":
        return EndpointState.READY
    # An unknown readiness changes nothing: an endpoint with weight keeps its traffic.
    return EndpointState.READY if belief.ready.value == "unknown" and weight else EndpointState.PENDING


def _reason(belief: Belief, grant: Grant | None) -> Reason:
    """Facts and claims of not-ready come first, then the grant: the order in which weights are decided."""
    running = belief.fact.state is ContainerState.RUNNING
    if grant is None or not running or (belief.claim is not None and belief.claim.out):
        return belief.reason
    return Reason.RESTARTING if grants.returns(grant) else Reason.DRAINING


def _wanted(weighed: Weighed | None) -> int | None:
    """The weight that the endpoint should have; None while no weight was decided for it."""
    if weighed is None or (weighed.weight < 0 and not weighed.asked):
        return None
    return weighed.asked[-1] if weighed.asked else weighed.weight


def _push(snap: Snapshot, belief: Belief) -> dict[str, Any] | None:
    push = snap.observed.pushes.get(belief.fact.generation)
    if push is None:
        return None
    return {
        "event": push.event.value,
        "at_wall": snap.now.wall - snap.now.steady + push.at,
        "since_wall": snap.now.wall - snap.now.steady + push.since,
        "inflight": push.inflight,
        "restored": push.restored,
    }


def _observer(snap: Snapshot, belief: Belief) -> dict[str, Any]:
    """The readiness by the probes, and the probe that decides it."""
    ready = belief.ready if belief.claim is None else belief.claim.observer
    verdicts = snap.observed.probes.get(belief.fact.generation)
    deciding: ProbeFact | None = None
    if verdicts is not None:
        deciding = verdicts.readiness or verdicts.liveness or verdicts.startup
    return {
        "ready": ready.value,
        "checked_wall": None if deciding is None else snap.now.wall - snap.now.steady + deciding.last_at,
        "detail": "" if deciding is None else deciding.detail,
    }


def override_row(override: Override, now: Now) -> dict[str, Any]:
    """An override as a row: its force, the operator, the reason and the wall-clock instants (ns)."""
    return {
        "force": override.force.value,
        "who": override.who,
        "reason": override.reason,
        "forced": override.forced,
        "at_wall": _wall(override.at, now),
        "until_wall": override.until_wall or None,
    }


def _wall(at: Instant, now: Now) -> int:
    """A stored instant by the present wall clock (ns)."""
    return now.wall - elapsed(at, now)
