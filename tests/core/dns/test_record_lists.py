"""Lists of plain record sets in a zone: what is written, in how few steps, and what is never changed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import Desired
from manifests.values.dns import Record, RecordList, SetKey, SetValue
from providers.actions import ChangeRecords
from providers.capabilities import DNSCapabilities
from providers.facts import Known, RecordKey, RecordSet
from reconciler.core.model.reasons import Rule
from reconciler.core.model.step import Step
from reconciler.core.plan_text import spelled_out
from tests.core.dns.world import INSTANCE, NAMES, ZONE, World


@dataclass
class Listed(World):
    lists: tuple[RecordList, ...] = ()

    def desired(self) -> Desired:
        return replace(super().desired(), record_lists=self.lists)

    def put(self, name: str, kind: str, value: str, owner: str | None = None) -> None:
        """Add an existing record set, with an owner mark or without."""
        key = RecordKey(f"{name}.{ZONE}", kind)
        fact = self.zone.value
        owners = {**fact.owners, **({} if owner is None else {key: owner})}
        records = {**fact.records, key: RecordSet(300, (value,))}
        self.zone = Known(replace(fact, records=records, owners=owners), NAMES, self.now.steady)

    def has(self) -> dict[str, str]:
        return {
            f"{key.name.removesuffix('.' + ZONE)} {key.type}": record.values[0] for key, record in self.sets.items()
        }


def record_list(name: str = "all", **sets: str) -> RecordList:
    """A list of sets such as `www_A="192.0.2.1"`."""
    record_sets: dict[SetKey, SetValue] = {}
    for key, value in sets.items():
        host, _, kind = key.rpartition("_")
        record_sets[f"{host}.{ZONE}", kind, ""] = (300, (value,), None, "", False)
    return RecordList(f"recordlist/{name}", name, NAMES, ZONE, record_sets)


def mark(name: str = "all") -> str:
    return f"{INSTANCE}/recordlist/{name}"


def many(count: int, first: int = 0) -> dict[str, str]:
    return {f"n{index}_A": f"192.0.2.{index % 250}" for index in range(first, first + count)}


def changes(step: Step) -> ChangeRecords:
    assert isinstance(step.action, ChangeRecords)
    return step.action


def test_a_whole_list_is_one_step_before_the_names_that_point_at_it() -> None:
    world = Listed((), lists=(record_list(**many(900), www_CNAME=f"n1.{ZONE}", xx_CNAME=f"n2.{ZONE}"),))
    (step,) = world.decide().steps

    assert (step.object, step.message) == ("recordlist/all", "in: 900 record sets")
    assert [wait.message for wait in world.decide().waits] == [
        f"n1.{ZONE} is not published yet, so www.{ZONE} cannot point at it; and 1 more"
    ]
    assert len(changes(step).changes) == len(spelled_out(step.action)) == 900
    world.settle()
    assert len(world.sets) == 902
    assert world.decide().steps == ()


def test_only_what_differs_is_written() -> None:
    world = Listed((), lists=(record_list(**many(50)),))
    world.settle()
    world.lists = (record_list(**{**many(50), "n7_A": "203.0.113.7"}),)
    (step,) = world.decide().steps

    assert [change.key.name for change in changes(step).changes] == [f"n7.{ZONE}"]
    assert step.message == "changed: 1 record set"


def test_a_set_that_its_list_has_dropped_is_deleted_without_pruning() -> None:
    world = Listed((), lists=(record_list(a_A="192.0.2.1", b_A="192.0.2.2"),))
    world.settle()
    world.lists = (record_list(a_A="192.0.2.1"),)
    world.settle()

    assert world.has() == {"a A": "192.0.2.1"}


def test_a_list_that_loses_too_much_is_held_until_an_operator_approves() -> None:
    world = Listed((), lists=(record_list(**many(40)),))
    world.settle()
    world.lists = (record_list(**many(10), new_A="203.0.113.1"),)
    world.settle()
    decision = world.decide()

    assert len(world.sets) == 41
    assert {hold.rule for hold in decision.holds} == {Rule.MASS_CHANGE}
    world.approve(decision.guard_hash)
    world.settle()
    assert len(world.sets) == 11


def test_a_record_of_another_writer_is_held_while_all_others_are_written() -> None:
    world = Listed((), lists=(record_list(**many(30)),))
    world.put("n3", "A", "203.0.113.3")
    world.put("n4", "A", "203.0.113.4", "other/dnspolicy/x")
    world.settle()
    (hold,) = world.decide().holds

    assert (world.has()["n3 A"], world.has()["n4 A"], len(world.sets)) == ("203.0.113.3", "203.0.113.4", 30)
    assert hold.rule is Rule.FOREIGN_RECORD
    assert f"n3.{ZONE} A in zone {ZONE} carries no owner mark" in hold.message
    assert f"n4.{ZONE} A in zone {ZONE} belongs to other/dnspolicy/x" in hold.message


def test_nothing_is_written_beside_a_cname_of_another_writer_or_reverse() -> None:
    world = Listed((), lists=(record_list(a_A="192.0.2.1", b_CNAME=f"c.{ZONE}", c_A="192.0.2.3"),))
    world.put("a", "CNAME", "x.example.net.")
    world.put("b", "TXT", '"theirs"')
    world.settle()

    assert world.has() == {"a CNAME": "x.example.net.", "b TXT": '"theirs"', "c A": "192.0.2.3"}


def test_a_cname_replaces_an_address_in_one_step() -> None:
    world = Listed((), lists=(record_list(a_A="192.0.2.1", b_A="192.0.2.2"),))
    world.settle()
    world.lists = (record_list(a_CNAME=f"b.{ZONE}", b_A="192.0.2.2"),)
    world.settle()

    assert world.has() == {"a CNAME": f"b.{ZONE}", "b A": "192.0.2.2"}


def test_a_set_that_moves_to_another_list_changes_its_owner_and_never_goes() -> None:
    world = Listed((), lists=(record_list(**many(5)),))
    world.settle()
    world.lists = (record_list(**many(3)), record_list("rest", **many(2, 3)))
    (step,) = world.decide().steps

    assert all(change.after == change.before for change in changes(step).changes)
    world.settle()
    assert len(world.sets) == 5
    assert world.zone.value.owners[RecordKey(f"n4.{ZONE}", "A")] == mark("rest")


def test_a_record_that_moves_into_a_list_is_taken_over_and_never_goes() -> None:
    record = Record("record/n1", "n1", f"n1.{ZONE}", NAMES, ZONE, "A", 300, ("192.0.2.1",))
    world = Listed((), records=(record,), prune=True)
    world.settle()
    world.records, world.lists = (), (record_list(**many(3)),)
    for step in world.decide().steps:
        assert all(change.after is not None for change in changes(step).changes)
    world.settle()
    assert world.zone.value.owners[RecordKey(f"n1.{ZONE}", "A")] == mark()


def test_a_set_that_moves_into_a_record_is_taken_over_and_never_goes() -> None:
    world = Listed((), lists=(record_list(**many(3)),))
    world.settle()
    world.lists = (record_list(**many(1), n2_A="192.0.2.2"),)
    world.records = (Record("record/n1", "n1", f"n1.{ZONE}", NAMES, ZONE, "A", 300, ("192.0.2.1",)),)
    (step,) = world.decide().steps

    assert [(change.before, change.after) for change in changes(step).changes] == [
        (RecordSet(300, ("192.0.2.1",)),) * 2
    ]
    world.settle()
    assert world.zone.value.owners[RecordKey(f"n1.{ZONE}", "A")] == f"{INSTANCE}/record/n1"


def test_a_list_that_no_manifest_has_stays_while_pruning_is_off() -> None:
    world = Listed((), lists=(record_list(**many(30)),))
    world.settle()
    world.lists = ()

    decision = world.decide()
    assert decision.steps == ()
    (hold,) = decision.holds
    assert (hold.rule, hold.action) == (Rule.PRUNE_OFF, f"delete n0.{ZONE} A and 29 more")


def test_sets_that_the_provider_does_not_support_are_fitted_or_held() -> None:
    able = DNSCapabilities(types=frozenset({"A"}), ttl_min=600)
    world = Listed((), lists=(record_list(a_A="192.0.2.1", a_TXT='"x"'),), can=able)
    world.settle()
    (hold,) = world.decide().holds

    assert dict(world.sets) == {RecordKey(f"a.{ZONE}", "A"): RecordSet(600, ("192.0.2.1",))}
    assert (hold.rule, hold.message) == (
        Rule.CANNOT_PUBLISH,
        f"the provider does not support type TXT: a.{ZONE} TXT left out",
    )


def test_ns_of_the_zone_and_acme_challenges_stay_whatever_their_mark() -> None:
    world = Listed((), lists=(record_list(a_A="192.0.2.1"),), prune=True)
    keys = [RecordKey(ZONE, "NS"), *(RecordKey(f"_acme-challenge.{name}.{ZONE}", "TXT") for name in "ab")]
    owners = dict(zip(keys, (mark(), mark(), f"{INSTANCE}/record/gone"), strict=True))
    owned = replace(world.zone.value, records=dict.fromkeys(keys, RecordSet(300, ("x.",))), owners=owners)
    world.zone = Known(owned, NAMES, world.now.steady)
    world.decide()
    world.pass_time(61)
    world.settle()

    assert set(keys) <= set(world.sets)


_NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
_SETS = st.dictionaries(_NAMES, st.sampled_from(["192.0.2.1", "192.0.2.2"]), min_size=1)


@given(before=_SETS, after=_SETS, foreign=st.dictionaries(_NAMES, st.just("203.0.113.9")))
def test_any_zone_becomes_the_list_and_other_writers_keep_their_records(
    before: Mapping[str, str], after: Mapping[str, str], foreign: Mapping[str, str]
) -> None:
    world = Listed((), lists=(record_list(**{f"{name}_A": value for name, value in after.items()}),))
    for name, value in before.items():
        world.put(name, "A", value, mark())
    for name, value in foreign.items():
        world.put(name, "TXT", f'"{value}"')
    world.settle()

    gone = before.keys() - after.keys()
    kept = gone if len(gone) > 3 else set()  # so many need approval
    wanted = {f"{name} TXT": f'"{value}"' for name, value in foreign.items()}
    wanted |= {f"{name} A": value for name, value in after.items()} | {f"{name} A": before[name] for name in kept}
    assert world.has() == wanted
