"""Open grants: the next step of every disruption that is under way.

Called by `decide` only, after the gates.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from manifests.values.desired import SECOND, Workload
from providers.facts import ContainerFact, ContainerState, ProbeValue
from reconciler.core import differences
from reconciler.core.actions import steps
from reconciler.core.actions.outbox import Outbox
from reconciler.core.dns.names import Names
from reconciler.core.drift.why import Movement
from reconciler.core.exits import grants, inflight_requests, sequence
from reconciler.core.exits.grants import Drain
from reconciler.core.exits.sequence import Exit, Progress
from reconciler.core.healing import restart_gates, restart_history
from reconciler.core.health.belief import Belief
from reconciler.core.limits import suspensions
from reconciler.core.limits.suspensions import Subject
from reconciler.core.model.drift import Why
from reconciler.core.model.instant import Now, due
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Act, HeldAction, Reason, Wait, Waiting
from reconciler.core.replicas import availability, exit_times
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights

QUIET = 30 * SECOND
"""How long a stop waits, after its drain, until the runtime's restart policy is read back as switched off."""


class _Outside(NamedTuple):
    """What pools and names show of every container."""

    weights: Weights
    names: Names


def _exit(snap: Snapshot, name: str, grant: Grant, workload: Workload | None, outside: _Outside, out: Outbox) -> Exit:
    """What pools and names still show of one container."""
    names = outside.names
    traffic = outside.weights.shown(name)
    flight = traffic.requests
    same = grant.weight_out is None or grant.epochs == flight.epochs
    rules = None if workload is None else workload.push
    count = inflight_requests.count(flight, same, out.pushes.get(grant.generation), rules, out.now.steady)
    pool, zone = traffic.hidden, names.hidden.get(name, "")
    zone_since = min((unknown.since for key, unknown in snap.sight.unknown_zones.items() if key[1] == zone), default=0)
    return Exit(
        named=name in names.named,
        ttl=names.named.get(name, 0),
        kept=name in names.kept,
        unreadable_zone=zone,
        unreadable_zone_since=zone_since,
        carrying=traffic.carrying,
        contested=traffic.contested,
        refused=next((place.pool for place in flight.places if steps.place_id(place) in out.ledger.step_failures), ""),
        pooled=traffic.pooled,
        unreadable_pool="" if pool is None else f"{pool[0]}/{pool[1]}",
        unreadable_pool_since=0 if pool is None else snap.sight.unknown_pools[pool].since,
        in_flight=count,
        epochs=flight.epochs,
        busy=tuple(place for place in flight.places if place.requests),
    )


def _granted_members(roster: Roster, grants: Iterable[Grant]) -> dict[tuple[str, str], tuple[Belief, bool]]:
    """The containers of workloads with open grants by (workload, id), and whether each is the current one of its replica."""
    members: dict[tuple[str, str], tuple[Belief, bool]] = {}
    for key in {grant.object.rpartition("/")[0] for grant in grants} & roster.groups.keys():
        group = roster.groups[key]
        for beliefs, current in (
            (group.current.values(), True),
            (group.waiting, True),
            (group.outgoing, False),
            (group.surplus, False),
        ):
            for belief in beliefs:
                members.setdefault((key, belief.fact.id), (belief, current))
    return members


def _available(workload: Workload, belief: Belief | None, now: Now) -> bool:
    """Whether a restart has helped: the container is available, and its liveness probe, if it has one, passes."""
    passes = belief is not None and belief.live is ProbeValue.PASS
    return belief is not None and passes and availability.available_at(belief, workload.min_ready) <= now.steady


def _member(grant: Grant, workload: Workload, belief: Belief, current: bool, exit_: Exit, now: Now) -> Progress:
    """The next thing to do with a container of a workload."""
    if grant.recreate and (not current or grant.cause not in grants.REPLACED):
        return sequence.recreate(grant, belief, exit_, workload, now)
    if grant.cause in grants.RESTARTS:
        return sequence.restart(grant, belief, exit_, workload, _available(workload, belief, now), now)
    if current:
        return Progress(None, ended="wanted again")
    return sequence.leave(grant, belief.fact, exit_, grants.drain_of(workload), now)


def _recreation(grant: Grant, group: Group, now: Now) -> Progress:
    """The next thing to do after the removal that a recreation began with."""
    ordinal = int(grant.object.rpartition("/")[2])
    if ordinal >= group.workload.replicas:
        return Progress(None, ended="no longer wanted")
    belief = group.current.get(ordinal)
    return sequence.recreated(grant, belief, group.workload, _available(group.workload, belief, now), now)


def _quieten(progress: Progress, grant: Grant, fact: ContainerFact, drain: int, out: Outbox) -> int:
    """Until when (steady) a stop waits for the runtime's restart policy to be switched off; 0 when it does not wait.

    A runtime that refuses, or confirms the change without making it, does not prevent the stop. It restarts main containers only.
    """
    draining = progress.wait is not None and progress.wait.waiting is Waiting.DRAIN
    refused = f"update {fact.name}" in out.ledger.step_failures
    if (
        refused
        or grant.only
        or not (progress.stop or draining)
        or fact.state is not ContainerState.RUNNING
        or not restart_history.restarts_itself(fact)
    ):
        return 0
    assert grant.weight_out is not None  # noqa: S101  (set before any drain or stop; for the type checker)
    until = due(grant.weight_out, (drain if grant.drain is None else grant.drain) + QUIET, out.now)
    return until if until > out.now.steady else 0


def carry_on(snap: Snapshot, weights: Weights, names: Names, out: Outbox) -> None:
    """Carry every open grant one step further."""
    desired, now = out.desired, out.now
    links, outside, movement = steps.Links(snap), _Outside(weights, names), Movement(desired, out.ledger)
    orphans = {fact.id: fact for fact in snap.roster.orphans}
    members = _granted_members(snap.roster, out.ledger.grants.values())
    for name, grant in sorted(out.ledger.grants.items()):
        key = grant.object.rpartition("/")[0]
        group = snap.roster.groups.get(key)
        belief, current = members.get((key, name), (None, False))
        if belief is None and name not in orphans and snap.roster.unseen.hides(grant):
            continue  # it goes on when its node can be read
        workload = desired.former.get(key) if group is None else group.workload
        exit_ = _exit(snap, name, grant, workload, outside, out)
        fact = belief.fact if belief is not None else orphans.get(name)
        quiet, longest, grace = (
            exit_times.exit_times_of(out.ledger, key) if workload is None else exit_times.declared_exit(workload)
        )
        drain = Drain(quiet, longest)
        if group is not None and belief is not None:
            progress = _member(grant, group.workload, belief, current, exit_, now)
            if progress.grant is None and (belief.fact.name in out.under_way or belief.fact.name in out.busy):
                # The call may be its stop, which cannot be cancelled: its exit goes on until the result is known.
                message = f"{belief.fact.name}: {progress.ended}, but a call on it is still running"
                progress = Progress(grant, wait=Wait(grant.object, Waiting.CALL, message))
        elif fact is not None and grant.cause in grants.DELETIONS:
            progress = sequence.leave(grant, fact, exit_, drain, now)
        elif fact is None and group is not None and grant.recreate:
            progress = _recreation(grant, group, now)
        else:
            # Gone; or its manifest was removed meanwhile: the rules of deletions then decide whether it may go.
            progress = Progress(None, ended="gone")
        out.granted(name, progress.grant)
        if progress.ended == sequence.RELEASED:
            out.released(name)
        if progress.cut and fact is not None:
            for place in progress.cut:
                out.put(steps.cut(grant, fact, place))
        if progress.wait is not None:
            out.waits.append(replace(progress.wait, unasked=not movement.asked_for(grant.cause, grant.object)))
        if progress.hold is not None:
            out.holds.append(progress.hold)
        if progress.grant is None or fact is None:
            continue
        quiet_until = _quieten(progress, progress.grant, fact, drain.longest, out)
        if quiet_until:
            message = f"the runtime has not switched off the restart policy of {fact.name} yet"
            unasked = not movement.asked_for(grant.cause, grant.object)
            out.waits.append(Wait(grant.object, Waiting.DRAIN, message, quiet_until, unasked=unasked))
            out.put(steps.quieten(progress.grant, fact))
            continue
        if progress.start:
            out.put(steps.restart_start(progress.grant, fact))
            continue
        if not (progress.stop or progress.remove):
            continue
        act = Act.STOP if progress.stop else Act.REMOVE
        held = HeldAction(act, (fact.id,))
        heals = progress.stop and movement.why(grant.cause, grant.object) is not Why.CHANGE
        subject = Subject(key, grant.object, fact.node, heals=heals)
        holds = suspensions.suspended(desired, out.ledger, subject, act.value, now, held)
        if holds and not desired.destroy:
            out.holds.extend(holds)
        elif progress.stop:
            if grant.grace is not None:
                grace = grant.grace
            elif workload is not None:
                probed = snap.roster.container_of(workload, fact)
                grace = restart_gates.grace_of(probed, grant.cause, snap.roster.grace_of(workload, fact))
            first = grant.recreate and grant.cause in grants.REPLACED
            message = (
                f"{progress.despite}; that delays a stop by one drain at most"
                if progress.despite
                else "out of rotation and drained"
            )
            if grant.cause is Reason.NODE_CHANGED and grant.object in snap.roster.placed:
                message = f"{message} on {fact.node}; its replica belongs to {snap.roster.placed[grant.object]}"
            if first and group is not None:
                message = f"{message}; {differences.why_first(group.workload)}"
            out.put(steps.stop(progress.grant, fact, grace, links, key, message))
        else:
            out.put(steps.remove(progress.grant, fact, out.ledger))
