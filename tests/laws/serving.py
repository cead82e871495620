"""Watches what serves: no container loses its weight, its name or its life before its successor serves.

A container serves while its program really answers and it has a weight, read in a pool, or a name. The program in a container is that
of the version that it was made from, so what the manifest of another version asks for is not answered.
"""

import itertools
from dataclasses import dataclass, field

from manifests.values.desired import SECOND, Desired
from manifests.values.dns import Publish
from providers.actions import Action, CreateContainer
from providers.testing.memory_container import MemoryContainer
from reconciler.core.plan_text import describe
from tests.sim.manifest import INSTANCE, NAMES, POOLS
from tests.sim.programs import ProgramOf
from tests.sim.world import World


@dataclass(frozen=True)
class Service:
    """How one container serves at one instant."""

    ordinal: tuple[str, int]
    up: bool
    answers: bool
    weights: dict[str, int]
    names: frozenset[str]

    @property
    def serves(self) -> bool:
        """Whether its program answers and clients come."""
        return self.answers and bool(self.weights or self.names)


@dataclass
class Serving:
    """Watches one world from now on, and keeps what it saw for the report of a violation."""

    world: World
    program_of: ProgramOf
    hosts: frozenset[str] = frozenset()
    """All names that any manifests declared so far."""

    asked: frozenset[str] = frozenset()
    """The names that the manifests in force want the addresses of containers in."""

    pools: frozenset[str] = frozenset()
    """The pools of the manifests in force."""

    budget: dict[str, int] = field(default_factory=dict)
    """The fewest replicas that a planned disruption leaves published, by workload."""

    before: dict[str, Service] = field(default_factory=dict)
    timeline: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    served: int = 0
    """How many containers served at the same time, at most."""

    def __post_init__(self) -> None:
        self.world.apps.checks_pass = True
        self.world.checks.append(self.after)
        self.follow(self.world.shop.desired())

    def follow(self, desired: Desired) -> None:
        """These manifests are in force from now on."""
        self.hosts |= {policy.host for policy in desired.policies}
        self.pools = frozenset(balancer.pool for service in desired.services for balancer in service.balancers)
        self.budget = {one.name: max(1, one.replicas - one.max_unavailable) for one in desired.workloads}
        wanted = (p for p in desired.policies if any(target.publish is Publish.ENDPOINTS for target in p.targets))
        self.asked = frozenset(policy.host for policy in wanted)

    def after(self, action: Action) -> None:
        """Compare with the instant before this write."""
        if isinstance(action, CreateContainer):
            made = self.world.containers().get(action.name)
            if made is not None and made.id not in self.world.apps.programs:
                self.world.apps.programs[made.id] = self.program_of(action)
        self.look(describe(action))

    def look(self, event: str) -> None:
        """Compare with the look before, at any event."""
        now = self.now()
        at = self.world.clock.now().steady / SECOND
        self.timeline.append(f"{at:10.3f}  {event}")
        self.served = max(self.served, sum(service.serves for service in now.values()))
        for id_, was in self.before.items():
            if not was.serves:
                continue
            lost = self._lost(id_, was, now)
            if lost:
                self.broken.append(f"{at:.3f} s: {was.ordinal[0]}/{was.ordinal[1]} ({id_}) lost {lost} by: {event}")
        self.before = now

    def _lost(self, id_: str, was: Service, now: dict[str, Service]) -> str:
        """What a container lost while its successor does not serve; empty: nothing."""
        service = now.get(id_)
        next_ones = [
            other for key, other in now.items() if key != id_ and other.ordinal == was.ordinal and other.serves
        ]
        if service is None or not service.up:
            return "" if next_ones else "its life"
        for pool, weight in was.weights.items():
            less = service.weights.get(pool, 0)
            # Of a pool that no service has any more, a weight in another one is the successor.
            others = {pool} if pool in self.pools else self.pools
            serve = [*next_ones, service] if pool not in self.pools else next_ones
            if less < weight and not any(others.intersection(other.weights) for other in serve):
                return f"weight in {pool} ({weight} -> {less})"
        for name in was.names - service.names:
            if name not in self.asked or any(name in other.names for other in next_ones):
                continue
            # A successor that serves behind a balancer only: the name keeps the addresses that the budget asks for.
            left = sum(name in other.names for other in now.values() if other.ordinal[0] == was.ordinal[0])
            if not next_ones or left < self.budget.get(was.ordinal[0], 1):
                return f"its name {name}, which has {left} addresses left"
        return ""

    def now(self) -> dict[str, Service]:
        """How each container of ours serves now, by its id."""
        names = {host: self.addresses(host) for host in self.hosts}
        return {
            item.id: self._service(item, names)
            for item in self.world.containers().values()
            if item.mark is not None and item.mark.instance == INSTANCE
        }

    def _service(self, item: MemoryContainer, names: dict[str, set[str]]) -> Service:
        program = self.world.apps.programs.get(item.id)
        now = self.world.clock.now().steady
        started = item.up and now - item.running_since >= self.world.apps.delay(item.name)
        weights: dict[str, int] = {}
        for pool, members in self.world.outside.pools.get(POOLS, {}).items():
            for endpoint, member in members.items():
                reached = program is not None and endpoint.port in program.ports
                if endpoint.address == item.address and member.weight and reached:
                    weights[pool] = max(member.weight, weights.get(pool, 0))
        assert item.mark is not None
        return Service(
            (item.mark.workload, item.mark.ordinal),
            item.up,
            started and program is not None and program.good,
            weights,
            frozenset(host for host, found in names.items() if item.address in found),
        )

    def addresses(self, host: str) -> set[str]:
        """The addresses that a resolver may get for a name, whatever its place."""
        zones = self.world.outside.zones.get(NAMES, {}).values()
        records = list(itertools.chain.from_iterable(zone.records.items() for zone in zones))
        found: set[str] = set()
        asked, known = [host], {host}
        while asked:
            name = asked.pop()
            for key, record in records:
                if key.name != name:
                    continue
                if key.type in {"A", "AAAA"} and not record.alias:
                    found.update(record.values)
                elif key.type == "CNAME" or record.alias:
                    further = set(record.values) - known
                    known |= further
                    asked += further
        return found
