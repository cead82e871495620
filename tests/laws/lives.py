"""What tests about whole lives share: the names of the usual replicas, and letting a world come to rest."""

from manifests.values.desired import SECOND
from tests.sim.world import World

WEB = "shop-web-77e94671-{}"


def ready(world: World) -> World:
    """Let a world come to rest."""
    world.run(90 * SECOND)
    assert not world.tape.last.steps
    return world
