"""Shared by the laws over simulated worlds: the names of the usual replicas, and a helper that lets a world converge."""

from manifests.values.desired import SECOND
from tests.sim.world import World

WEB = "shop-web-77e94671-{}"


def ready(world: World) -> World:
    """Let a world converge."""
    world.run(90 * SECOND)
    assert not world.tape.last.steps
    return world
