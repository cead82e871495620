"""The weights that one decision finds for all pools: what `traffic/pools` and `traffic/pool` fill and later stages read.

Read by `disruptions`, `in_rotation`, `orphans`, `changes`, `dns/targets`, `dns/policies` and `actions/steps`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from providers.facts import Endpoint
from reconciler.core.exits.inflight_requests import NO_POOLS, InflightRequests
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import Instant
from reconciler.core.model.reasons import Act, HeldAction, Hold, Reason, Wait
from reconciler.core.model.weight_memory import Cut, Ready, Weighed


class MemberChange(NamedTuple):
    """A member that should have weight `after` (None = removed) instead of `before` (None = not in the pool)."""

    object: str
    provider: str
    pool: str
    endpoint: Endpoint
    container: str
    before: int | None
    after: int | None
    reason: Reason

    @property
    def held(self) -> HeldAction:
        """This change as what a hold holds."""
        return HeldAction(Act.WEIGHT, (), f"{self.provider}/{self.pool}", (self.endpoint,))


class DeadMember(NamedTuple):
    """A member with weight where no container of ours runs any more.

    object: its service or pool. container, revision: the id of the stopped container whose member it is, and its (workload, hash);
    empty where that container is gone.
    """

    object: str
    provider: str
    pool: str
    endpoint: Endpoint
    container: str = ""
    revision: tuple[str, str] = ("", "")


@dataclass(slots=True)
class ContainerTraffic:
    """What pools show of one container.

    `carrying`: it was read back with a weight above 0. `pooled`: it is in a pool, and was ready in its generation. `hidden`: an
    unreadable pool that may contain it. `contested`: the pool in which another writer sets its weight. `lacking`: services with a
    pool that gives it no weight. `requests`: its requests in flight, once it is leaving service.
    """

    carrying: bool = False
    pooled: bool = False
    hidden: tuple[str, str] | None = None
    contested: str = ""
    lacking: tuple[str, ...] = ()
    requests: InflightRequests = NO_POOLS


NO_TRAFFIC = ContainerTraffic()
"""The traffic of a container that is in no pool. Never changed."""


@dataclass(slots=True)
class Weights:
    """The answer for all pools. Filled while this stage runs, read-only after it.

    containers: what pools show of each container, by its id, because a name may exist on two nodes while a replica moves.
    endpoints: the endpoints of every service by its key, with or without pools. strays: members of pools or services that no
    manifest names any more; removing them is pruning. dead: members with weight where no container of ours runs any more, by address.
    suspect: ids of containers whose failed liveness is doubted. sound: ids of containers, suspect or not, of which only the
    liveness probe fails. ready, weighed, cuts, panics: for the ledger.
    """

    containers: dict[str, ContainerTraffic] = field(default_factory=dict)
    endpoints: dict[str, list[tuple[Endpoint, Belief]]] = field(default_factory=dict)
    changes: list[MemberChange] = field(default_factory=list)
    strays: list[MemberChange] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    dead: dict[str, list[DeadMember]] = field(default_factory=dict)
    suspect: frozenset[str] = frozenset()
    sound: frozenset[str] = frozenset()
    ready: dict[str, Ready] = field(default_factory=dict)
    weighed: dict[str, tuple[Weighed, ...]] = field(default_factory=dict)
    cuts: dict[str, tuple[Cut, ...]] = field(default_factory=dict)
    panics: dict[str, Instant] = field(default_factory=dict)

    def of(self, container: str) -> ContainerTraffic:
        """The record of one container, to fill."""
        known = self.containers.get(container)
        if known is None:
            known = self.containers[container] = ContainerTraffic()
        return known

    def shown(self, container: str) -> ContainerTraffic:
        """What pools show of one container."""
        return self.containers.get(container, NO_TRAFFIC)

    def hide(self, container: str, pool: tuple[str, str]) -> None:
        """Note that a container may be in a pool that cannot be read."""
        traffic = self.of(container)
        traffic.hidden = traffic.hidden or pool
