"""Shared by the laws over simulated worlds: names, limits that never hold, and what a world has stopped."""

from manifests.values.desired import SECOND, Backoff, Guard, MassChange
from manifests.values.limits import Rate, RestartLimits
from providers.actions import StopContainer
from providers.facts import ContainerState
from tests.sim.world import World

WEB = "shop-web-77e94671-{}"
"""The names of the usual replicas."""

MINUTE = 60 * SECOND
LOOSE = Guard(
    mass_change=MassChange(100, 50),
    restarts=RestartLimits(workload=Rate(600, 600), node=Rate(600, 600), total=Rate(600, 600), in_flight=50),
)
QUICK = Backoff(SECOND, 2 * SECOND, 600 * SECOND)


def ready(world: World) -> World:
    """Let a world converge."""
    world.run(90 * SECOND)
    assert not world.tape.last.steps
    return world


def stops(world: World) -> list[str]:
    """The containers that were stopped, in order."""
    return [
        write.action.name
        for write in world.traffic.writes
        if isinstance(write.action, StopContainer) and write.effective
    ]


def watch_down(world: World) -> list[int]:
    """The number of containers that are not running, after each write from now on."""
    counts = [0]
    world.checks.append(
        lambda _: counts.append(
            sum(1 for container in world.containers().values() if container.state is not ContainerState.RUNNING)
        )
    )
    return counts


def within(rate: Rate, instants: list[int]) -> None:
    """In every span at most the burst, and one more for each interval in it."""
    interval, ordered = 60 * SECOND // rate.per_minute, sorted(instants)
    for index, first in enumerate(ordered):
        for count, last in enumerate(ordered[index:], start=1):
            assert count <= rate.burst + (last - first) // interval, (count, (last - first) / SECOND)
