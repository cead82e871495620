"""A balancer with its own checks, like HAProxy's `check inter 2s fall 3`: a member that is down gets no requests."""

from dataclasses import dataclass

from manifests.values.desired import SECOND
from providers.facts import Endpoint
from providers.testing.memory import MemoryMember, MemoryWorld
from tests.sim.apps import Apps
from tests.sim.manifest import POOLS

INTER, FALL, RISE = 2 * SECOND, 3, 2


@dataclass(slots=True)
class _Standing:
    """The state of one member, and the number of contrary checks in a row."""

    up: bool
    streak: int

    @property
    def operational(self) -> str:
        """The state as HAProxy reports it: `checking` when the last check disagrees with `up`."""
        return "down" if not self.up else "checking" if self.streak else "up"


class OwnChecks:
    """The checks of all pools.

    Args:
        trusting: a new member is up until its first failure; otherwise it is down until it has passed.
        lag: ns by which checks get the answer of an application later than probes and clients.
    """

    def __init__(self, outside: MemoryWorld, apps: Apps, trusting: bool = True, lag: int = 0) -> None:
        self.outside, self.apps, self.trusting, self.lag = outside, apps, trusting, lag
        self.due = 0
        self.standings: dict[tuple[str, Endpoint], _Standing] = {}

    def pump(self, now: int) -> None:
        """Check every member if a check is due."""
        if now < self.due:
            return
        self.due = now + INTER
        for key, member in self.meet().items():
            standing = self.standings[key]
            if self._answers(key[1], now - self.lag) == standing.up:
                standing.streak = 0
            else:
                standing.streak += 1
                if standing.streak >= (FALL if standing.up else RISE):
                    standing.up, standing.streak = not standing.up, 0
            member.operational = standing.operational

    def meet(self) -> dict[tuple[str, Endpoint], MemoryMember]:
        """All members; new ones get their first state."""
        members = {(pool, end): member for pool, of in self._pools().items() for end, member in of.items()}
        self.standings = {key: self.standings.get(key) or self._new() for key in members}
        for key, member in members.items():
            member.operational = self.standings[key].operational
        return members

    def serving(self, pool: str, now: int) -> list[str]:
        """The containers that get requests and answer them."""
        members = self._pools().get(pool, {}).items()
        return [m.name for end, m in members if m.weight and m.operational != "down" and self._answers(end, now)]

    def _new(self) -> _Standing:
        return _Standing(self.trusting, FALL - 1 if self.trusting else 0)

    def _pools(self) -> dict[str, dict[Endpoint, MemoryMember]]:
        return self.outside.pools.get(POOLS, {})

    def _answers(self, endpoint: Endpoint, now: int) -> bool:
        for containers in self.outside.nodes.values():
            for item in containers.values():
                if item.address == endpoint.address and item.up:
                    delay = self.apps.delay(item.name)
                    return now - item.running_since >= delay and self.apps.healthy(item.name, item.generation)
        return False
