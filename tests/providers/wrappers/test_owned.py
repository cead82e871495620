"""Ownership marks in a zone, and objects of other owners."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from manifests.values.desired import Container, Template
from manifests.values.pod import Live
from providers.actions import (
    ChangeRecords,
    CreateContainer,
    EndpointAction,
    RecordChange,
    RemoveContainer,
    RuntimeAction,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.dns.common.ownership import mark_key, mark_record, marked_key, quote, read_mark, unquote
from providers.errors import Conflict, Foreign, Rejected, Unreachable
from providers.facts import (
    ContainerState,
    Endpoint,
    Generation,
    Mark,
    PoolFact,
    RecordKey,
    RecordSet,
    ZoneFact,
    container_name,
    mark_labels,
)
from providers.spi import Context, Performed
from providers.testing.memory import MemoryDNS, MemoryEndpoints, MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.owned import owned

ZONE = "example.test."
A1, A2 = RecordSet(60, ("192.0.2.1",)), RecordSet(60, ("192.0.2.2",))
APP = RecordKey(f"app.{ZONE}", "A")
MARK = RecordKey(f"_reconciler-a.app.{ZONE}", "TXT")


@pytest.fixture
def bare() -> MemoryDNS:
    return MemoryDNS("zone", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())


def change(
    bare: MemoryDNS, before: RecordSet | None, after: RecordSet | None, key: RecordKey = APP, who: str = "demo"
) -> None:
    owned(bare, who).perform(ChangeRecords("zone", ZONE, (RecordChange(key, before, after, f"{who}/DNSPolicy/app"),)))


def raw(bare: MemoryDNS) -> ZoneFact:
    return bare.observe([ZONE])[0]


@pytest.mark.parametrize(
    ("key", "where"),
    [
        (RecordKey("app.example.test.", "A"), "_reconciler-a.app.example.test."),
        (RecordKey("app.example.test.", "AAAA"), "_reconciler-aaaa.app.example.test."),
        (RecordKey("*.example.test.", "A"), "_reconciler-a._wildcard.example.test."),
        (RecordKey("example.test.", "A"), "_reconciler-a.example.test."),
        (RecordKey("app.example.test.", "TXT"), "_reconciler-txt.app.example.test."),
    ],
)
def test_a_mark_lies_below_the_zone_and_beside_its_set(key: RecordKey, where: str) -> None:
    assert mark_key(key) == RecordKey(where, "TXT")
    assert marked_key(mark_key(key)) == key


@pytest.mark.parametrize("name", ["_reconciler-a.app.example.test.", "_wildcard.example.test.", ("x" * 60 + ".") * 4])
def test_names_without_room_for_a_mark_are_rejected(bare: MemoryDNS, name: str) -> None:
    with pytest.raises(Rejected):
        mark_key(RecordKey(name, "A"))


@pytest.mark.parametrize("text", ["plain", 'a "quote"', "back\\slash", "ünïcode", "x" * 600, "", "\\065 \x01"])
def test_a_text_survives_quoting(text: str) -> None:
    assert unquote(quote(text)) == text
    assert all(len(piece) <= 255 * 4 + 2 for piece in quote(text).split('" "'))


def test_data_and_mark_are_written_and_removed_in_one_change(bare: MemoryDNS) -> None:
    change(bare, None, A1)
    fact = raw(bare)
    assert fact.serial == 1
    assert fact.records == {APP: A1, MARK: RecordSet(300, ('"reconciler/v1 owner=demo/DNSPolicy/app"',))}
    seen = owned(bare, "demo").observe([ZONE])[0]
    assert (seen.records, seen.owners) == ({APP: A1}, {APP: "demo/DNSPolicy/app"})

    change(bare, A1, None)
    assert raw(bare).records == {}
    assert raw(bare).serial == 2


def test_a_set_removed_by_hand_is_written_again_over_its_stale_mark(bare: MemoryDNS) -> None:
    change(bare, None, A1)
    bare.plant(ZONE, APP, None)
    assert owned(bare, "demo").observe([ZONE])[0].owners == {}
    change(bare, None, A2)
    assert raw(bare).records[APP] == A2
    bare.plant(ZONE, APP, None)
    change(bare, None, None)
    assert raw(bare).records == {}


def test_a_mark_removed_by_hand_makes_the_set_foreign(bare: MemoryDNS) -> None:
    change(bare, None, A1)
    bare.plant(ZONE, MARK, None)
    with pytest.raises(Foreign, match=r"exists without an owner mark of this instance: 192\.0\.2\.1"):
        change(bare, A1, A2)
    assert raw(bare).records == {APP: A1}


def adopt(bare: MemoryDNS, before: RecordSet | None, after: RecordSet | None) -> None:
    taken = RecordChange(APP, before, after, "demo/DNSPolicy/app", adopts=True)
    owned(bare, "demo").perform(ChangeRecords("zone", ZONE, (taken,)))


@pytest.mark.parametrize("after", [A1, A2])
def test_a_set_without_a_mark_is_adopted_with_its_mark_in_one_change(bare: MemoryDNS, after: RecordSet) -> None:
    bare.plant(ZONE, APP, A1)
    adopt(bare, A1, after)
    assert raw(bare).records == {APP: after, MARK: mark_record("demo/DNSPolicy/app")}


def test_a_set_that_changed_before_it_was_adopted_stays_as_it_is(bare: MemoryDNS) -> None:
    bare.plant(ZONE, APP, A2)
    with pytest.raises(Conflict, match=r"found 192\.0\.2\.2"):
        adopt(bare, A1, A1)
    assert raw(bare).records == {APP: A2}


def test_a_set_of_another_instance_is_never_adopted(bare: MemoryDNS) -> None:
    change(bare, None, A1, who="other")
    with pytest.raises(Foreign, match="belongs to other/DNSPolicy/app"):
        adopt(bare, A1, A1)
    assert raw(bare).records[MARK] == mark_record("other/DNSPolicy/app")


def test_a_stale_mark_of_another_instance_still_counts(bare: MemoryDNS) -> None:
    bare.plant(ZONE, MARK, mark_record("other/DNSPolicy/app"))
    with pytest.raises(Foreign, match="belongs to other/DNSPolicy/app; remove it from the manifests") as refused:
        change(bare, None, A1)
    assert "_reconciler" not in str(refused.value), "a mark that is removed by hand takes the set from its owner"


@pytest.mark.parametrize(
    "values",
    [('"hello"',), ('"reconciler/v2 owner=demo/x"',), ('"reconciler/v1 owner=demo"',), tuple(map(quote, ("reconciler/v1 owner=demo/a", "reconciler/v1 owner=other/a")))],
)  # fmt: skip
def test_a_mark_that_cannot_be_read_counts_as_another_owners(bare: MemoryDNS, values: tuple[str, ...]) -> None:
    assert read_mark(RecordSet(60, values)).startswith("?/")
    bare.plant(ZONE, MARK, RecordSet(60, values))
    with pytest.raises(Foreign):
        change(bare, None, A1)
    assert raw(bare).records == {MARK: RecordSet(60, values)}


def test_a_mark_in_several_pieces_is_the_same_mark() -> None:
    assert read_mark(RecordSet(60, ('"reconciler/v1 " "owner=demo/a"',))) == "demo/a"


def test_an_instance_whose_id_begins_like_ours_is_another_one(bare: MemoryDNS) -> None:
    change(bare, None, A1, who="demo-2")
    with pytest.raises(Foreign, match="demo-2"):
        change(bare, A1, A2, who="demo")


def test_a_change_for_another_instance_is_refused(bare: MemoryDNS) -> None:
    action = ChangeRecords("zone", ZONE, (RecordChange(APP, None, A1, "other/DNSPolicy/app"),))
    with pytest.raises(Foreign, match="this is instance demo"):
        owned(bare, "demo").perform(action)


class Racing(MemoryDNS):
    """A zone that another instance writes to between our look and our change."""

    def observe(self, zones):  # type: ignore[no-untyped-def]
        fact = super().observe(zones)
        self.plant(ZONE, MARK, mark_record("other/DNSPolicy/app"))
        return fact


def test_a_mark_that_appears_between_look_and_change_is_a_conflict() -> None:
    bare = Racing("zone", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    with pytest.raises(Conflict):
        change(bare, None, A1)
    assert APP not in raw(bare).records


def test_containers_with_no_mark_or_an_inherited_one_are_never_touched() -> None:
    runtime = MemoryRuntime("one", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    mark = Mark("demo", "web", 0, "0123456789")
    name = container_name(mark)
    actions: list[RuntimeAction] = [
        CreateContainer("one", name, mark, Template((), Container("web", ())), "/"),
        StartContainer("one", name, Generation("memory-1", 0)),
        StopContainer("one", name, Generation("memory-1", 0), 0),
    ]
    inherited = mark_labels(mark._replace(ordinal=9), 1)
    for labels, why in (({}, "no owner mark"), (inherited, "name another container")):
        runtime.plant(name, labels)
        before = runtime.observe([name])
        for action in actions:
            with pytest.raises(Foreign, match=why):
                owned(runtime, "demo").perform(action)
        with pytest.raises(Foreign, match=why):
            owned(runtime, "demo").exec_target(name, ("true",))
        assert runtime.observe([name]) == before
        runtime.vanish(name)


def adoptable(*labels: tuple[str, str]) -> tuple[MemoryRuntime, str]:
    runtime = MemoryRuntime("one", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    runtime.plant("shop", dict(labels), live=(Live("", restart="always"),))
    return runtime, "shop"


def acts(name: str, expect: Generation) -> list[RuntimeAction]:
    return [
        UpdateContainer("one", name, expect, (Live("", restart="no"),), adopted=True),
        StopContainer("one", name, expect, 0, adopted=True),
        StartContainer("one", name, expect, adopted=True),
    ]


@pytest.mark.parametrize("labels", [(), (("reconciler.enhanced-liveness", "true"),)])
def test_a_container_without_a_mark_is_changed_only_if_adopted(
    labels: tuple[tuple[str, str], ...],
) -> None:
    runtime, name = adoptable(*labels)
    (before,) = runtime.observe([name])
    for action in acts(name, before.generation):
        with pytest.raises(Foreign, match="no owner mark"):
            owned(runtime, "demo").perform(replace(action, adopted=False))
        assert runtime.observe([name]) == (before,)
    for action in acts(name, before.generation):
        owned(runtime, "demo").perform(action)
    (after,) = runtime.observe([name])
    assert (after.state, after.live) == (ContainerState.RUNNING, (Live("", restart="no"),))
    assert after.generation != before.generation


def test_an_adopted_container_is_known_by_its_id() -> None:
    runtime, name = adoptable()
    (old,) = runtime.observe([name])
    runtime.vanish(name)
    runtime.plant(name, {})
    for action in acts(name, old.generation):
        with pytest.raises(Foreign, match="was adopted"):
            owned(runtime, "demo").perform(action)


def test_an_adopted_container_that_has_a_mark_now_is_looked_at_again() -> None:
    runtime, name = adoptable()
    (old,) = runtime.observe([name])
    runtime.vanish(name)
    runtime.plant(name, mark_labels(Mark("other", "web", 0, "0123456789"), 1))
    for action in acts(name, old.generation):
        with pytest.raises(Foreign, match="has one now"):
            owned(runtime, "demo").perform(action)


def test_a_label_for_liveness_never_lets_a_container_be_removed() -> None:
    runtime, name = adoptable(("reconciler.enhanced-liveness", "true"))
    runtime.exit(name)
    (fact,) = runtime.observe([name])
    with pytest.raises(Foreign, match="allows restarts only"):
        owned(runtime, "demo").perform(RemoveContainer("one", name, fact.generation, adopted=True))
    assert runtime.observe([name]) == (fact,)


def test_a_command_runs_in_an_adopted_container_only_by_its_id() -> None:
    runtime, name = adoptable()
    (fact,) = runtime.observe([name])
    with pytest.raises(Foreign):
        owned(runtime, "demo").exec_target(name, ("true",))
    assert owned(runtime, "demo").exec_target(fact.id, ("true",)).argv == ("true",)


class Counted(MemoryEndpoints):
    """Endpoints that count looks and calls; a pool called `broken` cannot be read."""

    looks, calls = 0, 0

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        self.looks += 1
        if "broken" in pools:
            raise Unreachable("broken", "no answer")
        return super().observe(pools)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        self.calls += 1
        return super().perform(actions)


def put(pool: str, number: int) -> SetWeight:
    return SetWeight("edge", pool, Endpoint(f"192.0.2.{number}", 80), "", 10, None)


def test_a_batch_costs_one_look_per_pool_and_foreign_costs_no_call() -> None:
    inner = Counted("edge", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    inner.plant("web", Endpoint("192.0.2.1", 80), 5)
    mine = owned(inner, "demo")
    outcomes = mine.perform([put("web", 1), put("api", 2), put("broken", 3), put("web", 4), put("api", 5)]).errors
    assert [type(outcome) for outcome in outcomes] == [Foreign, type(None), Unreachable, type(None), type(None)]
    assert (inner.looks, inner.calls) == (3, 1)
    assert [type(one) for one in mine.perform([put("web", 1)]).errors] == [Foreign]
    assert (inner.looks, inner.calls) == (4, 1)


def test_a_provider_that_checks_ownership_itself_is_not_looked_at_twice() -> None:
    class Checking(Counted):
        checks_ownership = True

    inner = Checking("edge", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    Counted("edge", MemorySettings(), Context("other", "/nowhere"), inner.world).perform([put("web", 1)])
    mine = owned(inner, "demo")
    assert [type(one) for one in mine.perform([put("web", 1), put("web", 2)]).errors] == [Foreign, type(None)]
    assert inner.looks == 0
