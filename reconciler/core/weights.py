"""Weights, the fourth stage: what each endpoint of each pool should weigh, against what was read back.

A ready endpoint gets its service's weight; one that is not ready, not running or on its way out gets 0; of one that is not
known nothing is changed. The last positive weight of a pool is never taken away for what we observed of health, nor for a
planned step. Members of somebody else are never touched. Called by `decide` only.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from manifests.desired import AddressFrom, Balancer, Desired, Service, Workload
from providers.facts import ContainerFact, ContainerState, Endpoint, MemberFact, PoolFact, ProbeValue
from reconciler.core.activation import Roster
from reconciler.core.disruption import may_cut, may_empty, returns
from reconciler.core.instant import Now
from reconciler.core.ledger import Grant
from reconciler.core.trust import Belief, Sight
from reconciler.core.verdict import Hold, Reason, Rule

_PASS, _UNKNOWN = ProbeValue.PASS, ProbeValue.UNKNOWN
_RUNNING = ContainerState.RUNNING


class MemberChange(NamedTuple):
    """One member that should weigh `after` (None = be gone) instead of `before` (None = not in the pool)."""

    object: str
    provider: str
    pool: str
    endpoint: Endpoint
    container: str
    before: int | None
    after: int | None
    reason: Reason


@dataclass(slots=True)
class Weights:
    """The answer for all pools. Filled while this stage runs, read-only after it.

    `strays` are members of pools or services that no manifest names any more: removing them is pruning. `carrying` are the
    containers that were read back with a weight above 0, `pooled` those that are in any pool, `hidden` those behind a pool
    that cannot be read, `lacking` the (service, container) pairs without weight in all of the service's pools; all by container
    id, because a name may exist on two nodes while a replica moves. `dead` are
    addresses with weight where nothing of ours lives any more. `suspect` are containers whose failed liveness is doubted.
    """

    changes: list[MemberChange] = field(default_factory=list)
    strays: list[MemberChange] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    carrying: set[str] = field(default_factory=set)
    pooled: set[str] = field(default_factory=set)
    hidden: dict[str, tuple[str, str]] = field(default_factory=dict)
    lacking: set[tuple[str, str]] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    suspect: frozenset[str] = frozenset()


def endpoints(service: Service, roster: Roster) -> Iterator[tuple[Endpoint, Belief]]:
    """Every container that the service selects and whose port was observed, with the endpoint it makes.

    Where the service wants ports of the host, it is the mapping that was observed that counts, not the one that was asked for.
    """
    for backend in service.backends:
        group = roster.groups.get(backend.workload)
        if group is None:
            continue
        number = backend.port
        for belief in group.members():
            endpoint = _endpoint(service, belief.fact, number)
            if endpoint is not None:
                yield endpoint, belief


def _endpoint(service: Service, fact: ContainerFact, number: int) -> Endpoint | None:
    """Where a balancer reaches this port of a container; None while that is not known."""
    if service.address_from is AddressFrom.CONTAINER and service.network:
        address = dict(fact.addresses).get(service.network)
        return None if address is None else Endpoint(address, number)
    ports = fact.published if service.address_from is AddressFrom.HOST else fact.ports
    for port in ports:
        if port.number == number:
            return Endpoint(port.address, port.port)
    return None


def _living(roster: Roster) -> dict[Endpoint, ContainerFact]:
    """Where something of ours really runs."""
    facts: Iterable[ContainerFact] = (
        *(belief.fact for group in roster.groups.values() for belief in group.members()),
        *roster.orphans,
        *roster.released,
    )
    return {
        endpoint: fact
        for fact in facts
        if fact.state is _RUNNING
        for endpoint in (
            *(Endpoint(port.address, port.port) for port in (*fact.ports, *fact.published)),
            *(Endpoint(address, port.number) for _, address in fact.addresses for port in fact.ports),
        )
    }


class _Pool:
    """One pool of one service while it is looked at."""

    __slots__ = ("balancer", "fact", "kept", "lowered", "members", "out", "service", "survivor")

    def __init__(self, service: Service, balancer: Balancer, fact: PoolFact, out: Weights) -> None:
        self.service, self.balancer, self.fact, self.out = service, balancer, fact, out
        self.members: dict[Endpoint, MemberFact] = {member.endpoint: member for member in fact.members if member.ours}
        self.survivor = False
        self.lowered: list[tuple[MemberChange, bool]] = []

    def change(self, endpoint: Endpoint, name: str, before: int | None, after: int | None, why: Reason) -> MemberChange:
        balancer = self.balancer
        return MemberChange(self.service.key, balancer.provider, balancer.pool, endpoint, name, before, after, why)

    def judge(self, endpoint: Endpoint, belief: Belief, grant: Grant | None, empty: bool, now: Now) -> None:
        """Compare one endpoint with the pool. `empty` tells that its grant may take the last weight."""
        fact, out = belief.fact, self.out
        member = self.members.pop(endpoint, None)
        before = None if member is None else member.weight
        if before is not None:
            out.pooled.add(fact.id)
            if before > 0:
                out.carrying.add(fact.id)
        if not before:
            out.lacking.add((self.service.key, fact.id))
        if fact.state is not _RUNNING:
            if before:
                out.changes.append(self.change(endpoint, fact.name, before, 0, belief.reason))
                out.dead.add(endpoint.address)
            return
        if grant is not None:
            if before and may_cut(grant, now):
                why = Reason.RESTARTING if returns(grant) else Reason.DRAINING
                self.lowered.append((self.change(endpoint, fact.name, before, 0, why), not empty))
            return
        if belief.ready is _UNKNOWN:
            return
        if belief.ready is _PASS:
            if before:
                self.survivor = True
            if before != self.service.weight:
                out.changes.append(self.change(endpoint, fact.name, before, self.service.weight, Reason.READY))
            return
        if before:
            change = self.change(endpoint, fact.name, before, 0, belief.reason)
            if fact.id in out.suspect:
                out.holds.append(_suspect(change))
            else:
                self.lowered.append((change, True))

    def finish(self, intended: bool) -> None:
        """Take weights away, but never the last one for health or for a planned step."""
        for change, protected in self.lowered:
            if self.survivor or intended or not protected:
                self.out.changes.append(change)
                continue
            self.out.holds.append(_last_member(change))


def _leftovers(
    members: Iterable[MemberFact],
    owner: str,
    pool: tuple[str, str],
    living: Mapping[Endpoint, ContainerFact],
    grants: Mapping[str, Grant],
    last: bool,
    blind: bool,
    now: Now,
    out: Weights,
) -> None:
    """Members of ours that are no endpoint of the service: dead ones go, living ones follow what happens to them.

    Args:
        last: a service names the pool, and none of its endpoints is ready and carries weight.
        blind: a node cannot be seen, so a member without a container proves nothing.
    """
    for member in sorted(members, key=lambda one: one.endpoint):
        fact = living.get(member.endpoint)
        after = 0 if member.weight > 0 else None
        make = MemberChange(owner, *pool, member.endpoint, member.name, member.weight, after, Reason.GONE)
        if fact is None or (member.name and member.name != fact.name):
            if blind:
                continue
            if member.weight > 0:
                out.dead.add(member.endpoint.address)
            out.changes.append(make)
            continue
        make = make._replace(container=fact.name)
        out.pooled.add(fact.id)
        if member.weight > 0:
            out.carrying.add(fact.id)
        grant = grants.get(fact.id)
        if grant is None:
            out.strays.append(make._replace(reason=Reason.PRUNED))
        elif member.weight > 0 and may_cut(grant, now):
            change = make._replace(reason=Reason.DRAINING)
            if last:
                out.holds.append(_last_member(change))
            else:
                out.changes.append(change)


def _workload(grant: Grant, roster: Roster) -> Workload | None:
    group = roster.groups.get(grant.object.rpartition("/")[0])
    return None if group is None else group.workload


def _suspect(change: MemberChange) -> Hold:
    message = f"{change.container} fails together with many others, so it is its probe that is doubted and it keeps its weight"
    person = "check the probe and what they depend on; a failing readiness probe of its own takes it out of the pool"
    return Hold(
        change.object, f"weight {change.container} {change.before} -> 0", Rule.MASS_FAILURE, message, person=person
    )


def _last_member(change: MemberChange) -> Hold:
    return Hold(
        change.object,
        f"weight {change.container} {change.before} -> 0",
        Rule.LAST_MEMBER,
        f"no other endpoint of pool {change.pool} is ready and carries weight, so {change.container} "
        f"({change.reason.value}) keeps {change.before}",
        person=f"bring another endpoint of {change.object} back, or scale it to 0 in its manifest",
    )


def _hide(roster: Roster, seen: Sight, named: set[tuple[str, str]], out: Weights) -> None:
    """What may be in a pool that cannot be read, though no service puts it there any more."""
    for key in sorted(seen.unknown_pools):
        for fact in roster.orphans:
            out.hidden.setdefault(fact.id, key)
        if key not in named:
            for group in roster.groups.values():
                for belief in (*group.outgoing, *group.surplus):
                    out.hidden.setdefault(belief.fact.id, key)


def weigh(
    desired: Desired, roster: Roster, seen: Sight, grants: Mapping[str, Grant], suspect: frozenset[str], now: Now
) -> Weights:
    """Compare all pools of all services, then the pools that no service names.

    Args:
        suspect: ids of containers that keep their weight though a probe of theirs failed (mass failure).
    """
    out = Weights(suspect=suspect)
    leftovers: list[tuple[list[MemberFact], str, tuple[str, str], bool]] = []
    named: set[tuple[str, str]] = set()
    for service in sorted(desired.services, key=lambda one: one.key):
        members = list(endpoints(service, roster)) if service.balancers else []
        intended = desired.destroy or all(
            roster.groups[backend.workload].workload.replicas == 0
            for backend in service.backends
            if backend.workload in roster.groups
        )
        for balancer in service.balancers:
            key = (balancer.provider, balancer.pool)
            named.add(key)
            fact = seen.pools.get(key)
            if fact is None:
                for _, belief in members:
                    out.hidden.setdefault(belief.fact.id, key)
                    out.lacking.add((service.key, belief.fact.id))
                continue
            pool = _Pool(service, balancer, fact, out)
            for endpoint, belief in members:
                grant = grants.get(belief.fact.id) if grants else None
                empty = grant is not None and may_empty(grant, _workload(grant, roster))
                pool.judge(endpoint, belief, grant, empty, now)
            if pool.members:
                last = not (pool.survivor or intended)
                leftovers.append((list(pool.members.values()), service.key, key, last))
            if pool.lowered:
                pool.finish(intended)
    for key, fact in seen.pools.items():
        if key not in named:
            ours = [member for member in fact.members if member.ours]
            if ours:
                leftovers.append((ours, f"pool/{key[1]}", key, False))
    if seen.unknown_pools:
        _hide(roster, seen, named, out)
    if leftovers:
        living = _living(roster)
        for members_left, owner, key, last in leftovers:
            _leftovers(members_left, owner, key, living, grants, last, bool(roster.blind), now, out)
    return out
