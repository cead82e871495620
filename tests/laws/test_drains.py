"""Drains and forces that would empty a pool or a name: they wait, unless the operator forced them."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.dns import Publish
from providers.facts import Endpoint
from providers.testing.memory import MemoryMember
from reconciler.core.health.overrides import endpoint_key
from reconciler.core.model.override import Force
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import POOLS, Shop, Spec
from tests.sim.world import World

TAKES = pytest.mark.parametrize(("verb", "value"), [("drain", ""), ("force", "down")])


def shop(**fields) -> Shop:
    return Shop((Spec(**fields),), look_pools=SECOND)


def held(world: World) -> dict[str, str]:
    """Object -> the message of its hold, of drains and forces that wait."""
    return {
        hold.object: hold.message
        for hold in world.tape.last.holds
        if hold.action.partition(" ")[0] in {"drain", "force"}
    }


def carrying(world: World, pool: str = "web") -> set[str]:
    return {name for name, weight in world.weights(pool).items() if weight}


def guarded(world: World) -> World:
    """Fail a test in which no member carries weight after any write."""
    started = set()

    def check(action: object) -> None:
        if carrying(world):
            started.add(True)
        assert carrying(world) or not started

    world.checks.append(check)
    return world


@TAKES
@pytest.mark.parametrize("publish", [None, Publish.ENDPOINTS, Publish.BALANCER])
def test_the_last_endpoint_stays_until_the_operator_forces_it(verb, value, publish, worlds):
    world = guarded(ready(worlds(shop(replicas=1, publish=publish))))
    world.memory.say(verb, "workload/web/0", value=value)
    world.run(30 * SECOND)
    assert carrying(world) == {WEB.format(0)}
    assert "no other endpoint of pool web of edge is ready and carries weight" in held(world)["workload/web/0"]
    (hold,) = [hold for hold in world.tape.last.holds if hold.object == "workload/web/0"]
    assert "--force" in hold.next_step
    assert "reconcile release workload/web/0" in hold.next_step
    world.kill()
    world.run(30 * SECOND)
    assert carrying(world) == {WEB.format(0)}
    world.checks.clear()
    world.memory.say(verb, "workload/web/0", value=value, forced=True)
    world.run(10 * SECOND)
    assert not carrying(world)


@TAKES
def test_drains_of_all_replicas_at_once_leave_one_that_serves(verb, value, worlds):
    world = guarded(ready(worlds(shop(replicas=3))))
    for ordinal in range(3):
        world.memory.say(verb, f"workload/web/{ordinal}", value=value)
    world.run(10 * SECOND)
    assert carrying(world) == {WEB.format(2)}
    assert set(held(world)) == {"workload/web/2"}
    world.run(120 * SECOND)
    assert carrying(world) == {WEB.format(2)}


def test_drains_of_endpoints_leave_one_that_serves_too(worlds):
    world = guarded(ready(worlds(shop(replicas=3))))
    members = list(world.outside.pools[POOLS]["web"])
    for endpoint in members:
        world.memory.say("drain", endpoint_key(POOLS, "web", endpoint))
    world.run(10 * SECOND)
    assert len(carrying(world)) == 1
    assert len(held(world)) == 1


def test_a_drain_that_waits_begins_when_another_endpoint_serves(worlds):
    world = guarded(ready(worlds(shop(replicas=2))))
    world.memory.say("drain", "workload/web/1")
    world.run(5 * SECOND)
    world.memory.say("drain", "workload/web/0")
    world.run(20 * SECOND)
    assert carrying(world) == {WEB.format(0)}
    world.memory.say("release", "workload/web/1")
    world.run(20 * SECOND)
    assert carrying(world) == {WEB.format(1)}
    assert not held(world)


def test_a_drain_that_waits_does_not_keep_a_restarted_endpoint_out(worlds):
    world = ready(worlds(shop(replicas=1)))
    world.memory.say("drain", "workload/web/0")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    assert carrying(world) == {WEB.format(0)}


def test_a_drain_that_waits_follows_its_replica_through_a_rollout(worlds):
    world = guarded(ready(worlds(shop(replicas=1))))
    (old,) = carrying(world)
    world.memory.say("drain", "workload/web/0")
    world.push(shop(replicas=1, image="v2"))
    world.run(300 * SECOND)
    (new,) = carrying(world)
    assert new != old
    assert world.running() == [new]


def test_a_drain_in_effect_stays_when_the_others_fail(worlds):
    world = ready(worlds(shop(replicas=2)))
    world.memory.say("drain", "workload/web/0")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(1))
    world.run(SECOND)
    assert not world.weights().get(WEB.format(0))
    world.memory.say("drain", "workload/web/0", until_wall=world.clock.now().wall + 600 * SECOND)
    world.run(SECOND)
    assert not world.weights().get(WEB.format(0)), "a new command for the same replica does not end its drain"


def test_every_pool_of_a_replica_keeps_an_endpoint(worlds):
    world = guarded(ready(worlds(shop(replicas=2, pools=("web", "other")))))
    first = world.containers()[WEB.format(0)].address
    other = next(endpoint for endpoint in world.outside.pools[POOLS]["other"] if endpoint.address == first)
    world.memory.say("drain", endpoint_key(POOLS, "other", other))
    world.run(5 * SECOND)
    world.memory.say("drain", "workload/web/1")
    world.run(20 * SECOND)
    assert len(carrying(world)) == 2
    (message,) = held(world).values()
    assert "pool other" in message
    assert "pool web" not in message


def test_a_pool_that_cannot_be_read_holds_a_drain(worlds):
    world = ready(worlds(shop(replicas=2)))
    world.outside.break_reads(POOLS)
    world.run(60 * SECOND)
    world.memory.say("drain", "workload/web/0")
    world.run(20 * SECOND)
    assert "pool web of edge cannot be read" in held(world)["workload/web/0"]


def test_a_workload_without_a_service_is_drained_without_a_question(worlds):
    plain = shop(replicas=1, publish=None)

    class Plain(Shop):
        def desired(self):
            return replace(Shop.desired(self), services=(), services_of={}, policies=())

    world = worlds(Plain(plain.specs, look_pools=SECOND))
    world.run(30 * SECOND)
    world.memory.say("drain", "workload/web/0")
    world.run(5 * SECOND)
    assert not held(world)
    assert world.memory.ledger().overrides["workload/web/0"].waits is False


def test_members_of_other_owners_serve_in_the_pool_as_well(worlds):
    world = ready(worlds(shop(replicas=1, publish=None)))
    world.outside.pools[POOLS]["web"][Endpoint("192.0.2.7", 80)] = MemoryMember(50, "static", "")
    world.run(3 * SECOND)
    world.checks.clear()
    world.memory.say("drain", "workload/web/0")
    world.run(5 * SECOND)
    assert not world.weights()[WEB.format(0)]


def test_overrides_of_an_older_ledger_stay_in_effect(worlds):
    world = ready(worlds(shop(replicas=1)))
    world.checks.clear()
    world.memory.say("drain", "workload/web/0", forced=True)
    world.run(10 * SECOND)
    world.kill()
    for key, text in list(world.memory.rows.items()):
        if key[0] == "overrides":
            assert text.endswith(", true, false]")
            world.memory.rows[key] = text.removesuffix(", true, false]") + "]"
    world.run(30 * SECOND)
    override = world.memory.ledger().overrides["workload/web/0"]
    assert (override.force, override.waits) == (Force.DRAIN, False)
    assert not carrying(world)


def test_a_kill_at_any_point_of_several_drains_empties_no_pool(worlds):
    for point in range(12):
        world = guarded(ready(worlds(shop(replicas=3))))
        for ordinal in range(3):
            world.memory.say("drain", f"workload/web/{ordinal}")
        world.kill_in, world.cut = point, point % 2 == 1
        world.run(20 * SECOND)
        assert len(carrying(world)) == 1
