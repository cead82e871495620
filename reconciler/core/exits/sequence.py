"""The way out of service, as a state machine over an open grant: name out -> TTL -> weight 0 -> drain -> stop.

A planned exit (rollout, scale down, prune) goes the whole way and ends with the container removed. A *restart* stops and
starts the same container; a *recreation* removes it and lets the ordinary path make the replica anew. Both end when the replica
is available again, when they are called off before the stop, or at their deadline. What is done for failed health waits for no
TTL. The state is derived from facts and two remembered instants, so a crash loses nothing. Called by `underway` for every open
grant; `weights` asks `may_cut` and `may_empty`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from manifests.values.desired import SECOND, Workload
from providers.facts import ContainerFact, ContainerState, ProbeValue
from reconciler.core.exits import grants
from reconciler.core.exits.grants import CUTTING, UP, URGENT, Drain
from reconciler.core.exits.inflight_requests import Place
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant, next_after
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait, Waiting

RELEASED = "released"
"""How the way out of an adopted container ends that is nobody's replica any more."""

FROZEN = "somebody paused it"
"""How a restart or recreation ends of what was paused before its stop: whoever did that wants it as it is."""


class Exit(NamedTuple):
    """What the outside looks like for one container on its way out.

    `named`: its address is still published for it. `ttl`: how long resolvers may keep that (ns). `kept`: the name keeps it
    because it is the last one. `zone_hidden`, `pool_hidden`: the provider that cannot be read, or empty.
    The `..._since` are the steady instants since when. `contested`, `refused`: the pool in which another writer keeps its weight, or the
    last try to take it failed. `in_flight`: requests under way, None = nobody knows. `epochs`: which
    processes of balancers count them. `busy`: the pools where some are.
    """

    named: bool = False
    ttl: int = 0
    kept: bool = False
    unreadable_zone: str = ""
    unreadable_zone_since: int = 0
    carrying: bool = False
    contested: str = ""
    refused: str = ""
    pooled: bool = False
    unreadable_pool: str = ""
    unreadable_pool_since: int = 0
    in_flight: int | None = None
    epochs: str = ""
    busy: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """One grant after this look: its new value (None = over), the step that is due, or what it waits for.

    `cut` are pools where what is still under way is to be ended. `despite` is what did not hold the stop or the start.
    """

    grant: Grant | None
    stop: bool = False
    start: bool = False
    remove: bool = False
    cut: tuple[Place, ...] = ()
    despite: str = ""
    wait: Wait | None = None
    hold: Hold | None = None
    ended: str = ""


def _leave_names(grant: Grant, fact: ContainerFact, exit_: Exit, empty: bool, now: Now) -> Progress | Grant:
    """Out of every name, then the TTL. A grant comes back when no resolver can know the address any more."""
    if exit_.unreadable_zone:
        message = f"zone {exit_.unreadable_zone} cannot be read, so whether {fact.name} is published is unknown"
        retry = next_after(exit_.unreadable_zone_since, SECOND, now)
        return Progress(grant, hold=Hold(grant.object, "stop", Rule.UNKNOWN_ZONE, message, until=retry))
    if exit_.named:
        if exit_.kept and empty:
            # The name keeps its last address, and the manifest allows that nothing answers there for a while.
            return grant if grant.names_out is not None else grant._replace(names_out=instant(now), ttl=0)
        grant = grant._replace(ttl=max(grant.ttl, exit_.ttl), names_out=None)
        if exit_.kept:
            message = f"{fact.name} is the last address of a name, which never becomes empty"
            next_step = "bring a replacement up, or delete the DNSPolicy to remove the name"
            return Progress(grant, hold=Hold(grant.object, "stop", Rule.LAST_RECORD, message, next_step=next_step))
        return Progress(grant, wait=Wait(grant.object, Waiting.NAMES, f"{fact.name} is still published"))
    if grant.names_out is None:
        grant = grant._replace(names_out=instant(now))
    assert grant.names_out is not None  # noqa: S101  (set just above; for the type checker)
    if elapsed(grant.names_out, now) < grant.ttl:
        until = due(grant.names_out, grant.ttl, now)
        message = f"resolvers may still answer with {fact.name} for the TTL"
        return Progress(grant, wait=Wait(grant.object, Waiting.TTL, message, until))
    return grant


def _drain(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress | Grant:
    """Wait until nothing has been in flight for a while, or for as long as it may take; then end what is left, then go on.

    Whoever cannot count may have any number in flight, so that is waited for to the end.
    """
    assert grant.weight_out is not None  # noqa: S101  (set by the caller; for the type checker)
    since, longest = grant.weight_out, due(grant.weight_out, drain.longest, now)
    if exit_.in_flight != 0:
        grant = grant._replace(quiet=None)
    elif grant.quiet is None:
        grant = grant._replace(quiet=instant(now))
    if longest > now.steady:
        until, message = longest, f"requests in flight on {fact.name} may finish"
        if exit_.in_flight:
            message = f"{exit_.in_flight} requests in flight on {fact.name} may finish"
        if grant.quiet is not None:
            quiet = max(due(grant.quiet, drain.quiet, now), due(since, drain.quiet, now))
            if quiet <= now.steady:
                return grant
            until, message = min(longest, quiet), f"nothing is in flight on {fact.name}; it must stay so for a moment"
        return Progress(grant, wait=Wait(grant.object, Waiting.DRAIN, message, until))
    if exit_.busy and elapsed(since, now) < drain.longest + CUTTING:
        until = due(since, drain.longest + CUTTING, now)
        message = f"{exit_.in_flight} requests are still under way on {fact.name} and are ended"
        return Progress(grant, cut=exit_.busy, wait=Wait(grant.object, Waiting.DRAIN, message, until))
    return grant


def _may_not_wait(grant: Grant, exit_: Exit, drain: Drain, now: Now) -> int:
    """The steady instant from which on a weight that cannot be taken holds no restart for failed health; FOREVER for all else.

    That is one drain after the grant: by then it serves nobody, and who keeps its weight does not know. What is made anew waits
    where writes fail: its address may be given to somebody else, who would get its requests.
    """
    if grant.cause not in URGENT or not (exit_.contested or (exit_.refused and not grant.recreate)):
        return FOREVER
    return due(grant.at, drain.longest, now)


def _despite(exit_: Exit) -> str:
    """Why nobody knows that a container is out of rotation, though it is stopped; empty when that is known."""
    if exit_.carrying and exit_.contested:
        return f"another writer keeps its weight in pool {exit_.contested}"
    if exit_.carrying:
        return f"its weight in pool {exit_.refused} could not be taken"
    return f"pool {exit_.unreadable_pool} cannot be read" if exit_.unreadable_pool else ""


def _leave_pools(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress | Grant:
    """Weight 0 in all pools, then the drain. A grant comes back when the container is out of rotation, or need not be."""
    if exit_.carrying:
        until = _may_not_wait(grant, exit_, drain, now)
        if until <= now.steady:
            return grant._replace(weight_out=grant.weight_out or instant(now))
        grant, retry = grant._replace(pooled=True), None if until == FOREVER else until
        if not exit_.contested:
            return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, f"{fact.name} still carries weight", retry))
        message = f"another writer keeps the weight of {fact.name} in pool {exit_.contested}"
        next_step = f"keep other writers off pool {exit_.contested}"
        hold = Hold(grant.object, "stop", Rule.CONFLICTING_WRITER, message, until=retry, next_step=next_step)
        return Progress(grant, hold=hold)
    if exit_.unreadable_pool:
        blind_for = now.steady - exit_.unreadable_pool_since
        urgent = grant.cause in URGENT
        if not urgent or blind_for < drain.longest:
            retry = exit_.unreadable_pool_since + drain.longest
            if not urgent:
                retry = next_after(exit_.unreadable_pool_since, SECOND, now)
            message = (
                f"pool {exit_.unreadable_pool} cannot be read, so whether {fact.name} still gets traffic is unknown"
            )
            return Progress(grant, hold=Hold(grant.object, "stop", Rule.UNKNOWN_POOL, message, until=retry))
    if grant.weight_out is None:
        pooled = grant.pooled or exit_.pooled
        grant = grant._replace(weight_out=instant(now), pooled=pooled, quiet=None, epochs=exit_.epochs)
    return _drain(grant, fact, exit_, drain, now) if grant.pooled else grant


def _leave_service(grant: Grant, fact: ContainerFact, exit_: Exit, empty: bool, drain: Drain, now: Now) -> Progress:
    """Out of names where that is waited for, out of pools, then the stop."""
    if grant.drain is not None:
        drain = Drain(min(drain.quiet, grant.drain), grant.drain)
    if grant.cause not in URGENT:
        out = _leave_names(grant, fact, exit_, empty, now)
        if isinstance(out, Progress):
            return out
        grant = out
    out = _leave_pools(grant, fact, exit_, drain, now)
    return out if isinstance(out, Progress) else Progress(out, stop=True, despite=_despite(exit_))


def _away(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress:
    """What is down and not wanted is removed once no pool points at it: its address is free for the next container then."""
    if exit_.carrying:
        return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, f"{fact.name} is down and still carries weight"))
    if exit_.unreadable_pool and (
        grant.cause not in URGENT or now.steady - exit_.unreadable_pool_since < drain.longest
    ):
        message = f"pool {exit_.unreadable_pool} cannot be read, so whether it still points at {fact.name} is unknown"
        retry = next_after(exit_.unreadable_pool_since, SECOND, now)
        return Progress(grant, hold=Hold(grant.object, "remove", Rule.UNKNOWN_POOL, message, until=retry))
    return Progress(_out_since(grant, now), remove=True)


def _out_since(grant: Grant, now: Now) -> Grant:
    """The deadline of a planned one runs from here at the latest: out of service, however it came to that."""
    return grant if grant.weight_out is not None else grant._replace(weight_out=instant(now))


def _follow(grant: Grant, fact: ContainerFact) -> Grant:
    """Somebody started it again meanwhile: what was waited for counts for the life before only."""
    if fact.generation == grant.generation:
        return grant
    return grant._replace(generation=fact.generation, weight_out=None, quiet=None)


def leave(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress:
    """A planned exit: the next thing to do on the way from serving to removed.

    An adopted container is removed only where one of ours replaces it: one that is not named any more keeps running, and one too
    many is stopped and stays.
    """
    grant = _follow(grant, fact)
    up = fact.state in UP
    progress = _leave_service(grant, fact, exit_, False, drain, now) if up else _away(grant, fact, exit_, drain, now)
    if progress.remove and grant.cause is Reason.SUPERSEDED:
        return Progress(None, ended="stopped, and kept for a while")
    if not fact.adopted or grant.cause is Reason.TEMPLATE_CHANGED:
        return progress
    if progress.remove or (progress.stop and grant.cause is Reason.RELEASED):
        return Progress(None, ended=RELEASED if grant.cause is Reason.RELEASED else "stopped, and not ours to remove")
    return progress


def recreate(grant: Grant, belief: Belief, exit_: Exit, workload: Workload, now: Now) -> Progress:
    """The first half of a recreation, as long as the old container exists: the next thing to do until it is removed."""
    fact = belief.fact
    if grants.deadline_at(grant, workload, now) <= now.steady:
        return Progress(None, ended="deadline passed")
    if fact.generation != grant.generation and grant.cause in URGENT:
        return Progress(None, ended="a new generation runs")
    grant = _follow(grant, fact)
    if fact.state not in UP:
        return _away(grant, fact, exit_, grants.drain_of(workload), now)
    if fact.state is ContainerState.PAUSED:
        return Progress(None, ended=FROZEN)
    if grant.cause in URGENT and belief.live is ProbeValue.PASS:
        return Progress(None, ended="recovered before the stop")
    if grant.cause is Reason.SECRET_CHANGED and not fact.stale_secrets:
        return Progress(None, ended="its secrets are as they were")
    return _leave_service(grant, fact, exit_, grants.may_empty(grant, workload), grants.drain_of(workload), now)


def recreated(grant: Grant, belief: Belief | None, workload: Workload, available: bool, now: Now) -> Progress:
    """The second half of a recreation: the old container is gone, the replica is made and started by the ordinary path.

    Args:
        belief: the replica's new container, None while there is none.
    """
    grant = _out_since(grant, now)
    until = grants.deadline_at(grant, workload, now)
    if until <= now.steady:
        return Progress(None, ended="deadline passed")
    if available:
        return Progress(None, ended="available again")
    if belief is not None and belief.live is ProbeValue.FAIL:
        return Progress(None, ended="the new container failed too")
    if belief is not None and belief.fact.started_at and belief.fact.state not in UP:
        return Progress(None, ended="the new container ended")
    message = f"{grant.object} is made anew, waiting for it to become available"
    return Progress(grant, wait=Wait(grant.object, Waiting.READY, message, until))


def restart(grant: Grant, belief: Belief, exit_: Exit, workload: Workload, available: bool, now: Now) -> Progress:
    """A restart: the next thing to do until a new generation of the same container is available."""
    fact = belief.fact
    until = grants.deadline_at(grant, workload, now)
    if until <= now.steady:
        stranded = workload.restart_only and fact.generation == grant.generation and fact.state not in UP
        if not stranded:
            return Progress(None, ended="deadline passed")
        # Nobody else starts again what is not ours to start: it goes on for as long as it is down by our doing.
        grant = grant._replace(at=instant(now), weight_out=instant(now))
    if fact.generation == grant.generation:
        if fact.state not in UP:
            may_not_wait = _may_not_wait(grant, exit_, grants.drain_of(workload), now)
            if exit_.carrying and may_not_wait > now.steady:
                message = f"{fact.name} is down and still carries weight"
                retry = None if may_not_wait == FOREVER else may_not_wait
                return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, message, retry))
            return Progress(_out_since(grant, now), start=True)
        if fact.state is ContainerState.PAUSED:
            return Progress(None, ended=FROZEN)
        if grant.cause in URGENT and belief.live is ProbeValue.PASS:
            return Progress(None, ended="recovered before the stop")
        return _leave_service(grant, fact, exit_, grants.may_empty(grant, workload), grants.drain_of(workload), now)
    if belief.live is ProbeValue.FAIL:
        return Progress(None, ended="the new generation failed too")
    if available:
        return Progress(None, ended="available again")
    if fact.state not in UP:
        return Progress(None, ended="the new generation ended")
    message = f"restarted, waiting for {fact.name} to become available"
    return Progress(grant, wait=Wait(grant.object, Waiting.READY, message, None if until == FOREVER else until))
