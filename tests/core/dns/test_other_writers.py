"""Another program that changes a record set of ours again and again is named, and the set is left alone for a while."""

from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.dns import Publish, Record, Routing, Target
from providers.facts import Known, RecordKey, RecordSet
from reconciler.core.dns.other_writers import MOST, REWRITES, WITHIN
from reconciler.core.model.reasons import Rule
from tests.core.dns.world import A1, A2, FAIL, NAMES, PASS, ZONE, World, policy

WWW = RecordKey(f"www.{ZONE}", "A")
OURS, THEIRS = RecordSet(60, (A1,)), RecordSet(60, ("203.0.113.66",))


def record(key: RecordKey = WWW, value: str = A1) -> Record:
    name = key.name.partition(".")[0]
    return Record(f"record/{name}", name, key.name, NAMES, ZONE, "A", 60, (value,))


def foreign_write(world: World, key: RecordKey, record_set: RecordSet | None) -> None:
    """Another program changes data and leaves our mark."""
    fact = world.zone.value
    records = {**fact.records}
    records.pop(key, None)
    if record_set is not None:
        records[key] = record_set
    world.zone = Known(replace(fact, records=records), NAMES, world.now.steady)


def fight(
    world: World,
    times: int,
    every: float,
    key: RecordKey = WWW,
    theirs: RecordSet | None = THEIRS,
    looks: bool = True,
) -> int:
    """How often our set was written again. `looks`: the zone is read between our write and theirs."""
    rewritten = 0
    for _ in range(times):
        foreign_write(world, key, theirs)
        decision = world.decide()
        rewritten += bool(decision.steps)
        world.write(decision)
        if looks:
            world.decide()
        world.crash()
        world.pass_time(every)
    return rewritten


def written() -> World:
    world = World((), records=(record(), record(RecordKey(f"other.{ZONE}", "A"))))
    world.settle()
    return world


def test_a_set_is_written_three_times_and_then_left_with_a_hold() -> None:
    world = written()
    assert fight(world, 10, 1) == REWRITES
    (hold,) = world.decide().holds
    assert (hold.rule, hold.object) == (Rule.CONFLICTING_WRITER, "record/www")
    assert hold.until is not None
    assert world.now.steady < hold.until <= world.now.steady + WITHIN
    assert "from 198.51.100.1 ttl 60 to 203.0.113.66 ttl 60" in hold.message
    assert world.sets[WWW] == THEIRS
    assert world.decide().wake_at <= hold.until


def test_after_that_time_it_is_tried_again() -> None:
    world = written()
    fight(world, 10, 1)
    (hold,) = world.decide().holds
    assert hold.until is not None
    world.pass_time((hold.until - world.now.steady) / SECOND)
    decision = world.decide()
    assert not decision.holds
    world.write(decision)
    assert world.sets[WWW] == OURS
    assert fight(world, 10, 1) == REWRITES


def test_a_program_that_runs_every_five_minutes_is_noticed() -> None:
    world = written()
    world.pass_time(3600)
    assert fight(world, 4, 300) == REWRITES


def test_rare_changes_by_others_are_always_written_again() -> None:
    world = written()
    assert fight(world, 10, WITHIN / SECOND / 2 + 1) == 10


def test_a_program_that_answers_at_once_is_noticed() -> None:
    world = written()
    assert fight(world, 10, 0.01, looks=False) == REWRITES


def test_deletions_by_another_program_count_as_well() -> None:
    world = written()
    assert fight(world, 10, 1, theirs=None) == REWRITES


def test_a_fight_about_one_set_holds_no_other_one() -> None:
    world = written()
    fight(world, 10, 1)
    world.records = (record(), record(RecordKey(f"other.{ZONE}", "A"), A2))
    world.write(world.decide())
    assert world.sets[RecordKey(f"other.{ZONE}", "A")].values == (A2,)


def test_own_changes_are_no_fight() -> None:
    world = written()
    for number in range(20):
        world.records = (record(value=(A2, A1)[number % 2]),)
        decision = world.decide()
        assert decision.steps
        world.write(decision)
        world.pass_time(5)


def test_a_withdrawal_for_health_is_written_in_the_middle_of_a_fight() -> None:
    both = Target("both", Publish.ADDRESSES, addresses=(A1, A2))
    world = World((policy(both, routing=Routing.SIMPLE),))
    world.set_health(a1=PASS, a2=PASS)
    world.settle()
    key = RecordKey(f"app.{ZONE}", "A")
    fight(world, 10, 1, key, RecordSet(60, (A1, A2, "203.0.113.66")))
    assert [hold.rule for hold in world.decide().holds] == [Rule.CONFLICTING_WRITER]

    world.set_health(a1=FAIL)
    world.write(world.decide())
    assert world.sets[key].values == (A2,)
    foreign_write(world, key, RecordSet(60, (A1, A2)))
    world.write(world.decide())
    assert world.sets[key].values == (A2,), "an unhealthy address is withdrawn as often as it is added"


def test_memory_is_bounded() -> None:
    many = tuple(record(RecordKey(f"n{number}.{ZONE}", "A")) for number in range(MOST + 200))
    world = World((), records=many)
    world.settle()
    world.decide()
    assert len(world.ledger.written) <= MOST


def test_an_idle_world_changes_no_row() -> None:
    world = written()
    world.decide()
    before = world.ledger
    world.pass_time(4000)
    world.decide()
    assert world.ledger.written is before.written
