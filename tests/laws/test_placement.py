"""Laws of placement: a replica keeps its node, and two containers never run with one exclusive volume."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from providers.actions import Action, CreateContainer, StartContainer
from providers.facts import ContainerState
from reconciler.core.forecast import forecast
from reconciler.core.model.reasons import Rule
from tests.laws.examples import examples
from tests.laws.helpers import ready, stops
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

FOUR = ("node-a", "node-b", "node-c", "node-d")
DB = Spec(name="db", replicas=1, nodes=("node-a",), volume="data", pools=("db",))


def places(world: World) -> dict[int, str]:
    """The node of each ordinal, from the containers that run."""
    return {
        item.mark.ordinal: node
        for node, of_node in sorted(world.outside.nodes.items())
        for item in of_node.values()
        if item.mark is not None and item.state is ContainerState.RUNNING
    }


def watch_pool(world: World, pool: str = "web") -> list[int]:
    """How many members have weight after each write."""
    counts: list[int] = []
    world.checks.append(lambda _: counts.append(sum(weight > 0 for weight in world.weights(pool).values())))
    return counts


def watch_up(world: World) -> list[int]:
    """How many containers run after each write."""
    counts: list[int] = []
    world.checks.append(
        lambda _: counts.append(sum(item.up for of_node in world.outside.nodes.values() for item in of_node.values()))
    )
    return counts


def watch_volume(world: World) -> list[int]:
    """How many containers of db run after each write of the program. Two are never allowed."""
    counts: list[int] = [0]

    def check(_: Action) -> None:
        running = [
            item.name
            for of_node in world.outside.nodes.values()
            for item in of_node.values()
            if item.mark is not None and item.mark.workload == "db" and item.up
        ]
        counts.append(len(running))
        assert len(running) <= 1, running

    world.checks.append(check)
    return counts


def moved(world: World, **fields: object) -> None:
    """A new revision of the manifests with other fields of the first workload."""
    first, *others = world.shop.specs
    world.push(replace(world.shop, specs=(replace(first, **fields), *others)))


# --- a replica keeps its node -------------------------------------------------------------------------------------------


def test_a_fourth_node_moves_nothing(worlds):
    world = ready(worlds(shop(replicas=12, nodes=FOUR[:3]), nodes=FOUR))
    before, writes = places(world), len(world.traffic.writes)
    assert Counter(before.values()) == dict.fromkeys(FOUR[:3], 4)
    moved(world, nodes=FOUR)
    world.run(600 * SECOND)
    assert places(world) == before
    assert len(world.traffic.writes) == writes


def test_new_replicas_go_to_the_node_with_the_fewest(worlds):
    world = ready(worlds(shop(replicas=6, nodes=FOUR[:3]), nodes=FOUR))
    before = places(world)
    moved(world, nodes=FOUR, replicas=9)
    world.run(120 * SECOND)
    after = places(world)
    assert {ordinal: after[ordinal] for ordinal in before} == before
    assert Counter(after.values()) == {"node-a": 3, "node-b": 2, "node-c": 2, "node-d": 2}


def test_a_node_that_is_taken_off_moves_only_its_replicas(worlds):
    world = ready(worlds(shop(replicas=6, nodes=FOUR[:3]), nodes=FOUR))
    before, pool, up = places(world), watch_pool(world), watch_up(world)
    moved(world, nodes=("node-a", "node-c", "node-d"))
    world.run(900 * SECOND)
    after = places(world)
    assert {o: node for o, node in after.items() if before[o] != "node-b"} == {
        o: node for o, node in before.items() if node != "node-b"
    }
    assert [after[o] for o, node in sorted(before.items()) if node == "node-b"] == ["node-d", "node-d"]
    assert len(stops(world)) == 2
    assert min(up) >= 6 - world.shop.specs[0].max_unavailable
    assert min(pool) >= 6  # the new one gets traffic before the old one leaves
    assert set(world.outside.nodes["node-b"]) == set()


def test_a_single_replica_moves_without_an_empty_pool(worlds):
    world = ready(worlds(shop(replicas=1, nodes=("node-a",)), nodes=FOUR))
    pool = watch_pool(world)
    moved(world, nodes=("node-b",))
    world.run(600 * SECOND)
    assert places(world) == {0: "node-b"}
    assert min(pool) >= 1


def test_a_lost_ledger_keeps_the_places(worlds):
    world = ready(worlds(shop(replicas=3, nodes=FOUR[:1]), nodes=FOUR))
    moved(world, nodes=FOUR[:3], replicas=5)
    world.run(120 * SECOND)
    before, writes = places(world), len(world.traffic.writes)
    assert before == {0: "node-a", 1: "node-a", 2: "node-a", 3: "node-b", 4: "node-c"}
    world.kill()
    world.memory.rows.clear()
    world.run(900 * SECOND)
    assert places(world) == before
    assert len(world.traffic.writes) == writes


def test_a_lost_ledger_and_a_silent_node_place_nothing_twice(worlds):
    world = ready(worlds(shop(replicas=4, nodes=FOUR[:2]), nodes=FOUR[:2]))
    before, writes = places(world), len(world.traffic.writes)
    world.kill()
    world.memory.rows.clear()
    world.outside.break_reads("node-b")
    world.run(900 * SECOND)
    held = [hold for hold in world.tape.last.holds if hold.action.startswith("place ")]
    assert [hold.object for hold in held] == ["workload/web/1", "workload/web/3"]
    assert all("node-b" in hold.message and hold.next_step for hold in held)
    world.outside.mend_reads("node-b")
    world.run(300 * SECOND)
    assert places(world) == before
    assert len(world.traffic.writes) == writes


def test_a_silent_node_is_not_chosen_and_keeps_its_replicas(worlds):
    world = ready(worlds(shop(replicas=2, nodes=FOUR[:2]), nodes=FOUR))
    world.outside.break_reads("node-b")
    world.run(60 * SECOND)
    moved(world, nodes=FOUR[:3], replicas=4)
    world.run(600 * SECOND)
    assert world.memory.ledger().placed == {
        "workload/web/0": "node-a",
        "workload/web/1": "node-b",
        "workload/web/2": "node-c",
        "workload/web/3": "node-a",
    }
    world.outside.mend_reads("node-b")
    world.run(300 * SECOND)
    assert places(world) == {0: "node-a", 1: "node-b", 2: "node-c", 3: "node-a"}


def test_a_new_workload_waits_while_all_its_nodes_are_silent(worlds):
    world = ready(worlds(shop(replicas=1, nodes=("node-a",)), nodes=FOUR))
    for node in FOUR[1:3]:
        world.outside.break_reads(node)
    world.run(60 * SECOND)
    api = Spec(name="api", replicas=2, nodes=FOUR[1:3], pools=(), publish=None)
    world.push(replace(world.shop, specs=(*world.shop.specs, api)))
    world.run(120 * SECOND)
    held = {hold.object: hold for hold in world.tape.last.holds if hold.action.startswith("place ")}
    assert sorted(held) == ["workload/api/0", "workload/api/1"]
    assert "no node of spec.nodes can be read: node-b, node-c" in held["workload/api/0"].message
    world.outside.mend_reads("node-c")
    world.run(120 * SECOND)
    assert sorted(world.outside.nodes["node-c"]) == [f"shop-api-{api.revision[:8]}-{n}" for n in range(2)]


def test_the_forecast_places_as_apply_does(worlds):
    specs = (Spec(replicas=3, nodes=FOUR[:3]), Spec(name="api", replicas=2, nodes=FOUR, pools=("api",), cpu=500))
    world = worlds(Shop(specs), nodes=FOUR)
    decision, observed, now = world.observe_once()
    assert decision.steps
    plan = forecast(world.shop.desired(), observed, now)
    planned = {s.step.action.name: s.step.action.node for s in plan.steps if isinstance(s.step.action, CreateContainer)}
    world.run(120 * SECOND)
    real = {name: node for node, of_node in world.outside.nodes.items() for name in of_node}
    assert planned == real
    assert len(real) == 5


@examples(20)
@given(st.integers(0, 2**32))
def test_nothing_moves_without_need(seed):
    """Nodes come and go, replicas are added and removed, the program is killed, its ledger is lost."""
    chance = random.Random(seed)
    world = World(shop(replicas=3, nodes=FOUR[:2]), nodes=FOUR)
    world.dog = Watchdog(world)
    try:
        world.run(90 * SECOND)
        for _ in range(6):
            before, spec = places(world), world.shop.specs[0]
            assert sorted(before) == list(range(spec.replicas))
            nodes = tuple(chance.sample(FOUR, chance.randint(1, 4)))
            replicas = chance.randint(1, 6)
            match chance.randrange(4):
                case 0:
                    world.kill_in = chance.randint(0, 30)
                case 1:
                    world.restart()
                case 2:
                    world.kill()
                    world.memory.rows.clear()
                case _:
                    pass
            moved(world, nodes=nodes, replicas=replicas)
            world.run(900 * SECOND)
            after = places(world)
            for ordinal, node in before.items():
                if ordinal < replicas and node in nodes:
                    assert after[ordinal] == node, (ordinal, before, after, nodes)
            assert set(after.values()) <= set(nodes)
            counts = Counter(after.values())
            new = [node for ordinal, node in after.items() if before.get(ordinal) != node]
            if new:  # no node that got one could have been spared for an emptier one
                assert max(counts[node] for node in new) <= min(counts[node] for node in nodes) + 1
    finally:
        world.close()


# --- exclusive volumes ----------------------------------------------------------------------------------------------------


def test_a_replica_with_an_exclusive_volume_stops_before_it_moves(worlds):
    world = ready(worlds(Shop((DB,)), nodes=FOUR[:2]))
    running = watch_volume(world)
    moved(world, nodes=("node-b",))
    world.run(600 * SECOND)
    assert places(world) == {0: "node-b"}
    assert 0 in running[1:]
    assert not world.outside.nodes["node-a"]


def test_a_refused_create_leaves_the_old_replica_running(worlds):
    world = ready(worlds(Shop((DB,)), nodes=FOUR[:2]))
    watch_volume(world)
    world.outside.break_reads("node-b")
    world.run(60 * SECOND)
    moved(world, nodes=("node-b",))
    world.run(600 * SECOND)
    assert places(world) == {0: "node-a"}
    world.outside.mend_reads("node-b")
    world.run(600 * SECOND)
    assert places(world) == {0: "node-b"}


def test_nothing_starts_while_the_old_node_is_silent(worlds):
    world = ready(worlds(Shop((DB,)), nodes=FOUR[:2]))
    watch_volume(world)
    world.outside.break_reads("node-a")
    world.run(60 * SECOND)
    moved(world, nodes=("node-b",))
    for _ in range(3):
        world.run(900 * SECOND)
        world.kill()
    world.run(60 * SECOND)
    assert not world.outside.nodes["node-b"]
    (hold,) = [hold for hold in world.tape.last.holds if hold.rule is Rule.VOLUME_IN_USE]
    assert "node-a" in hold.message
    assert "data" in hold.message
    assert "make provider/node-a reachable" in hold.next_step
    world.outside.mend_reads("node-a")
    world.run(600 * SECOND)
    assert places(world) == {0: "node-b"}


@pytest.mark.parametrize("nodes", [("node-b",), ("node-a", "node-b")])
def test_a_lost_ledger_starts_no_second_one_while_a_node_is_silent(worlds, nodes):
    world = ready(worlds(Shop((DB,)), nodes=FOUR[:2]))
    watch_volume(world)
    world.kill()
    world.memory.rows.clear()
    world.outside.break_reads("node-a")
    moved(world, nodes=nodes)
    world.run(1800 * SECOND)
    assert places(world) == {0: "node-a"}
    assert world.running() == [f"shop-db-{DB.revision[:8]}-0"]
    world.outside.mend_reads("node-a")
    world.run(600 * SECOND)
    assert places(world) == {0: nodes[0] if len(nodes) == 1 else "node-a"}


def test_a_renamed_workload_waits_for_the_old_containers(worlds):
    world = ready(worlds(Shop((replace(DB, publish=None),)), nodes=FOUR[:2]))
    other = replace(DB, name="database", publish=None, pools=("database",))
    world.push(replace(world.shop, specs=(other,)))
    world.run(600 * SECOND)
    assert world.running() == [f"shop-db-{DB.revision[:8]}-0"]
    (hold,) = [hold for hold in world.tape.last.holds if hold.rule is Rule.VOLUME_IN_USE]
    assert hold.object == "workload/database/0"
    assert "--prune" in hold.next_step
    world.push(replace(world.shop, prune=True))
    world.run(900 * SECOND)
    assert world.running() == [f"shop-database-{other.revision[:8]}-0"]


def test_of_two_that_run_the_one_that_is_not_at_its_place_stops_at_once(worlds):
    world = ready(worlds(Shop((DB,)), nodes=FOUR[:2]))
    (created,) = [write.action for write in world.traffic.writes if isinstance(write.action, CreateContainer)]
    moved(world, nodes=("node-b",))
    world.run(600 * SECOND)
    assert places(world) == {0: "node-b"}
    gone, name = len(stops(world)), created.name
    here = world.outside.nodes["node-b"][name].generation
    # What no rule of the program does: the old container is back and runs, as from a backup of the host.
    back = world.runtimes["node-a"]
    back.perform(created)
    back.perform(StartContainer("node-a", name, world.outside.nodes["node-a"][name].generation))
    starts = world.traffic.count(StartContainer)
    world.run(17 * SECOND)
    assert len(stops(world)) == gone + 1
    assert world.outside.nodes["node-b"][name].generation == here
    assert places(world) == {0: "node-b"}
    world.run(600 * SECOND)
    assert world.outside.nodes["node-a"] == {}
    assert world.traffic.count(StartContainer) == starts


@examples(20)
@given(st.integers(0, 2**32))
def test_an_exclusive_volume_is_never_used_twice(seed):
    """Nodes come, go, fall silent and return; the program is killed anywhere; its ledger is lost; containers crash and vanish."""
    chance = random.Random(seed)
    world = World(Shop((DB,)), nodes=FOUR[:3])
    world.dog = Watchdog(world)
    watch_volume(world)
    try:
        world.run(90 * SECOND)
        for _ in range(10):
            match chance.randrange(8):
                case 0:
                    world.kill_in = chance.randint(0, 20)
                case 1:
                    world.kill()
                    world.memory.rows.clear()
                case 2:
                    world.outside.break_reads(chance.choice(FOUR[:3]))
                case 3:
                    for node in FOUR[:3]:
                        world.outside.mend_reads(node)
                case 4:
                    moved(world, image=chance.choice(["v1", "v2"]))
                case 5:
                    for node in FOUR[:3]:
                        for item in list(world.outside.nodes.get(node, {}).values()):
                            if item.up and chance.random() < 0.7:
                                world.runtimes[node].exit(item.name)
                case 6:
                    world.reboot_host()
                case _:
                    moved(world, nodes=tuple(chance.sample(FOUR[:3], chance.randint(1, 3))))
            world.run(chance.choice([1, 7, 20, 61, 400]) * SECOND)
        for node in FOUR[:3]:
            world.outside.mend_reads(node)
        world.kill_in = -1
        world.run(1800 * SECOND)
        assert len(places(world)) == 1, (places(world), world.tape.last.holds, world.tape.last.waits)
    finally:
        world.close()
