"""Existing records without an owner: equal ones are taken over, others only after an approval, and those of others never."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired
from manifests.values.dns import Publish, Record, RecordList, Routing, Target
from providers.facts import Known, RecordKey, RecordSet
from reconciler.core.decision import Decision
from reconciler.core.model.reasons import Rule
from tests.core.dns.test_record_lists import Listed, record_list
from tests.core.dns.world import A1, A2, B1, FAIL, HOST, INSTANCE, NAMES, PASS, TARGETS, ZONE, World, policy

WWW = RecordKey(f"www.{ZONE}", "A")
MARK = f"{INSTANCE}/record/www"
BOTH = Target("both", Publish.ADDRESSES, addresses=(A1, A2))


def record(kind: str = "A", *values: str, adopt: bool = True) -> Record:
    return Record("record/www", "www", WWW.name, NAMES, ZONE, kind, 60, values or (A1,), adopt=adopt)


def plant(world: World, key: RecordKey, record_set: RecordSet, owner: str = "") -> None:
    """Add a set as another program does."""
    fact = world.zone.value
    owners = {**fact.owners, key: owner} if owner else dict(fact.owners)
    records = {**fact.records, key: record_set}
    world.zone = Known(replace(fact, records=records, owners=owners), NAMES, world.now.steady)


def found(world: World, record_set: RecordSet, key: RecordKey = WWW, owner: str = "") -> Decision:
    plant(world, key, record_set, owner)
    return world.decide()


def test_an_equal_record_gets_our_mark_and_nothing_else_changes() -> None:
    world = World((), records=(record(),))
    decision = found(world, RecordSet(60, (A1,)))
    (step,) = decision.steps
    assert not decision.holds
    assert step.journal
    assert "taken over" in step.message
    world.write(decision)
    assert world.zone.value.owners[WWW] == MARK
    assert world.sets[WWW] == RecordSet(60, (A1,))
    world.settle()


def test_a_lost_mark_is_written_again() -> None:
    world = World((), records=(record(),))
    world.settle()
    world.zone = Known(replace(world.zone.value, owners={}), NAMES, world.now.steady)
    world.settle()
    assert world.zone.value.owners == {WWW: MARK}


@pytest.mark.parametrize("there", [RecordSet(60, (B1,)), RecordSet(300, (A1,)), RecordSet(60, (A1, B1))])
def test_other_values_are_held_until_exactly_these_are_approved(there: RecordSet) -> None:
    world = World((), records=(record(),))
    decision = found(world, there)
    (hold,) = decision.holds
    assert not decision.steps
    assert hold.rule is Rule.FOREIGN_RECORD
    assert f"{','.join(there.values)} ttl {there.ttl} -> {A1} ttl 60" in hold.message
    assert hold.next_step == f"reconcile apply PATH --yes --approve {decision.guard_hash}"

    world.approve(decision.guard_hash)
    plant(world, WWW, RecordSet(60, ("203.0.113.99",)))
    again = world.decide()
    assert not again.steps, "only what was shown is approved"
    plant(world, WWW, there)
    world.settle()
    assert (world.sets[WWW], world.zone.value.owners[WWW]) == (RecordSet(60, (A1,)), MARK)


def test_without_adopt_nothing_is_taken_over_and_the_hold_says_how() -> None:
    world = World((), records=(record(adopt=False),))
    decision = found(world, RecordSet(60, (A1,)))
    (hold,) = decision.holds
    assert not decision.steps
    assert "adopt: true" in hold.next_step


@pytest.mark.parametrize("adopt", [True, False])
def test_a_live_other_owner_is_named_and_its_mark_stays(adopt: bool) -> None:
    world = World((), records=(record(adopt=adopt),))
    decision = found(world, RecordSet(60, (A1,)), owner="other/record/www")
    (hold,) = decision.holds
    assert not decision.steps
    assert not decision.guard_hash
    assert "belongs to other/record/www" in hold.message
    assert "_reconciler" not in hold.message + hold.next_step
    assert "adopt" not in hold.next_step


def test_a_cname_replaces_addresses_only_after_approval_and_in_one_write() -> None:
    world = World((), records=(record("CNAME", "web.example.net."),))
    decision = found(world, RecordSet(60, (A1,)))
    assert not decision.steps
    world.approve(decision.guard_hash)
    decision = world.decide()
    assert len(decision.steps) == 1
    world.write(decision)
    assert set(world.sets) == {WWW._replace(type="CNAME")}


def test_a_foreign_text_beside_a_wanted_cname_is_never_replaced() -> None:
    world = World((), records=(record("CNAME", "web.example.net."),))
    decision = found(world, RecordSet(60, ('"theirs"',)), WWW._replace(type="TXT"))
    assert not decision.steps
    assert not decision.guard_hash
    assert [hold.rule for hold in decision.holds] == [Rule.FOREIGN_RECORD]


def test_other_types_at_the_name_stay_their_authors() -> None:
    world = World((), records=(record(),))
    plant(world, WWW._replace(type="TXT"), RecordSet(60, ('"theirs"',)))
    world.settle()
    assert world.zone.value.owners == {WWW: MARK}
    assert WWW._replace(type="TXT") in world.sets


def lists(adopt: bool, **sets: str) -> tuple[RecordList, ...]:
    return (replace(record_list(**sets), adopt=adopt),)


def test_a_list_takes_over_its_equal_sets_in_one_step_and_holds_the_others() -> None:
    world = Listed((), lists=lists(True, **{f"n{number}_A": A1 for number in range(50)}, www_A=A1))
    for number in range(50):
        world.put(f"n{number}", "A", A1)
    world.put("www", "A", B1)
    decision = world.decide()
    assert len(decision.steps) == 1
    assert len(decision.holds) == 1
    world.write(decision)
    assert len(world.zone.value.owners) == 50
    assert world.sets[WWW].values == (B1,)

    world.approve(world.decide().guard_hash)
    world.settle()
    assert world.sets[WWW].values == (A1,)
    assert len(world.zone.value.owners) == 51


def test_a_list_without_adopt_takes_over_nothing() -> None:
    world = Listed((), lists=lists(False, www_A=A1))
    world.put("www", "A", A1)
    world.settle()
    assert not world.zone.value.owners
    (hold,) = world.decide().holds
    assert "adopt: true" in hold.next_step


def test_a_policy_takes_over_an_equal_name() -> None:
    world = World((policy(BOTH, routing=Routing.SIMPLE, adopt=True),))
    world.set_health(a1=PASS, a2=PASS)
    key = RecordKey(HOST, "A")
    plant(world, key, RecordSet(60, (A1, A2)))
    world.settle()
    assert world.zone.value.owners == {key: f"{INSTANCE}/dnspolicy/app"}
    world.set_health(a1=FAIL)
    world.settle()
    assert world.sets[key].values == (A2,)


def test_a_policy_replaces_other_addresses_after_approval_by_a_tree() -> None:
    world = World((policy(*TARGETS, adopt=True),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    plant(world, RecordKey(HOST, "A"), RecordSet(60, ("203.0.113.77",)))
    for _ in range(20):
        world.write(world.decide())
    assert world.sets[RecordKey(HOST, "A")].values == ("203.0.113.77",)
    held = world.decide()
    assert held.guard_hash
    assert any("203.0.113.77 ttl 60 -> nothing" in hold.message for hold in held.holds)

    world.approve(held.guard_hash)
    world.settle()
    assert RecordKey(HOST, "CNAME") in world.sets
    assert RecordKey(HOST, "A") not in world.sets


def test_a_policy_adopts_nothing_while_no_address_is_known_to_be_healthy() -> None:
    world = World((policy(BOTH, routing=Routing.SIMPLE, adopt=True),))
    plant(world, RecordKey(HOST, "A"), RecordSet(60, ("203.0.113.77",)))
    for _ in range(5):
        decision = world.decide()
        assert not decision.steps
        world.pass_time(1)
    assert not world.zone.value.owners


def test_the_zone_of_another_instance_is_left_alone() -> None:
    world = World((policy(BOTH, routing=Routing.SIMPLE, adopt=True),))
    world.set_health(a1=PASS, a2=PASS)
    plant(world, RecordKey(HOST, "A"), RecordSet(60, (A1, A2)), "other/dnspolicy/app")
    world.settle()
    (hold,) = world.decide().holds
    assert "belongs to other/dnspolicy/app" in hold.message


def test_desired_prints_the_command_that_it_was_given() -> None:
    world = World((), records=(record(),))
    plant(world, WWW, RecordSet(60, (B1,)))
    given = replace(world.desired(), apply_command="reconcile apply '/srv/a b' --yes")

    class Given(World):
        def desired(self) -> Desired:
            return given

    other = Given((), records=world.records)
    other.zone = world.zone
    (hold,) = other.decide().holds
    assert hold.next_step.startswith("reconcile apply '/srv/a b' --yes --approve ")


def test_an_unreadable_mark_is_not_adopted_and_the_hold_says_so() -> None:
    world = World((), records=(record(),))
    decision = found(world, RecordSet(60, (A1,)), owner="?/some text")
    (hold,) = decision.holds
    assert not decision.steps
    assert "an unreadable owner mark" in hold.message


def test_a_whole_zone_with_another_ttl_is_one_hold_and_one_approval() -> None:
    world = Listed((), lists=lists(True, **{f"n{number}_A": A1 for number in range(200)}))
    world.lists = (replace(world.lists[0], sets={key: (60, *value[1:]) for key, value in world.lists[0].sets.items()}),)
    for number in range(200):
        world.put(f"n{number}", "A", A1)
    decision = world.decide()
    (hold,) = decision.holds
    assert not decision.steps
    assert "200 record sets" in hold.message
    assert f"n0.{ZONE} A: {A1} ttl 300 -> {A1} ttl 60; " in hold.message
    world.approve(decision.guard_hash)
    world.settle()
    assert {record_set.ttl for record_set in world.sets.values()} == {60}
    assert len(world.zone.value.owners) == 200
