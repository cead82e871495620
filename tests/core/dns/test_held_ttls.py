"""Waits for resolvers follow the TTLs that were published, not those that the manifests declare now."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.dns import TreeTTL
from manifests.values.dns_names import place_name, target_name
from providers.capabilities import PLAIN
from providers.facts import RecordKey
from reconciler.core.decide import decide
from reconciler.core.dns.held_ttls import place
from reconciler.core.model.dns_memory import HeldTTL
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Waiting
from reconciler.core.model.restart_request import Request
from tests.builders import NOW, Scene, ago
from tests.core.dns.world import FAIL, HOST, PASS, TARGETS, World, geo_world, policy
from tests.sim.manifest import Spec, shop

GW3 = RecordKey(target_name(HOST, "gw3"), "A")
US = place_name(HOST, "US")
SHORT = TreeTTL(host=2, balancer=2, geo=2)
LONG = TreeTTL(host=600, balancer=900, geo=700)


def act(world: World) -> None:
    while (decision := world.decide()).steps:
        world.write(decision)


def gone_after(world: World, name: str, most: float = 10_000) -> float:
    """Seconds until a name is gone, in steps that waits name."""
    start = world.now.steady
    while any(key.name == name for key in world.sets):
        act(world)
        decision = world.decide()
        waits = [wait.until for wait in decision.waits if wait.until is not None]
        if any(key.name == name for key in world.sets):
            assert waits, "something must be waited for"
            world.pass_time((min(waits) - world.now.steady) / SECOND)
        assert world.now.steady - start < most * SECOND
    return (world.now.steady - start) / SECOND


def test_a_ttl_that_is_lowered_with_the_removal_counts_as_it_was_published() -> None:
    world = geo_world(tree_ttl=LONG)
    world.policies = (policy(TARGETS[0], TARGETS[2], tree_ttl=SHORT),)
    assert gone_after(world, US) >= 900


def test_a_ttl_that_was_lowered_shortly_before_still_counts() -> None:
    world = geo_world(tree_ttl=LONG)
    world.policies = (policy(tree_ttl=SHORT),)
    act(world)
    world.crash()
    world.pass_time(100)
    world.policies = (policy(TARGETS[0], TARGETS[2], tree_ttl=SHORT),)
    assert 800 <= gone_after(world, US) <= 810


def test_a_ttl_that_was_lowered_long_before_counts_no_more() -> None:
    world = geo_world(tree_ttl=LONG)
    world.policies = (policy(tree_ttl=SHORT),)
    act(world)
    world.pass_time(1000)
    world.policies = (policy(TARGETS[0], TARGETS[2], tree_ttl=SHORT),)
    assert gone_after(world, US) <= 10


def test_a_ttl_that_is_raised_with_the_removal_is_not_waited_for() -> None:
    world = geo_world(tree_ttl=SHORT)
    world.policies = (policy(TARGETS[0], TARGETS[2], tree_ttl=LONG),)
    assert gone_after(world, US) <= 10


def test_an_approved_deletion_waits_since_its_pointer_was_gone() -> None:
    world = geo_world(tree_ttl=LONG)
    world.guard = Guard(mass_change=MassChange(share=1, minimum=0))
    world.policies = (policy(TARGETS[0], TARGETS[2], tree_ttl=SHORT),)
    act(world)
    held = world.decide()
    world.pass_time(1000)
    world.decide()
    world.approve(held.guard_hash)
    assert gone_after(world, GW3.name) <= 710
    assert not any(key.name == GW3.name for key in world.sets)


def test_levels_add_up_one_after_the_other() -> None:
    world = geo_world(tree_ttl=LONG)
    world.set_health(b1=FAIL)
    assert gone_after(world, GW3.name) >= 900 + 700


def test_a_lost_ledger_waits_for_the_declared_ttls() -> None:
    world = geo_world(tree_ttl=LONG)
    world.set_health(b1=FAIL)
    world.write(world.decide())
    world.ledger = Ledger()
    (wait,) = [wait for wait in world.decide().waits if wait.waiting is Waiting.TTL]
    assert wait.until == world.now.steady + 900 * SECOND


def test_a_name_to_which_nothing_ever_pointed_goes_at_once() -> None:
    world = World((policy(*TARGETS[:2]),), can=PLAIN)
    world.set_health(a1=PASS, a2=PASS, b1=PASS)
    world.settle()
    assert any(key.name == GW3.name for key in world.sets), "the provider has no places, so nothing points at it"
    world.policies, world.prune, world.revision = (), True, "r2"
    world.decide()
    world.pass_time(61)
    world.approve(world.decide().guard_hash)
    assert gone_after(world, GW3.name) == 0


def test_rows_end_and_an_idle_world_changes_none() -> None:
    world = geo_world(tree_ttl=LONG)
    world.policies = (policy(tree_ttl=SHORT),)
    act(world)
    world.decide()
    before = world.ledger.held_ttls
    assert before
    world.pass_time(10_000)
    world.decide()
    assert world.ledger.held_ttls is before
    world.policies = (policy(tree_ttl=replace(SHORT, host=1)),)
    act(world)
    world.decide()
    assert all(row.ttl <= 2 * SECOND for row in world.ledger.held_ttls.values())


# --- replicas that leave a name ------------------------------------------------------------------------------------------


def exit_ttl(scene: Scene, declared: int, held: dict[str, HeldTTL] | None = None) -> int:
    """How long (s) the first replica waits after its address has left the name, with this TTL in the manifest."""
    scene.ledger = replace(
        scene.ledger,
        requests={"r1": Request("workload/web/0", ago(1), "ada", "new certificates")},
        held_ttls=held or {},
    )
    desired = shop(replicas=3).desired()
    (declared_policy,) = desired.policies
    desired = replace(desired, policies=(replace(declared_policy, ttl=declared),))
    decision = decide(desired, scene.observed(), NOW)
    (grant,) = decision.ledger.grants.values()
    return grant.ttl // SECOND


@pytest.mark.parametrize(("published", "declared"), [(600, 2), (30, 900)])
def test_a_replica_waits_for_the_ttl_that_its_address_was_published_with(published: int, declared: int) -> None:
    scene = Scene(Spec(replicas=3))
    for key, record in scene.records.items():
        scene.records[key] = record._replace(ttl=published)
    assert exit_ttl(scene, declared) == published


def test_a_replica_waits_for_a_ttl_that_was_lowered_shortly_before() -> None:
    scene = Scene(Spec(replicas=3))
    for key, record in scene.records.items():
        scene.records[key] = record._replace(ttl=2)
    address = next(fact.address for fact in scene.facts if fact.mark is not None and fact.mark.ordinal == 0)
    observed = decide(shop(replicas=3).desired(), scene.observed(), NOW).status.observed
    ((provider, zone),) = observed.zones
    held = {place((provider, zone), address): HeldTTL(600 * SECOND, ago(100))}
    assert exit_ttl(scene, 2, held) == 500
