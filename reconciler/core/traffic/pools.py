"""Weights, the fourth stage: the desired weight of each endpoint of each pool, against the weight that was read back.

A ready endpoint gets its service's weight; an endpoint that is not ready, not running or leaving service gets 0; an unknown
endpoint keeps its weight. `traffic/pool` decides this for the endpoints of a service; this module goes through the pools, and
through the members that are no endpoint any more. Members of other owners are never touched. `decide` calls `weigh` and
`remember`; other rooms call `endpoints`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from manifests.values.desired import AddressFrom, Service
from providers.facts import ContainerFact, ContainerState, Endpoint, MemberFact, PoolFact, ProbeValue
from reconciler.core.exits.grants import may_cut, may_empty
from reconciler.core.exits.inflight_requests import Place
from reconciler.core.health.belief import Belief
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait, Waiting
from reconciler.core.model.spec import ServicePort, Spec
from reconciler.core.model.weight_memory import Ready
from reconciler.core.replicas import exit_times, specs
from reconciler.core.replicas.roster import Roster
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import floors
from reconciler.core.traffic.pool import Pool
from reconciler.core.traffic.weights import DeadMember, MemberChange, Weights

_RUNNING = ContainerState.RUNNING


def endpoints(service: Service, roster: Roster) -> Iterator[tuple[Endpoint, Belief]]:
    """The endpoint of every container that the service selects and whose port was observed.

    A container that was created for an earlier manifest is reached as that said, also where the service does not select it any more.
    """
    asked = roster.asked
    for backend in service.backends:
        group = roster.groups.get(backend.workload)
        if group is None:
            continue
        declared = ServicePort(backend.port, service.address_from, service.network)
        usual = not service.network and service.address_from is AddressFrom.CONTAINER
        for belief in group.members():
            own = asked.get(belief.fact.id) if asked else None
            if usual and own is None:
                for mapping in belief.fact.ports:
                    if mapping.number == backend.port:
                        yield Endpoint(mapping.address, mapping.port), belief
                        break
                continue
            port = declared if own is None or own.spec is None else own.spec.port_of(service.key)
            endpoint = None if port is None else specs.endpoint_at(belief.fact, port)
            if endpoint is not None:
                yield endpoint, belief
    if not asked:
        return
    selected = {backend.workload for backend in service.backends}
    for key in roster.selected.get(service.key, ()):
        for belief in roster.groups[key].members() if key not in selected else ():
            own = asked.get(belief.fact.id)
            port = None if own is None or own.spec is None else own.spec.port_of(service.key)
            endpoint = None if port is None else specs.endpoint_at(belief.fact, port)
            if endpoint is not None:
                yield endpoint, belief


class _Living:
    """The containers of ours that run, by the addresses at which they can be reached."""

    def __init__(self, roster: Roster, known: Mapping[str, Spec]) -> None:
        self._specs = known
        facts: Iterable[ContainerFact] = (
            *(belief.fact for group in roster.groups.values() for belief in group.members()),
            *roster.orphans,
            *roster.released,
        )
        self._by_endpoint: dict[Endpoint, ContainerFact] = {}
        self._by_address: dict[str, ContainerFact | None] = {}
        for fact in facts:
            if fact.state is not _RUNNING:
                continue
            for port in (*fact.ports, *fact.published):
                self._by_endpoint[Endpoint(port.address, port.port)] = fact
            for address in {fact.address, *(address for _, address in fact.addresses)} - {""}:
                # An address that several containers share, such as the host's, names none of them.
                self._by_address[address] = None if address in self._by_address else fact

    def at(self, member: MemberFact) -> ContainerFact | None:
        """The container behind a member, also at a port that only an earlier manifest named."""
        address, port = member.endpoint
        fact = self._by_endpoint.get(member.endpoint)
        if (
            fact is None
            and (at_address := self._by_address.get(address)) is not None
            and port in self._ports(at_address)
        ):
            fact = at_address
        return None if fact is None or (member.name and member.name != fact.name) else fact

    def _ports(self, fact: ContainerFact) -> set[int]:
        """The ports at which services reached the revisions of a container's workload."""
        workload = f"workload/{fact.mark.workload}@" if fact.mark is not None else "@"
        known = (spec for key, spec in self._specs.items() if key.startswith(workload))
        return {port.port for spec in known for _, port in spec.services}


class _Leftover(NamedTuple):
    """Members of ours in one pool that are no endpoint of its service. `epoch` is the pool's.

    `carried_on`: whether other members take over the traffic of a member, or need not. `placed`: the endpoint at which the service
    reaches a container now, by its id, with the weight there.
    """

    owner: str
    pool: tuple[str, str]
    members: Iterable[MemberFact]
    carried_on: Callable[[MemberFact], bool]
    epoch: str
    placed: Mapping[str, tuple[Belief, int]]


def _leave(snap: Snapshot, ledger: Ledger, leftover: _Leftover, living: _Living, out: Weights) -> None:
    """Remove dead members; weigh living ones by their grants.

    A member of a container that was last observed on a node that cannot be read is not dead.
    """
    unseen = snap.roster.unseen
    for member in sorted(leftover.members, key=lambda member: member.endpoint):
        fact = living.at(member)
        after = 0 if member.weight > 0 else None
        place = (leftover.owner, *leftover.pool)
        change = MemberChange(*place, member.endpoint, member.name, member.weight, after, Reason.GONE)
        if fact is None:
            if unseen.unlisted or unseen.at(member.endpoint) is not None:
                continue
            if member.weight > 0:
                out.dead.setdefault(member.endpoint.address, []).append(DeadMember(*place, member.endpoint))
            out.changes.append(change)
            continue
        change = change._replace(container=fact.name)
        traffic = out.of(fact.id)
        traffic.pooled = True
        traffic.carrying = traffic.carrying or member.weight > 0
        grant = ledger.grants.get(fact.id)
        if grant is None:
            _displaced(snap, leftover, member, fact, change, out)
            continue
        at = Place("/".join(leftover.pool), member.endpoint, member.in_flight, leftover.epoch)
        traffic.requests = traffic.requests.at(at)
        if member.weight > 0 and may_cut(grant, snap.now):
            change = change._replace(reason=Reason.DRAINING)
            if leftover.carried_on(member):
                out.changes.append(change)
            else:
                out.holds.append(_last_member(change))


def _displaced(
    snap: Snapshot, leftover: _Leftover, member: MemberFact, fact: ContainerFact, change: MemberChange, out: Weights
) -> None:
    """A member of a container that stays: the service reaches it elsewhere now, or not at all any more.

    The member at the earlier place goes once the one at the new place carries its weight. A container of an earlier revision keeps
    the member until its successor serves. Everything else is pruned, except the last member that serves, and a member of a container
    that has no weight yet where a service wants it.
    """
    placed = leftover.placed.get(fact.id)
    if placed is not None:
        belief, weight = placed
        not_ready = belief.ready is ProbeValue.FAIL and leftover.carried_on(member)
        if weight > 0 or not member.weight or not_ready:
            out.changes.append(change._replace(reason=Reason.MOVED if weight else belief.reason))
    elif fact.id in snap.roster.asked:
        pass
    elif member.weight > 0 and (lacking := out.shown(fact.id).lacking):
        message = (
            f"{fact.name} keeps its weight in pool {change.pool} until it has weight in every pool of {lacking[0]}"
        )
        out.waits.append(Wait(change.object, Waiting.RAISED, message, container=fact.id))
    elif member.weight > 0 and not leftover.carried_on(member):
        out.holds.append(_last_member(change))
    else:
        out.strays.append(change._replace(reason=Reason.PRUNED))


def _always(_: MemberFact) -> bool:
    return True


def _last_member(change: MemberChange) -> Hold:
    message = f"{change.container} keeps weight {change.before}: no other endpoint of pool {change.pool} is ready and gets traffic"
    next_step = f"bring another endpoint of {change.object} back, or set replicas of its workload to 0"
    action = f"weight {change.container} {change.before} -> 0 in pool {change.pool}"
    return Hold(change.object, action, Rule.LAST_MEMBER, message, next_step=next_step, held=change.held)


def _hide(snap: Snapshot, named: set[tuple[str, str]], out: Weights) -> None:
    """Note the containers that may be in an unreadable pool although no service puts them there any more."""
    for key in sorted(snap.sight.unknown_pools):
        for fact in snap.roster.orphans:
            out.hide(fact.id, key)
        if key not in named:
            for group in snap.roster.groups.values():
                for belief in (*group.outgoing, *group.surplus):
                    out.hide(belief.fact.id, key)


def weigh(snap: Snapshot, ledger: Ledger, suspect: frozenset[str], sound: frozenset[str]) -> Weights:
    """Compare all pools of all services, then the pools that no service names.

    Args:
        ledger: with the grants and the rows of members.
        suspect: ids of containers that keep their weight although a probe failed (mass failure).
        sound: ids of containers of which only the liveness probe failed. The suspect ones get their weight back after a restart
            that did not help, the others when no endpoint of their pool is better.
    """
    out = Weights(suspect=suspect, sound=sound)
    grants = ledger.grants
    leftovers: list[_Leftover] = []
    named: set[tuple[str, str]] = set()
    doubt: bool | None = None
    for service in sorted(snap.desired.services, key=lambda service: service.key):
        members = out.endpoints[service.key] = list(endpoints(service, snap.roster))
        groups = [
            snap.roster.groups[backend.workload]
            for backend in service.backends
            if backend.workload in snap.roster.groups
        ]
        intended = snap.desired.destroy or all(group.workload.replicas == 0 for group in groups)
        unseen = snap.roster.unseen
        partly_unseen = bool(unseen.nodes) and any(group.partly_unseen for group in groups)
        unlisted = bool(unseen.unlisted) and any(group.unlisted for group in groups)
        for balancer in service.balancers:
            key = (balancer.provider, balancer.pool)
            named.add(key)
            fact = snap.sight.pools.get(key)
            if fact is None:
                for _, belief in members:
                    out.hide(belief.fact.id, key)
                    out.of(belief.fact.id).lacking += (service.key,)
                continue
            pool = Pool(service, balancer, fact, ledger, out, snap.now)
            for endpoint, belief in members:
                grant = grants.get(belief.fact.id) if grants else None
                empty = grant is not None and may_empty(grant, exit_times.workload_of(grant, snap.roster))
                pool.judge(endpoint, belief, grant, empty, snap.roster.share(belief.fact))
            for member in list(pool.members.values()) if unseen.by_reach else ():
                container = unseen.at(member.endpoint)
                if container is not None:
                    pool.keep_unseen(member, container, snap.roster.share_of(container.workload, container.revision))
            if pool.members:
                carried_on: Callable[[MemberFact], bool] = _always if intended else pool.carried_on
                left = list(pool.members.values())
                leftovers.append(_Leftover(service.key, key, left, carried_on, fact.epoch, _placed(fact, members)))
            if pool.failing and doubt is None:
                doubt = floors.all_failing(snap.roster.groups.values(), unseen.any)
            pool.finish(intended, partly_unseen, unlisted, bool(doubt))
    for key, fact in snap.sight.pools.items():
        if key not in named:
            ours = [member for member in fact.members if member.ours]
            if ours:
                leftovers.append(_Leftover(f"pool/{key[1]}", key, ours, _always, fact.epoch, {}))
    if snap.sight.unknown_pools:
        _hide(snap, named, out)
    if leftovers:
        living = _Living(snap.roster, ledger.specs)
        for leftover in leftovers:
            _leave(snap, ledger, leftover, living, out)
    return out


def _placed(pool: PoolFact, members: Iterable[tuple[Endpoint, Belief]]) -> dict[str, tuple[Belief, int]]:
    """The containers that a service reaches, by id, with the weight that was read back there."""
    weights = {member.endpoint: member.weight for member in pool.members}
    return {belief.fact.id: (belief, weights.get(endpoint, 0)) for endpoint, belief in members}


def remember(snap: Snapshot, ledger: Ledger, weights: Weights) -> Ledger:
    """The ledger with the rows of this stage. Pools and nodes that cannot be read keep their rows."""
    hidden = {"/".join(key) for key in snap.sight.unknown_pools}
    ready: Mapping[str, Ready] = weights.ready
    if ledger.ready.keys() - ready.keys():
        present = {belief.fact.id for group in snap.roster.groups.values() for belief in group.members()}
        unseen = snap.roster.unseen
        kept = {
            container: row
            for container, row in ledger.ready.items()
            if container in present or unseen.may_exist(container)
        }
        ready = {**kept, **ready}
    changes: dict[str, Any] = {}
    for name, rows in (("weighed", weights.weighed), ("cuts", weights.cuts), ("panics", weights.panics)):
        before: Mapping[str, Any] = getattr(ledger, name)
        after = {**{key: row for key, row in before.items() if key in hidden}, **rows}
        if after != before:
            changes[name] = after
    if ready != ledger.ready:
        changes["ready"] = ready
    return replace(ledger, **changes) if changes else ledger
