"""Restart requests: the restarts that operators requested, and their results.

A restart is a level, "a newer generation than the recorded one", so whatever ends that generation (this request, a crash, another
request, a new revision) fulfils it, and a kill of the program in between cannot cause a second restart. `decide` calls `follow`
once the replicas are known, puts `wants` through the same gates as all other candidates, and reports `waits`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from manifests.values.desired import SECOND, Workload
from manifests.values.dns import Publish
from providers.facts import ContainerFact, ContainerState, Generation, Mark, ProbeValue, container_name
from reconciler.core.exits.grants import SLACK, startup
from reconciler.core.healing import restart_counters
from reconciler.core.health.belief import Belief
from reconciler.core.limits import backoff
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.reasons import Reason, Wait, Waiting
from reconciler.core.model.restart_request import DEADLINE, FINAL, FailurePolicy, Fate, Member, Request
from reconciler.core.model.want import Kind, Want
from reconciler.core.replicas import availability, memory
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.replicas.snapshot import Snapshot

TTL = 3600 * SECOND
"""How long a finished request is kept to be read (ns)."""

KEPT = 200
"""The most finished requests that are kept; the oldest go first."""

_NOT_OBSERVED = Generation("", 0)
"""The generation of a member whose node could not be read when the request was resolved."""

_UP = {ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING}


def follow(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger after this look: members recorded, fates decided, old finished requests forgotten."""
    if not ledger.requests:
        return ledger
    requests = {name: _advance(snap, request, ledger) for name, request in ledger.requests.items()}
    finished = sorted(
        (elapsed(request.finished, snap.now), name)
        for name, request in requests.items()
        if request.finished is not None
    )
    for place, (age, name) in enumerate(finished):
        if age >= TTL or place >= KEPT:
            del requests[name]
    grants = _stamped(ledger.grants, requests.values())
    if requests == ledger.requests and grants is ledger.grants:
        return ledger
    return replace(ledger, requests=requests, grants=grants)


def wants(snap: Snapshot, ledger: Ledger, others: Iterable[Want]) -> list[Want]:
    """Candidates for waiting members, in order where the request says so, without those that are about to change anyway."""
    open_ = [request for _, request in sorted(ledger.requests.items()) if request.finished is None]
    if not open_:
        return []
    taken = {want.container for want in others if want.kind is not Kind.UPDATE}
    candidates: dict[str, Want] = {}
    for request in open_:
        for member in _next(request):
            group, ordinal = _place(member.object, snap.roster)
            belief = None if group is None else group.current.get(ordinal)
            if group is None or belief is None or _generation(belief.fact, member.only) != member.generation:
                continue
            fact = belief.fact
            if fact.name in taken or fact.name in candidates or fact.id in ledger.grants:
                continue
            if fact.state is not ContainerState.RUNNING:
                continue
            message = f"requested by {request.who or 'an operator'}: {request.reason or 'no reason given'}"
            target = f"{fact.name} only {member.only}" if member.only else fact.name
            candidates[fact.name] = Want(
                f"{Kind.RESTART.value} {target}",
                member.object,
                Kind.RESTART,
                Reason.REQUESTED,
                message,
                fact.name,
                fact.node,
                ordinal,
                group.workload,
                fact,
                belief.ready,
                member.only,
            )
    return list(candidates.values())


def waits(snap: Snapshot, ledger: Ledger) -> list[Wait]:
    """The waits of open requests, with the instants at which their answers change."""
    waits: list[Wait] = []
    for name, request in sorted(ledger.requests.items()):
        if request.finished is not None:
            continue
        members = request.members or ()
        decided = sum(1 for member in members if member.fate in FINAL)
        message = f"restart request {name}: {decided} of {len(members)} replicas done"
        if request.members is None:
            message = f"restart request {name}: its replicas have not been observed yet"
        waits.append(Wait(request.object, Waiting.REQUEST, message, due(request.at, request.limit, snap.now)))
        for member in members:
            belief = _moved_on(member, snap.roster) if member.fate not in FINAL else None
            at = FOREVER if belief is None else _ripe(request, belief, snap.roster, member)
            if snap.now.steady < at < FOREVER:
                waits.append(
                    Wait(
                        member.object,
                        Waiting.MIN_READY,
                        f"{member.container} was restarted and is ready, but not for long enough yet",
                        at,
                    )
                )
    return waits


def wake_at(ledger: Ledger, now: Now) -> int:
    """The steady instant at which the first finished request is forgotten."""
    ends = [due(request.finished, TTL, now) for request in ledger.requests.values() if request.finished is not None]
    return min(ends, default=FOREVER)


# --- one request --------------------------------------------------------------------------------------------------


def _advance(snap: Snapshot, request: Request, ledger: Ledger) -> Request:
    """One request after this look."""
    if request.finished is not None:
        return request
    if request.members is None:
        request = _resolve(snap, request)
        if request.members is None:
            if elapsed(request.at, snap.now) < request.limit:
                return request
            return request._replace(
                members=(), finished=instant(snap.now), message="its replicas were not observed before the deadline"
            )
        if not request.members:
            message = request.message or f"{request.object} has no replicas to restart"
            return request._replace(finished=instant(snap.now), message=message)
    assert request.members is not None  # noqa: S101  (set just above; for the type checker)
    expired = elapsed(request.at, snap.now) >= request.limit
    members = [_decide(snap, member, request, ledger) for member in request.members]
    failed = next((member for member in members if member.fate is Fate.FAILED), None)
    for place, member in enumerate(members):
        if member.fate in FINAL:
            continue
        if expired:
            members[place] = _late(snap, member)
        elif failed is not None and request.failure_policy is FailurePolicy.FAIL and member.fate is Fate.WAITING:
            members[place] = member._replace(
                fate=Fate.SKIPPED, message=f"not restarted, because {failed.object} failed"
            )
    if tuple(members) != request.members:
        request = request._replace(members=tuple(members))
    if all(member.fate in FINAL for member in members):
        request = request._replace(finished=instant(snap.now))
    return request


def _resolve(snap: Snapshot, request: Request) -> Request:
    """Record the members with their generations.

    A replica on a node that cannot be read is recorded without one; `_decide` adds it when the node can be read.
    """
    key = request.object if request.object in snap.roster.groups else request.object.rpartition("/")[0]
    group = snap.roster.groups.get(key)
    if group is None:
        return request._replace(members=())
    if group.unlisted and not group.members():
        return request
    only, message = _container(request, group)
    if message:
        return request._replace(members=(), message=message)
    asked_at = due(request.at, 0, snap.now)
    members = []
    for ordinal, belief in sorted(group.current.items()):
        fact = belief.fact
        generation = _generation(fact, only)
        member = Member(memory.replica_of(key, ordinal), fact.name, generation or fact.generation, only=only)
        if request.object not in {key, member.object}:
            continue
        if generation is None:
            member = member._replace(fate=Fate.SKIPPED, message=f"it has no container {only}")
        elif fact.state in _UP and _since(fact, only) > asked_at:
            member = member._replace(fate=Fate.DONE, message="started after the request")
        members.append(member)
    for belief in (*group.outgoing, *group.surplus):
        obj = memory.replica_of(key, belief.fact.mark.ordinal if belief.fact.mark else -1)
        if request.object in {key, obj}:
            message = "it is being replaced or removed"
            members.append(Member(obj, belief.fact.name, belief.fact.generation, Fate.SKIPPED, message))
    for ordinal, node in group.unknown.items():
        obj = memory.replica_of(key, ordinal)
        if request.object in {key, obj}:
            name = container_name(Mark(snap.desired.instance.id, group.workload.name, ordinal, group.serving))
            members.append(Member(obj, name, _NOT_OBSERVED, message=_unreadable(node), only=only))
    if request.deadline is None:
        left = sum(1 for member in members if member.fate not in FINAL)
        request = request._replace(deadline=_deadline(snap, request, group.workload, left))
    return request._replace(members=tuple(members))


def _deadline(snap: Snapshot, request: Request, workload: Workload, replicas: int) -> int:
    """The deadline of a request that names none (ns), never less than the times of the manifest.

    The replicas are restarted in waves, as many at a time as the budget allows and names can spare. In each wave they leave the
    names, drain, restart, become available, and are published again.
    """
    services = {
        service.key
        for service in snap.desired.services
        if any(backend.workload == workload.key for backend in service.backends)
    }
    names = [
        (policy, target)
        for policy in snap.desired.policies
        for target in policy.targets
        if target.publish is Publish.ENDPOINTS and target.service in services
    ]
    together = workload.max_unavailable if not names else min(workload.max_unavailable, workload.replicas - 1)
    waves = replicas if request.ordered else -(-replicas // max(1, together))
    checks = {check.key: check.check for check in snap.desired.checks}
    ttl = max((policy.ttl for policy, _ in names), default=0) * SECOND
    checked = [checks.get(target.check) if target.check else policy.check for policy, target in names]
    published = max((check.first_verdict for check in checked if check is not None), default=0)
    drain = workload.drain_max if request.drain is None else request.drain
    start = startup(workload) + (request.grace or 0)
    wave = ttl + drain + start + max(workload.min_ready, request.min_started) + published
    return max(DEADLINE, waves * wave + SLACK)


def _container(request: Request, group: Group) -> tuple[str, str]:
    """(the requested container of a replica as runtimes name it, why there is none). Empty for the main one: all of them."""
    main = group.workload.template.container.name
    if request.only in ("", main):
        return "", ""
    names = [sidecar.name for sidecar in group.workload.template.sidecars]
    # Replicas of another revision than the declared one may have others.
    names += [start.container for belief in group.current.values() for start in belief.fact.starts]
    if request.only in names:
        return request.only, ""
    existing = ", ".join([main, *sorted(set(names) - {""})])
    return "", f"{group.workload.key} has no container {request.only}; it has: {existing}"


def _generation(fact: ContainerFact, only: str) -> Generation | None:
    """The generation that a restart of this container ends, or that of the main one; None where the replica has no such container.

    All other containers follow the start of the main one: a later start of a sidecar is no restart of the replica.
    """
    if not fact.starts:
        return None if only else fact.generation
    return next((Generation(fact.id, start.started_at) for start in fact.starts if start.container == only), None)


def _since(fact: ContainerFact, only: str) -> int:
    """Since when that container has been running (steady ns)."""
    return next((start.running_since for start in fact.starts if start.container == only), fact.running_since)


def _unreadable(node: str) -> str:
    return f"its node {node} cannot be read"


def _late(snap: Snapshot, member: Member) -> Member:
    """The fate of a member that is undecided at the deadline: failed if the new generation fails, else expired."""
    belief = _moved_on(member, snap.roster)
    if belief is None:
        why = f" ({member.message})" if member.message else ""
        return member._replace(fate=Fate.EXPIRED, message=f"not restarted before the deadline{why}")
    fails = belief.live is ProbeValue.FAIL or belief.fact.state is ContainerState.EXITED
    message = f"{member.message} when the deadline passed"
    return member._replace(fate=Fate.FAILED if fails else Fate.EXPIRED, message=message)


def _decide(snap: Snapshot, member: Member, request: Request, ledger: Ledger) -> Member:
    """The fate of one member.

    A new generation that is not available yet may still become so: it may be slow to start, and a container that exits or fails its
    probe is started again. So it fails before the deadline only when nothing starts it again, or when it exits again and again.
    """
    if member.fate in FINAL:
        return member
    group, ordinal = _place(member.object, snap.roster)
    if group is None or ordinal >= group.workload.replicas:
        return member._replace(fate=Fate.SKIPPED, message="no longer wanted")
    if ordinal in group.unknown:
        return member._replace(message=_unreadable(group.unknown[ordinal]))
    if member.generation == _NOT_OBSERVED:
        member = _observed(group, ordinal, member, request, snap.now)
        if member.fate in FINAL:
            return member
    belief = _moved_on(member, snap.roster)
    if belief is None:
        if any(_carries_out(grant, member) for grant in ledger.grants.values()):
            return member._replace(fate=Fate.RESTARTING, message="leaving service")
        return member._replace(fate=Fate.WAITING, message="")
    fact = belief.fact
    if not fact.started_at:
        return member._replace(fate=Fate.RESTARTING, message="recreated, not started yet")
    if fact.state in {ContainerState.EXITED, ContainerState.RESTARTING}:
        code = "an unknown exit code" if fact.exit_code is None else f"code {fact.exit_code}"
        failures = ledger.failures.get(member.object)
        often = failures is not None and failures.streak > max(1, group.workload.restarts.limit)
        again = f" {restart_counters.in_a_row(failures.streak)}" if often and failures is not None else ""
        return member._replace(
            fate=Fate.FAILED if often else Fate.RESTARTING, message=f"exited with {code} after the restart{again}"
        )
    if fact.state in _UP and _since(fact, member.only) < due(request.at, 0, snap.now):
        message = "another container took its place, which has been running since before the request"
        return member._replace(fate=Fate.SKIPPED, message=message)
    if belief.live is ProbeValue.FAIL:
        row = ledger.escalations.get(member.object)
        given_up = row is not None and backoff.exhausted(row.tries, group.workload, fact)
        return member._replace(
            fate=Fate.FAILED if given_up else Fate.RESTARTING, message="fails its probe after the restart"
        )
    if _ripe(request, belief, snap.roster, member) <= snap.now.steady:
        return member._replace(fate=Fate.DONE, message="restarted and available")
    return member._replace(fate=Fate.RESTARTING, message="restarted, not available yet")


def _observed(group: Group, ordinal: int, member: Member, request: Request, now: Now) -> Member:
    """A member whose node can be read again, with the generation that is there."""
    belief = group.current.get(ordinal)
    generation = None if belief is None else _generation(belief.fact, member.only)
    if belief is None or generation is None:
        return member._replace(fate=Fate.SKIPPED, message="there is no container to restart")
    member = member._replace(container=belief.fact.name, generation=generation, message="")
    if belief.fact.state in _UP and _since(belief.fact, member.only) > due(request.at, 0, now):
        return member._replace(fate=Fate.DONE, message="started after the request")
    return member


def _place(obj: str, roster: Roster) -> tuple[Group | None, int]:
    key, _, ordinal = obj.rpartition("/")
    return roster.groups.get(key), int(ordinal)


def _moved_on(member: Member, roster: Roster) -> Belief | None:
    """The replica's container in a later generation than the recorded one; None while it is the same, or not observed."""
    group, ordinal = _place(member.object, roster)
    belief = None if group is None else group.current.get(ordinal)
    generation = None if belief is None else _generation(belief.fact, member.only)
    return belief if generation not in (None, member.generation) else None


def _ripe(request: Request, belief: Belief, roster: Roster, member: Member) -> int:
    """The steady instant from which the new generation counts: available for its workload, and old enough."""
    group, _ = _place(member.object, roster)
    min_ready = 0 if group is None else group.workload.min_ready
    at = availability.available_at(belief, min_ready)
    return at if at == FOREVER else max(at, belief.fact.running_since + request.min_started)


def _next(request: Request) -> tuple[Member, ...]:
    """The members to restart next: the first undecided one when ordered, else all."""
    left = tuple(
        member for member in request.members or () if member.fate not in FINAL and member.generation != _NOT_OBSERVED
    )
    chosen = left[:1] if request.ordered else left
    return tuple(member for member in chosen if member.fate is Fate.WAITING)


def _carries_out(grant: Grant, member: Member) -> bool:
    """Whether this disruption ends the recorded generation of the member."""
    same = grant.object == member.object and grant.generation.container_id == member.generation.container_id
    return same and grant.only in ("", member.only)


def _stamped(grants: Mapping[str, Grant], requests: Iterable[Request]) -> Mapping[str, Grant]:
    """Grants of requested restarts with the grace and drain that the request names."""
    limits = {
        (member.object, member.generation.container_id, member.only): (request.grace, request.drain)
        for request in requests
        if request.finished is None and (request.grace is not None or request.drain is not None)
        for member in request.members or ()
        if member.fate not in FINAL
    }
    if not limits:
        return grants
    stamped = dict(grants)
    for name, grant in grants.items():
        limit = limits.get((grant.object, grant.generation.container_id, grant.only))
        if grant.cause is Reason.REQUESTED and limit is not None and (grant.grace, grant.drain) != limit:
            stamped[name] = grant._replace(grace=limit[0], drain=limit[1])
    return stamped if stamped != grants else grants
