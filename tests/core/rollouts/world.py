"""Builders that tests of rollouts share: shops with a staged workload, and views of its revisions."""

from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.rollouts import Rollout, Strategy
from reconciler.core.model.revision import Standing
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

TIMES = Rollout(delay=120 * SECOND)


def staged(image: str = "v1", **fields) -> Shop:
    times = {name: fields.pop(name) for name in list(fields) if name in Rollout.__dataclass_fields__}
    fields.setdefault("strategy", Strategy.ACTIVATE)
    return shop(image=image, rollout=replace(TIMES, **times), **fields)


def revision(image: str) -> str:
    return Spec(image=image).revision


def of(world: World, image: str) -> dict[str, int]:
    """Weights of the containers of one image."""
    return {name: weight for name, weight in world.weights().items() if revision(image)[:8] in name}


def standing(world: World, image: str) -> Standing | None:
    revision_row = row(world, image)
    return None if revision_row is None else revision_row.standing


def row(world: World, image: str):
    return world.memory.ledger().rollouts["workload/web"].of(revision(image))


def up(world: World, image: str) -> int:
    return sum(revision(image)[:8] in name for name in world.running())


def names_of(image: str, replicas: int = 3) -> list[str]:
    return [f"shop-web-{revision(image)[:8]}-{ordinal}" for ordinal in range(replicas)]


def probed(world: World, image: str) -> int:
    """How many containers of an image are probed."""
    ids = {container.id for name, container in world.containers().items() if revision(image)[:8] in name}
    return len({generation.container_id for generation, _ in world.life.prober.running} & ids)
