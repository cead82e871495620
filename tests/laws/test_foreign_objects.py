"""Laws about full disks, broken sources, unreachable providers, foreign objects and foreign changes."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ContainerState, Endpoint, ExitCause, Mark, RecordKey, RecordSet, mark_labels
from reconciler.core.model.reasons import Rule
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import NAMES, NODE, POOLS, ZONE, Shop, Spec, shop


def test_a_broken_source_removes_nothing(worlds):
    world = ready(worlds(Shop((Spec(),), prune=True)))
    count = len(world.traffic.writes)
    world.source.broken = "web.yaml: is empty"
    world.run(600 * SECOND)
    assert len(world.traffic.writes) == count
    assert any("web.yaml" in text for _, text in world.tape.notes)


@pytest.mark.parametrize("provider", [NODE, POOLS, NAMES])
def test_an_unreachable_provider_removes_nothing_and_is_reported(provider, worlds):
    world = ready(worlds(Shop((Spec(),), prune=True)))
    count = len(world.traffic.writes)
    world.outside.break_reads(provider)
    world.run(300 * SECOND)
    assert len(world.traffic.writes) == count
    assert any(hold.object == f"provider/{provider}" for hold in world.tape.last.holds)
    world.outside.mend_reads(provider)
    world.run(60 * SECOND)
    assert not world.tape.last.holds


def test_a_zone_edited_by_hand_is_repaired_and_foreign_records_stay(worlds):
    world = ready(worlds(shop()))
    world.zones.plant(ZONE, RecordKey(f"web.{ZONE}", "A"), RecordSet(30, ("192.0.2.7",)))
    world.zones.plant(ZONE, RecordKey(f"mail.{ZONE}", "A"), RecordSet(60, ("192.0.2.25",)))
    world.dog.replant()
    world.run(60 * SECOND)
    assert len(world.published()) == 3
    assert "192.0.2.7" not in world.published()
    assert world.published(f"mail.{ZONE}") == ("192.0.2.25",)


def test_objects_without_a_valid_mark_are_never_changed(worlds):
    world = worlds(Shop((Spec(), Spec("kept", replicas=1, pools=("kept",))), prune=True))
    labels = mark_labels(Mark("shop", "web", 7, "0123456789abcdef"), 1)
    world.runtime.plant("committed-from-ours", labels)
    other = Mark("other", "web", 0, "0123456789abcdef")
    world.runtime.plant("other-web-01234567-0", mark_labels(other, 1))
    world.pools.plant("web", Endpoint("192.0.2.1", 80), 50, "other")
    world.pools.plant("web", Endpoint("192.0.2.2", 80), 50)
    world.zones.plant(ZONE, RecordKey(f"by-hand.{ZONE}", "A"), RecordSet(60, ("192.0.2.9",)))
    world.dog.replant()
    ready(world)
    world.push(Shop((Spec("kept", replicas=1, pools=("kept",)),), prune=True))
    world.run(900 * SECOND)
    assert [name for name in world.running() if "-kept-" not in name] == ["committed-from-ours", "other-web-01234567-0"]
    assert world.published() == ()


def test_a_foreign_container_with_the_name_holds_only_its_replica(worlds):
    world = worlds(shop())
    world.runtime.plant(WEB.format(1), {}, running=True)
    world.dog.replant()
    world.run(120 * SECOND)
    assert {hold.rule for hold in world.tape.last.holds} == {Rule.NAME_TAKEN}
    assert world.weights() == {WEB.format(0): 100, WEB.format(2): 100}


def test_a_replica_killed_between_two_looks_is_restarted_at_once(worlds):
    world = ready(worlds(shop()))
    world.runtime.kill(WEB.format(0))
    world.run(20 * SECOND)
    assert WEB.format(0) in world.running()
    assert not world.memory.ledger().attempts
    item = world.containers()[WEB.format(0)]
    assert (item.state, item.exit_cause) == (ContainerState.RUNNING, None)


def test_replicas_move_to_another_node(worlds):
    world = ready(worlds(shop(replicas=2), nodes=(NODE, "node-b")))
    world.push(shop(replicas=2, nodes=("node-b",)))
    world.run(300 * SECOND)
    assert list(world.outside.nodes[NODE]) == []
    assert list(world.outside.nodes["node-b"]) == [WEB.format(0), WEB.format(1)]
    assert world.weights() == {WEB.format(n): 100 for n in range(2)}


def test_an_orphan_keeps_serving_while_its_pool_is_unreachable(worlds):
    world = ready(worlds(Shop((Spec(), Spec("old", pools=("old",))), prune=True)))
    world.push(Shop((Spec(),), prune=True))
    world.outside.break_reads(POOLS)
    world.run(200 * SECOND)
    world.restart()
    world.run(600 * SECOND)
    assert len(world.running()) == 6
    world.outside.mend_reads(POOLS)
    world.run(300 * SECOND)
    assert len(world.running()) == 3


def test_a_draining_replica_of_a_deleted_manifest_needs_prune(worlds):
    world = ready(worlds(shop(replicas=2, ttl=300)))
    world.push(shop(replicas=1, ttl=300))
    world.run(30 * SECOND)
    world.push(Shop(()))
    world.run(1200 * SECOND)
    assert len(world.containers()) == 2
    assert Rule.PRUNE_OFF in {hold.rule for hold in world.tape.last.holds}


def test_a_leaving_container_started_by_hand_is_drained_again(worlds):
    world = ready(worlds(shop(replicas=2, ttl=60)))
    world.push(shop(replicas=1, ttl=60))
    world.run(30 * SECOND)
    world.runtime.exit(WEB.format(1))
    world.start_by_hand(WEB.format(1))
    world.run(300 * SECOND)
    assert world.running() == [WEB.format(0)]
    assert list(world.containers()) == [WEB.format(0)]


def test_holds_over_time_name_a_future_instant_or_a_next_step(worlds):
    for provider in ("names", "node-a", "edge"):
        world = ready(worlds(Shop((Spec(), Spec(name="old", pools=("old",))), prune=True)))
        world.outside.break_reads(provider)
        world.apps.cursed.add(WEB.format(0))
        world.push(replace(world.shop, specs=(Spec(replicas=2),), prune=provider == "edge"))
        for _ in range(20):
            world.run(7 * SECOND)
            steady = world.tape.last.ledger and world.clock.now().steady - 7 * SECOND
            for hold in world.tape.last.holds:
                assert hold.next_step or hold.until is not None, hold
                assert hold.until is None or hold.until > steady - 600 * SECOND
        world.close()


def test_weights_of_a_suspended_workload_follow_health(worlds):
    world = ready(worlds(shop()))
    world.memory.say("suspend", "workload/web")
    world.apps.sick.add(world.generation(WEB.format(0)))
    world.run(120 * SECOND)
    assert world.weights()[WEB.format(0)] == 0
    assert not world.dog.restarts
    assert not world.memory.inbox
    world.memory.say("resume", "workload/web")
    world.run(120 * SECOND)
    assert len(world.dog.restarts) == 1


def test_an_own_stop_is_no_failure(worlds):
    world = ready(worlds(shop()))
    world.apps.sick.add(world.generation(WEB.format(0)))
    world.run(120 * SECOND)
    assert len(world.memory.ledger().failures) == 1
    assert world.containers()[WEB.format(0)].exit_cause is not ExitCause.STOPPED_BY_US
