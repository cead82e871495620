"""A balancer that checks its members by itself, as HAProxy does with `check inter 2s fall 3`: what it calls down gets nothing."""

from dataclasses import dataclass

from manifests.desired import SECOND
from providers.facts import Endpoint
from providers.testing.memory import MemoryMember, MemoryWorld
from sim.apps import Apps
from sim.manifest import POOLS

INTER, FALL, RISE = 2 * SECOND, 3, 2


@dataclass(slots=True)
class _Standing:
    """What it thinks of one member, and how many checks in a row said otherwise."""

    up: bool
    streak: int


class OwnChecks:
    """The checks of all pools.

    Args:
        trusting: a new member is up until its first failure; else it is down until it has passed.
    """

    def __init__(self, outside: MemoryWorld, apps: Apps, trusting: bool = True) -> None:
        self.outside, self.apps, self.trusting = outside, apps, trusting
        self.due = 0
        self.standings: dict[tuple[str, Endpoint], _Standing] = {}

    def pump(self, now: int) -> None:
        """Check every member, if it is time."""
        if now < self.due:
            return
        self.due = now + INTER
        for key, member in self.meet().items():
            standing = self.standings[key]
            if self._answers(key[1], now) == standing.up:
                standing.streak = 0
            else:
                standing.streak += 1
                if standing.streak >= (FALL if standing.up else RISE):
                    standing.up, standing.streak = not standing.up, 0
            member.operational = "up" if standing.up else "down"

    def meet(self) -> dict[tuple[str, Endpoint], MemoryMember]:
        """All members; new ones have their first word from here on."""
        there = {(pool, end): one for pool, of in self._pools().items() for end, one in of.items()}
        self.standings = {key: self.standings.get(key) or self._new() for key in there}
        for key, member in there.items():
            member.operational = "up" if self.standings[key].up else "down"
        return there

    def serving(self, pool: str, now: int) -> list[str]:
        """The containers that get requests of clients and answer them."""
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
