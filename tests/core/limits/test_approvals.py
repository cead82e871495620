"""One approval covers exactly what was shown with its hash, and any part of it that is left, for a day."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.dns import Record
from providers.facts import Known, RecordKey, RecordSet
from reconciler.core.limits.approvals import LASTS, SHOWN, resolve
from reconciler.core.model.instant import FOREVER, Now, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.reasons import Rule
from tests.core.dns.world import NAMES, START, ZONE, World, geo_world
from tests.laws.examples import examples

STRICT = Guard(mass_change=MassChange(share=1, minimum=0))


def approve(ledger: Ledger, shown: str, now: Now = START) -> Ledger:
    return apply_commands(ledger, (Command("approve", shown, at=instant(now)),))


def later(seconds: float) -> Now:
    step = int(seconds * SECOND)
    return Now(START.wall + step, START.steady + step, START.lineage)


def test_an_approval_covers_every_part_of_what_was_shown_and_nothing_else() -> None:
    ledger, first = resolve(Ledger(), {"a", "b", "c"}, START)
    ledger, given_ = resolve(approve(ledger, first.hash), {"a", "b", "c"}, START)
    assert (given_.hash, given_.covered) == ("", {"a", "b", "c"})
    ledger, given_ = resolve(ledger, {"b"}, later(3600))
    assert (given_.hash, given_.covered) == ("", {"b"})
    ledger, given_ = resolve(ledger, {"b", "d"}, later(3600))
    assert given_.covered == {"b"}
    assert given_.hash == resolve(Ledger(), {"d"}, START)[1].hash


def test_an_approval_that_comes_after_a_part_is_gone_covers_the_rest() -> None:
    ledger, first = resolve(Ledger(), {"a", "b", "c"}, START)
    ledger = resolve(ledger, {"b", "c", "new"}, later(60))[0]
    given_ = resolve(approve(ledger, first.hash, later(61)), {"b", "c", "new"}, later(61))[1]
    assert given_.covered == {"b", "c"}
    assert given_.hash


def test_an_approval_before_the_first_decision_counts_once_it_fits() -> None:
    shown = resolve(Ledger(), {"a", "b"}, START)[1].hash
    ledger, none_yet = resolve(approve(Ledger(), shown), {"a"}, START)
    assert (none_yet.covered, none_yet.unused) == (frozenset(), shown)
    assert resolve(ledger, {"a", "b"}, later(30))[1].covered == {"a", "b"}


def test_an_approval_ends_after_a_day_and_its_end_is_known() -> None:
    ledger, first = resolve(Ledger(), {"a"}, START)
    ledger, given_ = resolve(approve(ledger, first.hash), {"a"}, START)
    assert given_.until == START.steady + LASTS
    assert resolve(ledger, {"a"}, later(LASTS / SECOND - 1))[1].covered == {"a"}
    ended = resolve(ledger, {"a"}, later(LASTS / SECOND))[1]
    assert (ended.covered, ended.hash, ended.until) == (frozenset(), first.hash, FOREVER)


def test_a_hash_that_was_shown_more_than_a_day_ago_covers_no_part() -> None:
    ledger, first = resolve(Ledger(), {"a", "b"}, START)
    now = later(LASTS / SECOND + 1)
    ledger = resolve(ledger, {"a"}, now)[0]
    assert resolve(approve(ledger, first.hash, now), {"a"}, now)[1].covered == frozenset()


@examples(200)
@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from("abcdef")), st.booleans(), st.sampled_from([1, 3600, 50_000])),
        min_size=1,
        max_size=30,
    )
)
def test_never_more_than_what_was_approved_within_a_day(moments: list[tuple[frozenset[str], bool, int]]) -> None:
    ledger, clock = Ledger(), 0
    approved: list[tuple[int, frozenset[str]]] = []
    for needed, says_yes, pause in moments:
        ledger, given_ = resolve(ledger, needed, later(clock))
        allowed = {name for at, names in approved if clock - at < LASTS // SECOND for name in names}
        assert given_.covered == allowed & needed
        assert bool(given_.hash) == bool(needed - allowed)
        if says_yes and given_.hash:
            ledger = approve(ledger, given_.hash, later(clock))
            approved.append((clock, needed - given_.covered))
        assert sum(not row.approved for row in ledger.approvals.values()) <= SHOWN
        ledger = from_rows(to_rows(ledger))
        clock += pause


# --- in a zone --------------------------------------------------------------------------------------------------------


def many(count: int) -> World:
    made = tuple(
        Record(f"record/r{n}", f"r{n}", f"r{n}.{ZONE}", NAMES, ZONE, "A", 60, ("192.0.2.1",)) for n in range(count)
    )
    world = World((), records=made, prune=True, guard=STRICT)
    world.settle()
    return world


def unproven(world: World) -> None:
    world.decide()
    world.pass_time(61)


def test_a_deletion_in_many_passes_needs_one_approval() -> None:
    world = geo_world()
    world.guard, world.prune, world.policies, world.revision = STRICT, True, (), "r2"
    unproven(world)
    held = world.decide()
    assert {hold.rule for hold in held.holds} == {Rule.MASS_CHANGE}
    world.approve(held.guard_hash)
    for _ in range(100):
        decision = world.decide()
        assert not decision.guard_hash
        world.write(decision, 1)
        world.crash()
        world.pass_time(61)
    assert not world.sets


def test_a_set_that_was_changed_after_the_approval_is_not_covered() -> None:
    world = many(3)
    world.records, world.revision = world.records[:1], "r2"
    unproven(world)
    world.approve(world.decide().guard_hash)
    key = RecordKey(f"r1.{ZONE}", "A")
    fact = world.zone.value
    changed = {**fact.records, key: RecordSet(60, ("203.0.113.9",))}
    world.zone = Known(replace(fact, records=changed), NAMES, world.now.steady)
    for _ in range(5):
        world.write(world.decide())
    assert set(world.sets) == {RecordKey(f"r0.{ZONE}", "A"), key}
    held = world.decide()
    world.approve(held.guard_hash)
    world.settle()
    assert key not in world.sets


def test_one_more_deletion_after_the_approval_is_held_and_the_others_go() -> None:
    world = many(10)
    first = world.records
    world.records, world.revision = first[:6], "r2"
    unproven(world)
    world.approve(world.decide().guard_hash)
    world.records, world.revision = first[:4], "r3"
    unproven(world)
    for _ in range(5):
        world.write(world.decide())
    held = world.decide()
    assert {hold.object for hold in held.holds} == {"record/r4", "record/r5"}
    assert len(world.sets) == 6


def test_another_revision_with_the_same_deletion_needs_no_second_approval() -> None:
    world = many(5)
    world.records, world.revision = world.records[:1], "r2"
    unproven(world)
    world.approve(world.decide().guard_hash)
    world.revision = "r3"
    unproven(world)
    world.settle()
    assert len(world.sets) == 1


def test_a_wrong_hash_is_named_in_the_hold() -> None:
    world = many(3)
    world.records, world.revision = (), "r2"
    unproven(world)
    world.approve("0123456789abcdef")
    assert all("0123456789abcdef is for other changes" in hold.message for hold in world.decide().holds)


def test_the_end_of_an_approval_that_fits_nothing_is_known() -> None:
    ledger, given_ = resolve(approve(Ledger(), "0123456789abcdef"), {"a"}, START)
    assert (given_.unused, given_.until) == ("0123456789abcdef", START.steady + LASTS)
    assert resolve(ledger, {"a"}, later(LASTS / SECOND))[1].unused == ""
