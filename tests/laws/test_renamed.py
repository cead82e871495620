"""Containers that an operator renames while the program runs, fails, is killed, or rolls out: one container per replica."""

import random
from collections import Counter
from contextlib import suppress

import pytest

from manifests.values.desired import SECOND
from providers.errors import Conflict
from tests.laws.helpers import MINUTE, WEB, ready, stops
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World


def replicas(world: World) -> Counter[tuple[str, int]]:
    """How many containers each replica has, by what their labels say."""
    marks = [item.mark or item.claim for item in world.containers().values()]
    return Counter((mark.workload, mark.ordinal) for mark in marks if mark is not None)


ONE_EACH = {("web", ordinal): 1 for ordinal in range(3)}


def test_a_rename_changes_nothing_but_the_name_in_status(worlds):
    world = ready(worlds(shop()))
    writes = len(world.traffic.writes)
    world.runtime.rename(WEB.format(1), "mine")
    world.run(2 * MINUTE)
    assert replicas(world) == ONE_EACH
    assert len(world.traffic.writes) == writes
    assert set(world.weights().values()) == {100}
    assert "mine" in world.memory.decision


def test_a_renamed_replica_is_healed_and_its_crash_is_repaired(worlds):
    world = ready(worlds(shop()))
    world.runtime.rename(WEB.format(1), "mine")
    world.apps.sick.add(world.generation("mine"))
    world.run(3 * MINUTE)
    assert stops(world) == ["mine"]
    world.runtime.exit("mine")
    world.run(3 * MINUTE)
    assert replicas(world) == ONE_EACH
    assert "mine" in world.running()
    assert {kept["container"] for _, kept in world.memory.evidence} == {"mine"}


def test_a_new_revision_replaces_renamed_replicas(worlds):
    world = ready(worlds(shop()))
    for ordinal in (0, 2):
        world.runtime.rename(WEB.format(ordinal), f"mine-{ordinal}")
    world.push(shop(image="v2"))
    world.run(20 * MINUTE)
    assert replicas(world) == ONE_EACH
    assert not {"mine-0", "mine-2"} & world.containers().keys()


def test_destroy_takes_renamed_replicas_along(worlds):
    world = ready(worlds(shop()))
    world.runtime.rename(WEB.format(1), "mine")
    world.run(30 * SECOND)
    world.push(Shop(world.shop.specs, destroy=True))
    world.run(10 * MINUTE)
    assert world.containers() == {}


def test_a_lost_ledger_and_a_rename_hold_until_it_is_renamed_back(worlds):
    world = ready(worlds(shop()))
    world.kill()
    world.memory.rows.clear()
    world.runtime.rename(WEB.format(1), "mine")
    world.run(10 * MINUTE)
    assert replicas(world) == ONE_EACH
    (hold,) = [hold for hold in world.tape.last.holds if hold.rule.value == "AdoptPending"]
    assert hold.next_step.startswith(f"if it is that replica, run: docker rename mine {WEB.format(1)}")
    world.runtime.rename("mine", WEB.format(1))
    world.run(10 * MINUTE)
    assert replicas(world) == ONE_EACH
    assert not [hold for hold in world.tape.last.holds if hold.rule.value == "AdoptPending"]
    assert set(world.weights().values()) == {100}


def test_a_renamed_copy_of_a_replica_stays_untouched(worlds):
    world = ready(worlds(shop()))
    labels = {"reconciler.instance": "shop", "reconciler.workload": "web", "reconciler.ordinal": "1"}
    labels |= {"reconciler.revision": Spec().revision, "reconciler.hash-version": "1"}
    world.runtime.plant("copy", labels)
    world.runtime.plant("image", labels, inherited=True)
    world.dog.replant()
    before = [world.generation(name) for name in ("copy", "image")]
    world.push(shop(replicas=2, image="v2"))
    world.run(20 * MINUTE)
    assert [world.generation(name) for name in ("copy", "image")] == before
    assert {"copy", "image"} <= set(world.running())


@pytest.mark.parametrize("seed", range(8))
def test_renames_and_kills_anywhere_never_make_a_second_container(worlds, seed):
    world = ready(worlds(shop()))
    dice = random.Random(seed)
    for step in range(10):
        name = dice.choice(sorted(world.containers()))
        mark = world.containers()[name].mark or world.containers()[name].claim
        back = WEB.format(mark.ordinal)
        with suppress(Conflict):  # it has its own name
            world.runtime.rename(name, dice.choice([f"mine-{step}", back]))
        match dice.randrange(3):
            case 0:
                world.runtime.exit(dice.choice(world.running()))
            case 1:
                world.apps.sick.add(world.generation(dice.choice(world.running())))
        world.kill_in = dice.randrange(1, 60)
        world.run(dice.randrange(1, 40) * SECOND)
        assert replicas(world) == ONE_EACH
    world.kill_in = -1
    world.run(20 * MINUTE)
    assert replicas(world) == ONE_EACH
    assert set(world.weights().values()) == {100}
