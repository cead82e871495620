"""A whole revision beside the active one: waiting, the switch, what follows it, and how it is taken back. In virtual time."""

from dataclasses import replace

import pytest

from laws.watchdog import Watchdog
from manifests.desired import SECOND
from manifests.rollouts import CanaryStep, Rollout, Strategy, Supersede
from providers.actions import CreateContainer, RemoveContainer, SetWeight, StartContainer, StopContainer
from providers.facts import ContainerState
from reconciler.core.ledger import Command
from reconciler.core.revision import Standing
from reconciler.core.verdict import Rule, Waiting
from sim.manifest import Shop, Spec, shop
from sim.world import World

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
    rollout = world.tape.last.ledger.rollouts["workload/web"]
    row = rollout.of(revision(image))
    return None if row is None else row.standing


def row(world: World, image: str):
    return world.tape.last.ledger.rollouts["workload/web"].of(revision(image))


def up(world: World, image: str) -> int:
    return sum(revision(image)[:8] in name for name in world.running())


@pytest.fixture
def world():
    made: list[World] = []

    def make(this: Shop) -> World:
        one = World(this)
        one.dog = Watchdog(one)
        made.append(one)
        one.run(90 * SECOND)
        return one

    yield make
    for one in made:
        one.close()


def test_the_first_revision_takes_the_traffic_as_soon_as_it_is_well(world):
    here = world(staged())
    assert of(here, "v1") == dict.fromkeys(of(here, "v1"), 100)
    assert len(of(here, "v1")) == 3
    assert standing(here, "v1") is Standing.ACTIVE
    assert not here.tape.last.waits


def test_a_new_revision_stands_by_without_traffic_and_takes_over_when_it_is_due(world):
    here = world(staged())
    before = here.published()
    here.push(staged("v2"))
    here.run(100 * SECOND)
    assert up(here, "v1") == up(here, "v2") == 3
    assert not any(of(here, "v2").values())
    assert all(of(here, "v1").values())
    assert here.published() == before
    assert standing(here, "v2") is Standing.SCHEDULED
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert standing(here, "v1") is Standing.SUPERSEDED
    assert all(of(here, "v2").values())
    assert len(of(here, "v2")) == 3
    assert not any(of(here, "v1").values())
    assert set(here.published()).isdisjoint(before)
    assert len(here.published()) == 3


def test_the_old_revision_drains_is_kept_stopped_and_is_removed_after_the_window(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(300 * SECOND)
    kept = [name for name in here.containers() if revision("v1")[:8] in name]
    assert len(kept) == 3
    assert up(here, "v1") == 0
    assert any(one.waiting is Waiting.ROLLBACK_WINDOW for one in here.tape.last.waits)
    assert here.tape.last.status.workloads[0].condition == "Ready"
    here.run(600 * SECOND)
    assert [name for name in here.containers() if revision("v1")[:8] in name] == []
    assert not here.tape.last.waits
    assert standing(here, "v1") is Standing.SUPERSEDED


def test_raises_are_read_back_before_anything_is_lowered(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(90 * SECOND)
    count = len(here.traffic.writes)
    here.run(120 * SECOND)
    writes = [one.action for one in here.traffic.writes[count:] if isinstance(one.action, SetWeight)]
    directions = ["up" if one.weight else "down" for one in writes]
    assert directions == ["up"] * 3 + ["down"] * 3
