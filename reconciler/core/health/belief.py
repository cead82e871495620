"""Belief, the first stage: from facts and probe verdicts to one belief per container of ours.

Facts outrank everything: a container that does not run is not ready, whatever a probe answered. Then the probe verdicts count,
while they are fresh; `precedence` adds overrides and pushes. Anything that cannot be known stays unknown and is never read as
failure. `decide` calls `sight_of`, `replicas/roster` calls `believe`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

from manifests.values.desired import Container, Desired
from providers.facts import (
    ContainerFact,
    ContainerState,
    Generation,
    Known,
    PoolFact,
    ProbeFact,
    Probes,
    ProbeValue,
    Unknown,
    ZoneFact,
)
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Reason

T = TypeVar("T")

CADENCES = 3
"""A fact that is older than this many looks of its provider is unknown."""

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
_RUNNING = ContainerState.RUNNING
_READY = Reason.READY
_NO_PROBES = Probes()


class By(StrEnum):
    """The source that decides whether a container is ready."""

    OVERRIDE = "override"
    PUSH = "push"
    OBSERVER = "observer"
    BOTH = "push and observer"
    UNDECIDED = "undecided"
    """No source can decide, so nothing changes."""


class Claim(NamedTuple):
    """The claim of an override or of the container's own push about its readiness; see `precedence`.

    `by`: the source that decides. `out`: an override or a fresh push says not ready, which counts even if a pool becomes empty.
    `draining`: this generation leaves for good; its push said so first at the steady instant `said_at` (0 = only an operator drained
    it). `observer`: the answer of the probes. `overruled`: the probes say the opposite of what counts.
    """

    by: By
    out: bool
    draining: bool
    observer: ProbeValue
    overruled: bool
    said_at: int = 0


class Belief(NamedTuple):
    """Liveness and readiness of one container.

    `live` and `ready` are pass, fail or unknown; `since` is the steady instant from which it has been ready; `until` is the
    steady instant at which the answer changes on the same facts because a verdict or a push gets too old. `claim` is None where
    only probes decide. `failed` is the probe that asks for a restart, whatever an override or a push says of the traffic; None
    while `live` is not fail.
    """

    fact: ContainerFact
    live: ProbeValue
    ready: ProbeValue
    since: int
    until: int
    reason: Reason
    claim: Claim | None = None
    failed: Reason | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """The facts that may be used at this instant; all others are unknown, with their cause in `unknown_...`.

    `until` is the steady instant at which the first of these facts becomes too old.
    """

    runtimes: Mapping[str, tuple[ContainerFact, ...]]
    pools: Mapping[tuple[str, str], PoolFact]
    zones: Mapping[tuple[str, str], ZoneFact]
    unknown_runtimes: Mapping[str, Unknown]
    unknown_pools: Mapping[tuple[str, str], Unknown]
    unknown_zones: Mapping[tuple[str, str], Unknown]
    until: int


def _usable(fact: Known[T] | Unknown | None, name: str, cadence: int, steady: int) -> Unknown | Known[T]:
    """The fact, as long as it is fresh."""
    if fact is None:
        return Unknown("not observed yet", name, steady)
    if isinstance(fact, Unknown):
        return fact
    limit = fact.observed_at + CADENCES * cadence
    if limit <= steady:
        return Unknown(f"the last answer is older than {CADENCES} looks", fact.source, limit)
    return fact


def _until(facts: Iterable[Unknown | Known[T]], cadence: int) -> int:
    """When the first of these is not fresh any more."""
    oldest = min([fact.observed_at for fact in facts if isinstance(fact, Known)], default=FOREVER)
    return FOREVER if oldest == FOREVER else oldest + CADENCES * cadence


def sight_of(desired: Desired, observed: Observed, now: Now) -> Sight:
    """The facts that are fresh. A provider that manifests name and that was not observed yet is unknown too."""
    every, steady = desired.instance, now.steady
    # Also nodes without a workload: containers that were adopted or left over there are not gone before a look has shown that.
    nodes = desired.nodes.union(observed.runtimes)
    # A dict and no set: the keys of looks are nearly in order, and that sorts fast.
    pool_keys = dict.fromkeys(observed.pools)
    pool_keys |= dict.fromkeys((b.provider, b.pool) for service in desired.services for b in service.balancers)
    zone_keys = set(observed.zones) | desired.zones
    runtimes = {node: _usable(observed.runtimes.get(node), node, every.look_runtime, steady) for node in sorted(nodes)}
    pools = {key: _usable(observed.pools.get(key), key[0], every.look_endpoints, steady) for key in sorted(pool_keys)}
    zones = {key: _usable(observed.zones.get(key), key[0], every.look_dns, steady) for key in sorted(zone_keys)}
    until = min(
        _until(runtimes.values(), every.look_runtime),
        _until(pools.values(), every.look_endpoints),
        _until(zones.values(), every.look_dns),
    )
    return Sight(
        runtimes={key: fact.value for key, fact in runtimes.items() if isinstance(fact, Known)},
        pools={key: fact.value for key, fact in pools.items() if isinstance(fact, Known)},
        zones={key: fact.value for key, fact in zones.items() if isinstance(fact, Known)},
        unknown_runtimes={key: fact for key, fact in runtimes.items() if isinstance(fact, Unknown)},
        unknown_pools={key: fact for key, fact in pools.items() if isinstance(fact, Unknown)},
        unknown_zones={key: fact for key, fact in zones.items() if isinstance(fact, Unknown)},
        until=until,
    )


def _fresh(fact: ProbeFact | None, steady: int) -> tuple[ProbeValue, int, int]:
    """(value, since, until) of a verdict now."""
    if fact is None:
        return _UNKNOWN, 0, FOREVER
    limit = fact.last_at + fact.valid_for
    if limit <= steady:
        return _UNKNOWN, 0, FOREVER
    value = fact.value
    return (value, fact.since, limit) if value is _PASS or value is _FAIL else (_UNKNOWN, 0, limit)


def believe(
    fact: ContainerFact, container: Container | None, probes: Mapping[Generation, Probes], steady: int
) -> Belief:
    """The belief about one container from its state and its probes; `container` None = its probes are not known any more.

    Without a liveness probe it never fails for its health; without a startup probe it counts as started; without a
    readiness probe it is ready while it runs. Startup gates the other two. A failed liveness verdict means not ready.
    """
    if fact.state is not _RUNNING:
        reason = Reason.PAUSED if fact.state is ContainerState.PAUSED else Reason.NOT_RUNNING
        return Belief(fact, _UNKNOWN, _FAIL, 0, FOREVER, reason)
    if container is None:
        return Belief(fact, _UNKNOWN, _UNKNOWN, 0, FOREVER, Reason.SPEC_LOST)
    verdicts = probes.get(Generation(fact.id, fact.started_at), _NO_PROBES)
    since = fact.running_since
    until = FOREVER
    if container.startup is not None:
        value, passed_at, limit = _fresh(verdicts.startup, steady)
        if value is _FAIL:
            return Belief(fact, _FAIL, _FAIL, 0, limit, Reason.STARTUP_FAILED, failed=Reason.STARTUP_FAILED)
        if value is not _PASS:
            return Belief(fact, _UNKNOWN, _UNKNOWN, 0, limit, Reason.STARTING)
        since, until = max(since, passed_at), limit
    live = _PASS
    if container.liveness is not None:
        live, _, limit = _fresh(verdicts.liveness, steady)
        until = min(until, limit)
        if live is _FAIL:
            return Belief(fact, _FAIL, _FAIL, 0, until, Reason.LIVENESS_FAILED, failed=Reason.LIVENESS_FAILED)
    if container.readiness is None:
        return Belief(fact, live, _PASS, since, until, _READY)
    ready, ready_since, limit = _fresh(verdicts.readiness, steady)
    until = min(until, limit)
    if ready is _PASS:
        return Belief(fact, live, _PASS, max(since, ready_since), until, _READY)
    if ready is _FAIL:
        return Belief(fact, live, _FAIL, 0, until, Reason.NOT_READY)
    return Belief(fact, live, _UNKNOWN, 0, until, Reason.READINESS_UNKNOWN)
