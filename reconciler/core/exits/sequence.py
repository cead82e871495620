"""The exit of a container as a state machine over an open grant: name out -> TTL -> weight 0 -> drain -> stop.

A planned exit (rollout, scale down, prune) takes all of these steps and ends with the container removed. A *restart* stops and
starts the same container; a *recreation* removes it, and the rule for missing replicas creates it again. Both end when the replica
is available again, when they are called off before the stop, or at their deadline. Exits for failed health wait for no TTL. The
state is derived from facts and two remembered instants, so a crash loses nothing. Called by `disruptions` for every open grant.
"""

from dataclasses import dataclass
from typing import NamedTuple

from manifests.values.desired import SECOND, Workload
from providers.facts import ContainerFact, ContainerState, ProbeValue
from reconciler.core.exits import grants
from reconciler.core.exits.grants import AT_ONCE, CUTTING, UP, URGENT, Drain
from reconciler.core.exits.inflight_requests import Place
from reconciler.core.health import precedence
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant, next_after
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Act, HeldAction, Hold, Reason, Rule, Wait, Waiting

TAKEN_BACK = "it is not draining any more"
"""The end of the replacement of a replica that pushed draining and that an operator forced up before the stop."""

RELEASED = "released"
"""The end of the exit of an adopted container that is no replica any more."""

PAUSED = "the container was paused"
"""The end of a restart or recreation whose container was paused before the stop: a paused container is left alone."""


class Exit(NamedTuple):
    """Names, pools and requests of one container that leaves.

    `named`: its address is still published. `ttl`: how long resolvers may keep that (ns). `kept`: the name keeps it because it
    is the last one. `unreadable_zone`, `unreadable_pool`: the zone or pool that cannot be read, or empty; `..._since`: since which
    steady instant. `carrying`: it has weight in a pool. `contested`, `refused`: the pool in which another writer keeps its weight,
    or in which the last try to take it failed. `pooled`: it is in a pool. `in_flight`: requests in flight, None = unknown.
    `epochs`: the processes of the balancers that count them. `busy`: the pools where some are.
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

    `cut` are pools whose requests in flight are cut. `despite` is a doubt that does not hold the stop or the start.
    `ended` is how the grant ended.
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


def _held(
    grant: Grant,
    fact: ContainerFact,
    rule: Rule,
    message: str,
    *,
    until: int | None = None,
    next_step: str = "",
    act: Act = Act.STOP,
) -> Progress:
    """The stop or removal of a container, held by a rule."""
    held = HeldAction(act, (fact.id,))
    return Progress(
        grant, hold=Hold(grant.object, act.value, rule, message, until=until, next_step=next_step, held=held)
    )


def _leave_names(grant: Grant, fact: ContainerFact, exit_: Exit, empty: bool, now: Now) -> Progress | Grant:
    """Out of every name, then the TTL. Returns a grant when no resolver can know the address any more."""
    if exit_.unreadable_zone:
        message = f"zone {exit_.unreadable_zone} cannot be read, so {fact.name} may still be published"
        retry = next_after(exit_.unreadable_zone_since, SECOND, now)
        return _held(grant, fact, Rule.UNKNOWN_ZONE, message, until=retry)
    if exit_.named:
        if exit_.kept and empty:
            # The name keeps its last address; the manifest allows that no replica is available there.
            return grant if grant.names_out is not None else grant._replace(names_out=instant(now), ttl=0)
        grant = grant._replace(ttl=max(grant.ttl, exit_.ttl), names_out=None)
        if exit_.kept:
            message = f"{fact.name} has the last address of a name, and a name is never left empty"
            next_step = "start a replacement, or delete the DNSPolicy to remove the name"
            return _held(grant, fact, Rule.LAST_RECORD, message, next_step=next_step)
        return Progress(grant, wait=Wait(grant.object, Waiting.NAMES, f"{fact.name} is still published"))
    if grant.names_out is None:
        grant = grant._replace(names_out=instant(now))
    assert grant.names_out is not None  # noqa: S101  (set just above; for the type checker)
    if elapsed(grant.names_out, now) < grant.ttl:
        until = due(grant.names_out, grant.ttl, now)
        message = f"resolvers may still answer with the address of {fact.name} until the DNS TTL expires"
        return Progress(grant, wait=Wait(grant.object, Waiting.TTL, message, until))
    return grant


def _drain(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress | Grant:
    """Wait until there were no requests in flight for a while, at most for the longest drain; then cut the rest and go on.

    A balancer that cannot count may have any number of them, so the longest drain is waited for.
    """
    assert grant.weight_out is not None  # noqa: S101  (set by the caller; for the type checker)
    since, longest = grant.weight_out, due(grant.weight_out, drain.longest, now)
    if exit_.in_flight != 0:
        grant = grant._replace(quiet=None)
    elif grant.quiet is None:
        grant = grant._replace(quiet=instant(now))
    if longest > now.steady:
        until, message = longest, f"{fact.name} finishes its requests in flight"
        if exit_.in_flight:
            message = f"{fact.name} finishes its requests in flight ({exit_.in_flight} left)"
        if grant.quiet is not None:
            quiet = max(due(grant.quiet, drain.quiet, now), due(since, drain.quiet, now))
            if quiet <= now.steady:
                return grant
            until, message = (
                min(longest, quiet),
                f"{fact.name} has no requests in flight; this must last for spec.drain.min",
            )
        return Progress(grant, wait=Wait(grant.object, Waiting.DRAIN, message, until))
    if exit_.busy and elapsed(since, now) < drain.longest + CUTTING:
        until = due(since, drain.longest + CUTTING, now)
        message = f"{fact.name} still has requests in flight after its drain ({exit_.in_flight} left); they are cut"
        return Progress(grant, cut=exit_.busy, wait=Wait(grant.object, Waiting.DRAIN, message, until))
    return grant


def _may_not_wait(grant: Grant, exit_: Exit, drain: Drain, now: Now) -> int:
    """The steady instant from which a weight that cannot be taken no longer holds a restart for failed health; else FOREVER.

    That is one drain after the grant: the container serves no requests by then. A recreation waits where writes fail: its address
    may go to another container, which would get the requests.
    """
    if grant.cause not in AT_ONCE or not (exit_.contested or (exit_.refused and not grant.recreate)):
        return FOREVER
    return due(grant.at, drain.longest, now)


def _despite(exit_: Exit) -> str:
    """Why a container may still be in rotation although it is stopped; empty when it is known to be out."""
    if exit_.carrying and exit_.contested:
        return f"another writer keeps its weight in pool {exit_.contested}"
    if exit_.carrying:
        return f"its weight in pool {exit_.refused} could not be set to 0"
    return f"pool {exit_.unreadable_pool} cannot be read" if exit_.unreadable_pool else ""


def _leave_pools(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress | Grant:
    """Weight 0 in all pools, then the drain. Returns a grant when the container is out of rotation, or need not be."""
    if exit_.carrying:
        until = _may_not_wait(grant, exit_, drain, now)
        if until <= now.steady:
            return grant._replace(weight_out=grant.weight_out or instant(now))
        grant, retry = grant._replace(pooled=True), None if until == FOREVER else until
        if not exit_.contested:
            return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, f"{fact.name} still has weight", retry))
        message = f"another writer keeps the weight of {fact.name} in pool {exit_.contested}"
        next_step = f"stop the other writer of pool {exit_.contested}"
        return _held(grant, fact, Rule.CONFLICTING_WRITER, message, until=retry, next_step=next_step)
    if exit_.unreadable_pool:
        unreadable_for = now.steady - exit_.unreadable_pool_since
        urgent = grant.cause in AT_ONCE
        if not urgent or unreadable_for < drain.longest:
            retry = exit_.unreadable_pool_since + drain.longest
            if not urgent:
                retry = next_after(exit_.unreadable_pool_since, SECOND, now)
            message = f"pool {exit_.unreadable_pool} cannot be read, so {fact.name} may still get traffic"
            return _held(grant, fact, Rule.UNKNOWN_POOL, message, until=retry)
    if grant.weight_out is None:
        pooled = grant.pooled or exit_.pooled
        grant = grant._replace(weight_out=instant(now), pooled=pooled, quiet=None, epochs=exit_.epochs)
    return _drain(grant, fact, exit_, drain, now) if grant.pooled else grant


def _leave_service(grant: Grant, fact: ContainerFact, exit_: Exit, empty: bool, drain: Drain, now: Now) -> Progress:
    """Out of names (planned exits only), out of pools, then the stop."""
    if grant.cause is Reason.VOLUME_IN_USE:
        drain = Drain(0, 0)
    elif grant.drain is not None:
        drain = Drain(min(drain.quiet, grant.drain), grant.drain)
    if grant.cause not in AT_ONCE:
        result = _leave_names(grant, fact, exit_, empty, now)
        if isinstance(result, Progress):
            return result
        grant = result
    result = _leave_pools(grant, fact, exit_, drain, now)
    return result if isinstance(result, Progress) else Progress(result, stop=True, despite=_despite(exit_))


def _remove(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress:
    """A container that is down is removed once no pool points at it: its address is free for the next container then."""
    if exit_.carrying:
        return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, f"{fact.name} is down and still has weight"))
    if exit_.unreadable_pool and (
        grant.cause not in AT_ONCE or now.steady - exit_.unreadable_pool_since < drain.longest
    ):
        message = f"pool {exit_.unreadable_pool} cannot be read and may still point at {fact.name}"
        retry = next_after(exit_.unreadable_pool_since, SECOND, now)
        return _held(grant, fact, Rule.UNKNOWN_POOL, message, until=retry, act=Act.REMOVE)
    return Progress(_out_since(grant, now), remove=True)


def _out_since(grant: Grant, now: Now) -> Grant:
    """The grant with its time out of service: the deadline of a planned exit runs from here at the latest."""
    return grant if grant.weight_out is not None else grant._replace(weight_out=instant(now))


def _of_generation(grant: Grant, fact: ContainerFact) -> Grant:
    """The grant for the generation that runs now: if the container was started again, weight and drain are waited for again."""
    if fact.generation == grant.generation:
        return grant
    return grant._replace(generation=fact.generation, weight_out=None, quiet=None)


def _taken_back(grant: Grant, belief: Belief) -> bool:
    running = belief.fact.state is ContainerState.RUNNING
    return grant.cause is Reason.DRAIN_DEADLINE and running and not precedence.drained_since(belief)


def leave(grant: Grant, fact: ContainerFact, exit_: Exit, drain: Drain, now: Now) -> Progress:
    """A planned exit: the next step from serving to removed.

    An adopted container is removed only where one of ours replaces it. One that `spec.adopt` does not match any more keeps
    running; a surplus one is stopped and stays.
    """
    grant = _of_generation(grant, fact)
    up = fact.state in UP
    progress = _leave_service(grant, fact, exit_, False, drain, now) if up else _remove(grant, fact, exit_, drain, now)
    if progress.remove and grant.cause is Reason.SUPERSEDED:
        return Progress(None, ended="stopped, and kept for the rollback window")
    if not fact.adopted or grant.cause is Reason.TEMPLATE_CHANGED:
        return progress
    if progress.remove or (progress.stop and grant.cause is Reason.RELEASED):
        return Progress(
            None, ended=RELEASED if grant.cause is Reason.RELEASED else "stopped; adopted containers are kept"
        )
    return progress


def recreate(grant: Grant, belief: Belief, exit_: Exit, workload: Workload, now: Now) -> Progress:
    """The first half of a recreation, while the old container exists: the next step until it is removed."""
    fact = belief.fact
    if grants.deadline_at(grant, workload, now) <= now.steady:
        return Progress(None, ended="deadline passed")
    if fact.generation != grant.generation and (grant.cause in URGENT or grant.cause is Reason.DRAIN_DEADLINE):
        return Progress(None, ended="a new generation runs")
    grant = _of_generation(grant, fact)
    if fact.state not in UP:
        return _remove(grant, fact, exit_, grants.drain_of(workload), now)
    if fact.state is ContainerState.PAUSED:
        return Progress(None, ended=PAUSED)
    if grant.cause in URGENT and belief.live is ProbeValue.PASS:
        return Progress(None, ended="recovered before the stop")
    if _taken_back(grant, belief):
        return Progress(None, ended=TAKEN_BACK)
    if grant.cause is Reason.SECRET_CHANGED and not fact.stale_secrets:
        return Progress(None, ended="its secrets are current again")
    return _leave_service(grant, fact, exit_, grants.may_empty(grant, workload), grants.drain_of(workload), now)


def recreated(grant: Grant, belief: Belief | None, workload: Workload, available: bool, now: Now) -> Progress:
    """The second half of a recreation: the old container is removed, the rule for missing replicas creates and starts the new one.

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
    message = f"{grant.object} is being recreated and is not available yet"
    return Progress(grant, wait=Wait(grant.object, Waiting.READY, message, until))


def restart(grant: Grant, belief: Belief, exit_: Exit, workload: Workload, available: bool, now: Now) -> Progress:
    """A restart: the next step until a new generation of the same container is available."""
    fact = belief.fact
    until = grants.deadline_at(grant, workload, now)
    if until <= now.steady:
        stranded = workload.restart_only and fact.generation == grant.generation and fact.state not in UP
        if not stranded:
            return Progress(None, ended="deadline passed")
        # No other rule starts a container that is marked for restarts only: this restart goes on while it is down.
        grant = grant._replace(at=instant(now), weight_out=instant(now))
    if fact.generation == grant.generation:
        if fact.state not in UP:
            may_not_wait = _may_not_wait(grant, exit_, grants.drain_of(workload), now)
            if exit_.carrying and may_not_wait > now.steady:
                message = f"{fact.name} is down and still has weight"
                retry = None if may_not_wait == FOREVER else may_not_wait
                return Progress(grant, wait=Wait(grant.object, Waiting.WEIGHT, message, retry))
            return Progress(_out_since(grant, now), start=True)
        if fact.state is ContainerState.PAUSED:
            return Progress(None, ended=PAUSED)
        if grant.cause in URGENT and belief.live is ProbeValue.PASS:
            return Progress(None, ended="recovered before the stop")
        if _taken_back(grant, belief):
            return Progress(None, ended=TAKEN_BACK)
        return _leave_service(grant, fact, exit_, grants.may_empty(grant, workload), grants.drain_of(workload), now)
    if belief.live is ProbeValue.FAIL:
        return Progress(None, ended="the new generation failed too")
    if available:
        return Progress(None, ended="available again")
    if fact.state not in UP:
        return Progress(None, ended="the new generation ended")
    message = f"{fact.name} is restarted and not available yet"
    return Progress(grant, wait=Wait(grant.object, Waiting.READY, message, None if until == FOREVER else until))
