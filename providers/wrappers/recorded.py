"""Providers that answer from facts that were recorded earlier: a plan without access to any server. Made by `wire.py`.

What was not recorded raises, so that it is Unknown and never absent. Nothing can be performed, and no settings are read: a tree may name
servers, sockets and programs of its author's choice, and none of them is reached.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import ChangeRecords, EndpointAction, RuntimeAction
from providers.capabilities import PLAIN, DNSCapabilities
from providers.errors import Unreachable
from providers.facts import ContainerFact, PoolFact, ZoneFact
from providers.spi import ExecTarget, Performed, Provider

CAUSE = "the recorded observation does not have it"
NEXT_STEP = "plan on the host, or take the snapshot again once the host uses it"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was observed of all providers, in the time of the instance.

    Attributes:
        runtimes: the containers of each node. pools: by provider and pool. zones: by provider and zone.
        unknown: why a node, `provider/pool` or `provider/zone` could not be read.
    """

    runtimes: Mapping[str, tuple[ContainerFact, ...]] = field(default_factory=dict)
    pools: Mapping[tuple[str, str], PoolFact] = field(default_factory=dict)
    zones: Mapping[tuple[str, str], ZoneFact] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


class _Recorded:
    """What the three roles share."""

    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, name: str, recorded: Recorded) -> None:
        self.name, self._recorded = name, recorded

    def _missing(self, place: str) -> NoReturn:
        cause = self._recorded.unknown.get(place, CAUSE)
        raise Unreachable(f"provider {self.name}", cause, NEXT_STEP)

    def _refuse(self) -> NoReturn:
        raise Unreachable(f"provider {self.name}", "it is a recorded observation", "act on the host")

    def close(self) -> None:
        """Nothing to close."""


class RecordedRuntime(_Recorded):
    """A node as it was observed."""

    role: ClassVar[Role] = Role.RUNTIME

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """The containers that were recorded. Raises Unreachable when there was no look."""
        facts = self._recorded.runtimes.get(self.name)
        if facts is None:
            self._missing(self.name)
        return facts if names is None else tuple(fact for fact in facts if fact.name in names or fact.id in names)

    def perform(self, action: RuntimeAction) -> None:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()

    def logs(self, container: str, lines: int, until: int = 0) -> tuple[str, ...]:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()


class RecordedEndpoints(_Recorded):
    """A balancer as it was observed. A pool that no manifest in force named is not known."""

    role: ClassVar[Role] = Role.ENDPOINTS

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The pools that were recorded. One that was not is returned as unknown, so that the others count."""
        known = {pool: fact for (name, pool), fact in self._recorded.pools.items() if name == self.name}
        reasons = {
            pool: self._recorded.unknown.get(f"{self.name}/{pool}", CAUSE) for pool in pools if pool not in known
        }
        if reasons and not known:
            self._missing(f"{self.name}/{min(reasons)}")
        return (*known.values(), *(PoolFact(pool, unknown=reason) for pool, reason in sorted(reasons.items())))

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()


class RecordedDNS(_Recorded):
    """A DNS server as it was observed."""

    role: ClassVar[Role] = Role.DNS
    capabilities: DNSCapabilities = PLAIN

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The zones that were recorded. Raises Unreachable when one was not."""
        found = []
        for zone in sorted(zones):
            fact = self._recorded.zones.get((self.name, zone))
            if fact is None:
                self._missing(f"{self.name}/{zone}")
            found.append(fact)
        return tuple(found)

    def perform(self, action: ChangeRecords) -> None:  # noqa: ARG002
        """Raises Unreachable."""
        self._refuse()


def recorded(role: Role, name: str, facts: Recorded) -> Provider:
    """A provider of this role that answers from recorded facts."""
    if role is Role.RUNTIME:
        return RecordedRuntime(name, facts)
    return RecordedEndpoints(name, facts) if role is Role.ENDPOINTS else RecordedDNS(name, facts)
