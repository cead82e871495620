"""The order of writes: a name exists while anything points at it, and deleting much of a zone needs approval."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.dns import Publish, Record, Routing, Target
from manifests.values.dns_names import balancer_name, place_name, target_name
from providers.facts import RecordKey
from reconciler.core.decision import Decision
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Reason, Rule, Waiting
from tests.core.dns.world import A1, A2, B1, FAIL, HOST, NAMES, PASS, TARGETS, ZONE, World, geo_world, policy


def names(decision: Decision) -> list[str]:
    return [step.action.changes[0].key.name for step in decision.steps]  # type: ignore[union-attr]


def test_a_tree_grows_from_its_addresses() -> None:
    world = World((policy(),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS)
    rounds = []
    while steps := names(decision := world.decide()):
        rounds.append(set(steps))
        world.write(decision)

    assert rounds[0] == {target_name(HOST, "gw1"), target_name(HOST, "gw3")}
    assert rounds[-1] == {HOST}
    assert rounds[-2] == {balancer_name(HOST)}


def test_a_withdrawn_target_stays_until_the_ttl_of_its_pointer_expires() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL)
    first = world.decide()
    assert names(first) == [place_name(HOST, "EU")]
    world.write(first)
    waiting = world.decide()
    assert not waiting.steps
    assert [wait.until for wait in waiting.waits] == [world.now.steady + 60 * SECOND]

    world.pass_time(59)
    world.crash()
    assert not world.decide().steps
    world.pass_time(1)
    assert names(world.decide()) == [target_name(HOST, "gw1")]


def test_without_memory_a_name_stays_for_the_longest_ttl_of_its_pointers() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL)
    world.write(world.decide())
    world.ledger = Ledger()
    waits = world.decide().waits

    assert [wait.until for wait in waits] == [world.now.steady + 300 * SECOND]


def test_a_target_that_recovers_in_time_is_pointed_at_again_at_once() -> None:
    world = geo_world()
    before = world.lines()
    world.set_health(a1=FAIL, a2=FAIL)
    world.write(world.decide())
    world.decide()
    world.set_health(a1=PASS, a2=PASS)
    world.write(world.decide())

    assert world.lines() == before
    assert not world.ledger.names


def test_withdrawals_come_before_all_other_records() -> None:
    world = geo_world()
    world.set_health(a1=FAIL)
    world.records = (Record("record/a", "a", "aaa.example.test.", NAMES, ZONE, "TXT", 60, ('"x"',)),)
    steps = world.decide().steps

    assert [step.cause for step in steps] == [Reason.WITHDRAWN, Reason.PUBLISHED]


def test_from_plain_to_balanced_and_back_no_moment_is_without_an_answer() -> None:
    both = Target("both", Publish.ADDRESSES, addresses=(A1, A2))
    world = World((policy(both, routing=Routing.SIMPLE),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS)
    world.settle()
    plain = world.lines()
    world.policies = (policy(*TARGETS[:2]),)
    world.settle()
    assert RecordKey(HOST, "CNAME") in world.sets

    world.policies = (policy(both, routing=Routing.SIMPLE),)
    world.guard = Guard(mass_change=MassChange(100, 100))
    world.settle()
    assert world.lines() == plain


def test_a_policy_that_is_removed_goes_from_the_top_and_waits_for_each_ttl() -> None:
    world = geo_world()
    world.policies, world.prune, world.revision = (), True, "r2"
    world.records = tuple(
        Record(f"record/r{n}", f"r{n}", f"r{n}.{ZONE}", NAMES, ZONE, "A", 60, ("192.0.2.1",)) for n in range(40)
    )
    deleted: list[str] = []
    for _ in range(60):
        decision = world.decide()
        deleted += [name for name in names(decision) if name.endswith(HOST)]
        world.write(decision)
        world.pass_time(61)

    assert deleted[:2] == [HOST, balancer_name(HOST)]
    assert not [key for key in world.sets if key.name.endswith(HOST)]


def test_deleting_much_of_a_zone_waits_for_approval_and_health_does_not() -> None:
    world = geo_world()
    world.guard = Guard(mass_change=MassChange(30, 2))
    world.policies = (policy(TARGETS[1], replace(TARGETS[2], geo="US", default=True)),)
    held = world.decide()
    while held.steps:
        world.write(held)
        held = world.decide()
    assert {hold.rule for hold in held.holds} == {Rule.MASS_CHANGE}
    assert held.guard_hash

    world.approve(held.guard_hash)
    world.settle()
    assert RecordKey(target_name(HOST, "gw1"), "A") not in world.sets


def test_in_a_large_zone_a_number_of_deletions_waits_for_approval() -> None:
    made = [Record(f"record/r{n}", f"r{n}", f"r{n}.{ZONE}", NAMES, ZONE, "A", 60, (B1,)) for n in range(400)]
    world = World((), records=tuple(made), prune=True)
    world.settle()
    world.records, world.revision = tuple(made[:295]), "r2"
    world.decide()
    world.pass_time(61)
    held = world.decide()

    assert not held.steps
    assert {hold.rule for hold in held.holds} == {Rule.MASS_CHANGE}


@pytest.mark.parametrize(("allowed", "gone", "held"), [(10, 10, False), (10, 11, True), (0, 1, True), (1, 1, False)])
def test_so_many_names_may_lose_their_last_record_without_approval(allowed: int, gone: int, held: bool) -> None:
    made = [Record(f"record/r{n}", f"r{n}", f"r{n}.{ZONE}", NAMES, ZONE, "A", 60, (B1,)) for n in range(100)]
    also = [Record(f"record/t{n}", f"t{n}", f"r{n}.{ZONE}", NAMES, ZONE, "TXT", 60, ('"t"',)) for n in range(20, 100)]
    guard = Guard(mass_change=MassChange(names=allowed))
    world = World((), records=(*made, *also), prune=True, guard=guard)
    world.settle()
    # The last twenty names keep one record set each.
    world.records, world.revision = (*made[gone:80], *also), "r2"
    world.decide()
    world.pass_time(61)
    decision = world.decide()

    assert {hold.rule for hold in decision.holds} == ({Rule.MASS_CHANGE} if held else set())
    assert bool(decision.guard_hash) is held
    if held:
        names_lost = "1 name would lose its" if gone == 1 else f"{gone} names would lose their"
        assert f"deleted, and {names_lost} last record set, more than {allowed}" in decision.holds[0].message
        world.approve(decision.guard_hash)
    world.settle()
    assert sum(key.type == "A" for key in world.sets) == 80 - gone


def test_names_that_are_kept_because_pruning_is_off_hold_nothing_back() -> None:
    made = [Record(f"record/r{n}", f"r{n}", f"r{n}.{ZONE}", NAMES, ZONE, "A", 60, (B1,)) for n in range(20)]
    world = geo_world()
    world.records = tuple(made)
    world.settle()
    world.records, world.policies = (), (policy(*TARGETS[1:]),)
    world.revision = "r2"
    world.settle()

    assert RecordKey(target_name(HOST, "gw1"), "A") not in world.sets
    assert sum(key.name.startswith("r") for key in world.sets) == 20


def test_only_pointers_and_their_ttl_are_waited_for() -> None:
    world = geo_world()
    world.set_health(b1=FAIL)
    world.write(world.decide())

    assert {wait.waiting for wait in world.decide().waits} <= {Waiting.TTL, Waiting.NAMES}
