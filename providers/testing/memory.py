"""In-memory endpoints and DNS, and their world: for tests, for simulations, and for trying manifests without a host.

A `MemoryWorld` is everything outside the program. Providers are thin handles on it: new ones (as after a kill -9) observe the same
world. Their types in manifests are `memory-runtime`, `memory-endpoints` and `memory-dns`; their world ends with the process. The
runtime is in `memory_runtime.py`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from manifests.values.desired import Role
from manifests.values.geo import GeoKind
from providers.actions import ChangeRecords, CutSessions, EndpointAction, SetWeight
from providers.capabilities import Alias, Atomic, DNSCapabilities, Write
from providers.dns.common.change import changed_sets
from providers.errors import Conflict, Foreign, Gone, Rejected, Unreachable
from providers.facts import ON_WEIGHT, Endpoint, MemberFact, PoolFact, RecordKey, RecordSet, Weights, ZoneFact
from providers.lib.clock import boottime
from providers.lib.one_by_one import one_by_one
from providers.naming import object_of
from providers.spi import Context, Performed
from providers.testing.memory_container import MemoryContainer

ADDRESSES = tuple(f"{third}.{last}" for third in range(8) for last in range(1, 255))
"""Addresses of the containers of a node, without their first half. They are few and the lowest free one comes first, so that an
address is reused after a removal."""

FIRST_HALF = 77
"""Containers of the first node have addresses 127.77.x.y, those of the next node 127.78.x.y, and so on."""

MAX_WEIGHT = 65_535
"""The largest weight of a record set in memory: larger than that of any DNS service."""


class MemorySettings(BaseModel):
    """In-memory providers have no settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(slots=True)
class MemoryMember:
    """One member of a pool: the instance that added it (empty: added by hand), its requests in flight (None: unknown), and so on."""

    weight: int
    name: str
    owner: str
    in_flight: int | None = 0
    operational: str = ""
    writer: str = ""


@dataclass(slots=True)
class MemoryBalancer:
    """Common to all pools of one provider: its process, and the weights that its pools allow."""

    epoch: str = "1"
    weights: Weights = Weights.ANY


@dataclass(slots=True)
class MemoryZone:
    """One zone: its serial and its record sets."""

    serial: int
    records: dict[RecordKey, RecordSet]


class MemoryWorld:
    """Everything outside: containers by node, pools and zones by provider name.

    Args:
        steady: the steady clock in nanoseconds; CLOCK_BOOTTIME by default, a virtual one in simulations.
        wall: the wall clock in nanoseconds.
    """

    def __init__(self, steady: Callable[[], int] = boottime, wall: Callable[[], int] = time.time_ns) -> None:
        self.steady = steady
        self.wall = wall
        self.lock = RLock()
        self.nodes: dict[str, dict[str, MemoryContainer]] = {}
        self.pools: dict[str, dict[str, dict[Endpoint, MemoryMember]]] = {}
        self.balancers: dict[str, MemoryBalancer] = {}
        self.zones: dict[str, dict[str, MemoryZone]] = {}
        self.created = 0
        self._broken: dict[str, dict[str, str]] = {}

    @staticmethod
    def of(context: Context) -> "MemoryWorld":
        """The world of a state directory in this process; the same one for each call."""
        with _WORLDS_LOCK:
            return _WORLDS.setdefault(context.state_dir, MemoryWorld())

    def break_reads(self, provider: str, cause: str = "the test has disabled reads", zone: str = "") -> None:
        """Fail all reads of this provider from now on, or those of one of its zones."""
        self._broken.setdefault(provider, {})[zone] = cause

    def mend_reads(self, provider: str) -> None:
        """Undo `break_reads`."""
        self._broken.pop(provider, None)

    def check_readable(self, provider: str, zones: Iterable[str] = ()) -> None:
        """Raise `Unreachable` when `break_reads` was called for this provider, or for one of these zones."""
        for zone in ("", *zones):
            cause = self._broken.get(provider, {}).get(zone)
            if cause is not None:
                raise Unreachable(f"zone {zone}" if zone else provider, cause)

    def free_address(self, node: str) -> str:
        """The lowest address of a node that no container has. Raises `Unreachable` without a free one."""
        self.nodes.setdefault(node, {})
        used = {container.address for containers in self.nodes.values() for container in containers.values()}
        first_half = f"127.{FIRST_HALF + list(self.nodes).index(node) % (256 - FIRST_HALF)}"
        for address in (f"{first_half}.{rest}" for rest in ADDRESSES):
            if address not in used:
                return address
        raise Unreachable("address", f"all {len(ADDRESSES)} addresses are in use", "remove a container")


_WORLDS: dict[str, MemoryWorld] = {}
_WORLDS_LOCK = RLock()


class MemoryEndpoints:
    """Pools of endpoints in a `MemoryWorld`."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = MemorySettings

    def __init__(self, name: str, settings: BaseModel, context: Context, world: MemoryWorld | None = None) -> None:
        del settings
        self.name = name
        self._instance = context.instance
        self.world = world or MemoryWorld.of(context)

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The named pools, plus every pool that holds a member of ours."""
        with self.world.lock:
            self.world.check_readable(self.name)
            known = self.world.pools.get(self.name, {})
            mine = {pool for pool, members in known.items() if self._holds_ours(members.values())}
            return tuple(self._fact(pool, known.get(pool, {})) for pool in sorted(mine | set(pools)))

    def _holds_ours(self, members: Iterable[MemoryMember]) -> bool:
        return any(member.owner == self._instance for member in members)

    def _fact(self, pool: str, members: dict[Endpoint, MemoryMember]) -> PoolFact:
        facts = (
            MemberFact(
                endpoint,
                member.weight,
                member.owner == self._instance,
                member.name,
                member.in_flight,
                member.operational,
                member.writer,
            )
            for endpoint, member in sorted(members.items())
        )
        balancer = self._balancer()
        return PoolFact(pool, tuple(facts), balancer.epoch, balancer.weights)

    def _balancer(self) -> MemoryBalancer:
        return self.world.balancers.setdefault(self.name, MemoryBalancer())

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Do the actions, with no other writer between them; see the actions for what repeating means."""
        with self.world.lock:
            return one_by_one(actions, self._perform, steady=self.world.steady)

    def _perform(self, action: EndpointAction) -> None:
        pool = self.world.pools.setdefault(self.name, {}).setdefault(action.pool, {})
        member = pool.get(action.endpoint)
        if member is not None and member.owner != self._instance:
            owner = f"belongs to instance {member.owner}" if member.owner else "belongs to no instance"
            raise Foreign(object_of(action), owner, "remove it there, or use another pool")
        if isinstance(action, SetWeight):
            self._set_weight(pool, member, action)
            return
        if member is None:
            return
        if member.weight > 0:
            raise Conflict(object_of(action), f"still has weight {member.weight}", "set its weight to 0 first")
        if isinstance(action, CutSessions):
            member.in_flight = 0
            return
        del pool[action.endpoint]

    def _set_weight(self, pool: dict[Endpoint, MemoryMember], member: MemoryMember | None, action: SetWeight) -> None:
        if action.weight < 0:
            raise Rejected(object_of(action), f"weight {action.weight} is below 0", "use 0 or more")
        if self._balancer().weights is Weights.ON_OFF and action.weight not in (0, ON_WEIGHT):
            cause = f"weight {action.weight}: this pool allows only 0 and {ON_WEIGHT}"
            raise Rejected(object_of(action), cause, "use one of those")
        current = None if member is None else member.weight
        if current not in (action.weight, action.before):
            kind = Gone if current is None else Conflict
            raise kind(
                object_of(action), f"the plan saw weight {action.before}, now it is {current}", "retried automatically"
            )
        pool[action.endpoint] = MemoryMember(
            action.weight,
            action.name,
            self._instance,
            *((member.in_flight, member.operational, member.writer) if member is not None else ()),
        )

    def restart(self) -> None:
        """For tests: another process takes over, with all weights and without knowing the requests in flight."""
        with self.world.lock:
            self._balancer().epoch = str(int(self._balancer().epoch) + 1)
            for members in self.world.pools.get(self.name, {}).values():
                for member in members.values():
                    member.in_flight = None

    def plant(self, pool: str, endpoint: Endpoint, weight: int, owner: str = "") -> None:
        """For tests: a member that another writer added."""
        with self.world.lock:
            members = self.world.pools.setdefault(self.name, {}).setdefault(pool, {})
            members[endpoint] = MemoryMember(weight, "", owner)

    def close(self) -> None:
        """Nothing to close: the world stays."""


class MemoryDNS:
    """Zones in a `MemoryWorld`. A zone without a write is empty, with serial 0.

    It has all capabilities, so that plans for any provider can be tried; a test can give it those of another provider.
    """

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = MemorySettings
    capabilities = DNSCapabilities(
        weight=(0, MAX_WEIGHT), geo=frozenset(GeoKind), alias=Alias.ANY, atomic=Atomic.ACTION, write=Write.COMPARED
    )

    def __init__(
        self,
        name: str,
        settings: BaseModel,
        context: Context,
        world: MemoryWorld | None = None,
        capabilities: DNSCapabilities | None = None,
    ) -> None:
        del settings
        self.name = name
        self.capabilities = capabilities or self.capabilities
        self.world = world or MemoryWorld.of(context)

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones, completely."""
        with self.world.lock:
            self.world.check_readable(self.name, sorted(zones))
            known = self.world.zones.get(self.name, {})
            states = ((zone, known.get(zone) or MemoryZone(0, {})) for zone in sorted(set(zones)))
            return tuple(
                ZoneFact(zone, state.serial, dict(state.records), {}, self.capabilities) for zone, state in states
            )

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, all or nothing; a change increases the serial by one."""
        with self.world.lock:
            self.world.check_readable(self.name, [action.zone])
            zones = self.world.zones.setdefault(self.name, {})
            state = zones.get(action.zone) or MemoryZone(0, {})
            result = changed_sets(action.zone, state.records, action.changes, self.capabilities)
            if not result:
                return
            for key, after in result.items():
                if after is None:
                    del state.records[key]
                else:
                    state.records[key] = after
            state.serial += 1
            zones[action.zone] = state

    def plant(self, zone: str, key: RecordKey, record: RecordSet | None) -> None:
        """For tests: a record set that another writer wrote, or removed (None)."""
        with self.world.lock:
            state = self.world.zones.setdefault(self.name, {}).setdefault(zone, MemoryZone(0, {}))
            state.serial += 1
            if record is None:
                state.records.pop(key, None)
            else:
                state.records[key] = record

    def close(self) -> None:
        """Nothing to close: the world stays."""
