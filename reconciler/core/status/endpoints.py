"""Endpoints in the words of people: what each weighs, whose word decided that, and what everybody else says.

Called by `status.rows` when somebody asks; it derives all of it from the stages and the ledger of one decision.
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
from reconciler.core.traffic import pools


class EndpointState(StrEnum):
    """Where an endpoint is in its life."""

    PENDING = "pending"
    """Not ready: never yet in this life of its container, or not any more. New requests go elsewhere."""
    READY = "ready"
    DRAINING = "draining"
    """On its way out: no new requests, and those under way may finish."""
    REMOVED = "removed"
    """Its container does not run, or is gone: nothing is there that could answer."""


def endpoint_rows(snap: Snapshot) -> list[dict[str, Any]]:
    """Every endpoint of every pool of a service, sorted by key; of pools that cannot be read, too, with unknown weights."""
    rows = [
        row
        for service in snap.desired.services
        for balancer in service.balancers
        for row in _pool(snap, service, balancer)
    ]
    return sorted(rows, key=lambda row: str(row["key"]))


def _pool(snap: Snapshot, service: Service, balancer: Balancer) -> Iterator[dict[str, Any]]:
    fact = snap.sight.pools.get((balancer.provider, balancer.pool))
    members = {} if fact is None else {one.endpoint: one for one in fact.members if one.ours}
    where = f"{balancer.provider}/{balancer.pool}"
    known = {one.endpoint: one for one in snap.observed.ledger.weighed.get(where, ())}
    for endpoint, belief in pools.endpoints(service, snap.roster):
        member = members.pop(endpoint, None)
        shared = _shared(snap, service, balancer, endpoint, fact, member)
        yield {**shared, **_container(snap, belief, shared, known.get(endpoint))}
    for endpoint, member in members.items():
        shared = _shared(snap, service, balancer, endpoint, fact, member)
        yield {**shared, **_gone(member)}


def _shared(
    snap: Snapshot,
    service: Service,
    balancer: Balancer,
    endpoint: Endpoint,
    fact: PoolFact | None,
    member: MemberFact | None,
) -> dict[str, Any]:
    """What is known of the place itself. `weight` is None where it is in no pool, `readable` tells whether that is known."""
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
        "panic_since_wall": None if panic is None else _wall(panic, snap.now),
    }


def _gone(member: MemberFact) -> dict[str, Any]:
    """A member without a container."""
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


def _container(snap: Snapshot, belief: Belief, shared: Mapping[str, Any], known: Weighed | None) -> dict[str, Any]:
    """What is said of the container behind an endpoint, by whom."""
    fact, ledger = belief.fact, snap.observed.ledger
    replica = memory.replica_of(f"workload/{fact.mark.workload}", fact.mark.ordinal) if fact.mark else ""
    override = overrides.in_force(ledger.overrides, shared["key"], snap.now)
    belief = belief if override is None else precedence.apply_override(belief, override, snap.now)
    override = override or overrides.in_force(ledger.overrides, replica, snap.now)
    grant, word = ledger.grants.get(fact.id), belief.claim
    running = fact.state is ContainerState.RUNNING
    return {
        "replica": replica,
        "container": fact.name,
        "node": fact.node,
        "runtime": fact.state.value,
        "state": _state(belief, grant, shared["weight"]).value,
        "wanted": _wanted(known),
        "by": "fact" if not running else By.OBSERVER.value if word is None else word.by.value,
        "reason": _reason(belief, grant).value,
        "overruled": word is not None and word.overruled,
        "push": _push(snap, belief),
        "observer": _observer(snap, belief),
        "override": None if override is None else order_words(override, snap.now),
    }


def _state(belief: Belief, grant: Grant | None, weight: int | None) -> EndpointState:
    if belief.fact.state is not ContainerState.RUNNING:
        return EndpointState.REMOVED
    word = belief.claim
    if grant is not None or (word is not None and word.draining):
        return EndpointState.DRAINING
    if belief.ready.value == "pass":
        return EndpointState.READY
    # Of what is not known nothing changes: who has traffic goes on having it.
    return EndpointState.READY if belief.ready.value == "unknown" and weight else EndpointState.PENDING


def _reason(belief: Belief, grant: Grant | None) -> Reason:
    """Facts and own words first, as weights are decided."""
    running = belief.fact.state is ContainerState.RUNNING
    if grant is None or not running or (belief.claim is not None and belief.claim.out):
        return belief.reason
    return Reason.RESTARTING if grants.returns(grant) else Reason.DRAINING


def _wanted(known: Weighed | None) -> int | None:
    """The weight that it should have; None where nothing was ever decided about it."""
    if known is None or (known.weight < 0 and not known.asked):
        return None
    return known.asked[-1] if known.asked else known.weight


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
    """What the probes say of readiness, and the probe that says it."""
    ready = belief.ready if belief.claim is None else belief.claim.observer
    verdicts = snap.observed.probes.get(belief.fact.generation)
    found = (
        [] if verdicts is None else [one for one in (verdicts.readiness, verdicts.liveness, verdicts.startup) if one]
    )
    latest: ProbeFact | None = found[0] if found else None
    return {
        "ready": ready.value,
        "checked_wall": None if latest is None else snap.now.wall - snap.now.steady + latest.last_at,
        "detail": "" if latest is None else latest.detail,
    }


def order_words(override: Override, now: Now) -> dict[str, Any]:
    """A person's order, as it is told."""
    return {
        "force": override.force.value,
        "who": override.who,
        "reason": override.reason,
        "at_wall": _wall(override.at, now),
        "until_wall": override.until_wall or None,
    }


def _wall(at: Instant, now: Now) -> int:
    """A remembered instant by today's wall clock."""
    return now.wall - elapsed(at, now)
