"""The way out of service, as a state machine over an open grant: name out -> TTL -> weight 0 -> drain -> stop.

A planned disruption (rollout, scale down, prune) goes the whole way and ends with the container removed. A restart for failed
health waits for no TTL, and ends when a new generation is available, when it is called off because the container recovered
before the stop, or at its deadline. The state is derived from facts and two remembered instants, so a crash loses nothing.
Called by `decide` for every open grant; `weights` asks `may_cut`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from manifests.desired import SECOND, Workload
from providers.facts import ContainerFact, ContainerState, ProbeValue
from reconciler.core.instant import Now, due, elapsed, instant, next_after
from reconciler.core.ledger import Grant
from reconciler.core.trust import Belief
from reconciler.core.verdict import Hold, Reason, Rule, Wait, Waiting

RESTARTS = frozenset({Reason.LIVENESS_FAILED, Reason.STARTUP_FAILED})
"""Causes that end in a new generation of the same container."""

DELETIONS = frozenset({Reason.PRUNED, Reason.DESTROYED})
"""Causes that a container without a manifest may leave for."""

DEADLINE = 600 * SECOND
"""A restart that has not become available by then is over; the next one goes through the gates again."""

DEFAULT_DRAIN = 10 * SECOND
"""How long an orphan drains: its manifest, which could say, is gone."""

DEFAULT_GRACE = 30 * SECOND
"""How long an orphan may take to stop before it is killed: Kubernetes' default."""

_UP = {ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING}


class Exit(NamedTuple):
    """What the outside looks like for one container on its way out.

    `named`: its address is still published for it. `ttl`: how long resolvers may keep that (ns). `kept`: the name keeps it
    because it is the last one. `zone_hidden`, `pool_hidden`: the provider that cannot be read, or empty.
    The `..._since` are the steady instants since when.
    """

    named: bool = False
    ttl: int = 0
    kept: bool = False
    zone_hidden: str = ""
    zone_hidden_since: int = 0
    carrying: bool = False
    pooled: bool = False
    pool_hidden: str = ""
    pool_hidden_since: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """One grant after this look: its new value (None = over), the step that is due, or what it waits for."""

    grant: Grant | None
    stop: bool = False
    start: bool = False
    remove: bool = False
    wait: Wait | None = None
    hold: Hold | None = None
    ended: str = ""


def may_cut(grant: Grant, now: Now) -> bool:
    """Whether its weight may go to 0: at once for a restart, after the name is out and its TTL over for a planned exit."""
    if grant.cause in RESTARTS:
        return True
    return grant.names_out is not None and elapsed(grant.names_out, now) >= grant.ttl


def _leave_pools(grant: Grant, fact: ContainerFact, exit_: Exit, drain: int, now: Now) -> Progress | Grant:
    """Weight 0 in all pools, then the drain. A grant comes back when the container is out of rotation."""
    if exit_.carrying:
        message = f"{fact.name} still carries weight"
        return Progress(grant._replace(pooled=True), wait=Wait(grant.object, Waiting.WEIGHT, message))
    if exit_.pool_hidden:
        blind_for = now.steady - exit_.pool_hidden_since
        restart = grant.cause in RESTARTS
        if not restart or blind_for < drain:
            retry = exit_.pool_hidden_since + drain
            if not restart:
                retry = next_after(exit_.pool_hidden_since, SECOND, now)
            message = f"pool {exit_.pool_hidden} cannot be read, so whether {fact.name} still gets traffic is unknown"
            return Progress(grant, hold=Hold(grant.object, "stop", Rule.UNKNOWN_POOL, message, until=retry))
    if grant.weight_out is None:
        grant = grant._replace(weight_out=instant(now), pooled=grant.pooled or exit_.pooled)
    assert grant.weight_out is not None  # noqa: S101  (set just above; for the type checker)
    if grant.pooled and elapsed(grant.weight_out, now) < drain:
        until = due(grant.weight_out, drain, now)
        message = f"requests in flight on {fact.name} may finish"
        return Progress(grant, wait=Wait(grant.object, Waiting.DRAIN, message, until))
    return grant


def leave(grant: Grant, fact: ContainerFact, exit_: Exit, drain: int, now: Now) -> Progress:
    """A planned exit: the next thing to do on the way from serving to removed."""
    if fact.generation != grant.generation:
        # Somebody started it again meanwhile: what was waited for counts for the life before only.
        grant = grant._replace(generation=fact.generation, weight_out=None)
    if fact.state in _UP:
        if exit_.zone_hidden:
            message = f"zone {exit_.zone_hidden} cannot be read, so whether {fact.name} is published is unknown"
            retry = next_after(exit_.zone_hidden_since, SECOND, now)
            return Progress(grant, hold=Hold(grant.object, "stop", Rule.UNKNOWN_ZONE, message, until=retry))
        if exit_.named:
            grant = grant._replace(ttl=max(grant.ttl, exit_.ttl), names_out=None)
            if exit_.kept:
                message = f"{fact.name} is the last address of a name, which never becomes empty"
                person = "bring a replacement up, or delete the DNSPolicy to remove the name"
                return Progress(grant, hold=Hold(grant.object, "stop", Rule.LAST_RECORD, message, person=person))
            return Progress(grant, wait=Wait(grant.object, Waiting.NAMES, f"{fact.name} is still published"))
        if grant.names_out is None:
            grant = grant._replace(names_out=instant(now))
        assert grant.names_out is not None  # noqa: S101  (set just above; for the type checker)
        if elapsed(grant.names_out, now) < grant.ttl:
            until = due(grant.names_out, grant.ttl, now)
            message = f"resolvers may still answer with {fact.name} for the TTL"
            return Progress(grant, wait=Wait(grant.object, Waiting.TTL, message, until))
        out = _leave_pools(grant, fact, exit_, drain, now)
        return out if isinstance(out, Progress) else Progress(out, stop=True)
    if exit_.carrying:
        return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, f"{fact.name} is down and still carries weight"))
    if exit_.pool_hidden:
        # Its address would be free for the next container while a pool may still send traffic there.
        message = f"pool {exit_.pool_hidden} cannot be read, so whether it still points at {fact.name} is unknown"
        retry = next_after(exit_.pool_hidden_since, SECOND, now)
        return Progress(grant, hold=Hold(grant.object, "remove", Rule.UNKNOWN_POOL, message, until=retry))
    return Progress(grant, remove=True)


def restart(grant: Grant, belief: Belief, exit_: Exit, workload: Workload, available: bool, now: Now) -> Progress:
    """A restart for failed health: the next thing to do until a new generation is available."""
    fact = belief.fact
    if elapsed(grant.at, now) >= DEADLINE:
        return Progress(None, ended="deadline passed")
    if fact.generation == grant.generation:
        if fact.state not in _UP:
            if exit_.carrying:
                message = f"{fact.name} is down and still carries weight"
                return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, message))
            return Progress(grant, start=True)
        if belief.live is ProbeValue.PASS:
            return Progress(None, ended="recovered before the stop")
        out = _leave_pools(grant, fact, exit_, workload.drain_max, now)
        return out if isinstance(out, Progress) else Progress(out, stop=True)
    if belief.live is ProbeValue.FAIL:
        return Progress(None, ended="the new generation failed too")
    if available:
        return Progress(None, ended="available again")
    if fact.state not in _UP:
        return Progress(None, ended="the new generation ended")
    until = due(grant.at, DEADLINE, now)
    message = f"restarted, waiting for {fact.name} to become available"
    return Progress(grant, wait=Wait(grant.object, Waiting.READY, message, until))


def in_flight(grants: Iterable[Grant], prefix: str) -> int:
    """How many disruptions of this workload (its key and a slash) are under way."""
    return sum(1 for grant in grants if grant.object.startswith(prefix))
