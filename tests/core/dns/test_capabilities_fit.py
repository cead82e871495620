"""Fitting wanted record sets to a provider: a second fit changes nothing, and no name loses its answer."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.geo import GeoKind
from providers.actions import RecordChange
from providers.capabilities import PLAIN, Alias, DNSCapabilities
from providers.dns.common.change import changed_sets
from providers.facts import RecordKey, RecordSet
from reconciler.core.dns.capabilities_fit import Lack, adapt

ZONE = "example.test."
ALL = DNSCapabilities(weight=(0, 255), geo=frozenset(GeoKind), alias=Alias.ANY)


def key(label: str, kind: str = "A", set_id: str = "") -> RecordKey:
    return RecordKey(f"{label}.{ZONE}" if label else ZONE, kind, set_id)


def a(*values: str, ttl: int = 60, weight: int | None = None, geo: str = "") -> RecordSet:
    return RecordSet(ttl, values, weight, geo)


def name(target: str, ttl: int = 60, weight: int | None = None, geo: str = "") -> RecordSet:
    return RecordSet(ttl, (f"{target}.{ZONE}" if not target.endswith(".") else target,), weight, geo)


TREE = {
    key("app", "CNAME"): name("lb", 300),
    key("lb", "CNAME", "eu"): name("eu.lb", 300, geo="EU"),
    key("lb", "CNAME", "us"): name("us.lb", 300, geo="US"),
    key("lb", "CNAME", "default"): name("eu.lb", 300, geo="*"),
    key("eu.lb", "CNAME", "g1"): name("g1.lb", weight=120),
    key("eu.lb", "CNAME", "g2"): name("g2.lb", weight=60),
    key("us.lb", "CNAME", "g3"): name("g3.lb", weight=1),
    key("g1.lb"): a("192.0.2.1", "192.0.2.2"),
    key("g2.lb"): a("192.0.2.3"),
    key("g2.lb", "AAAA"): a("2001:db8::3"),
    key("g3.lb"): a("192.0.2.9"),
}


def test_a_provider_that_supports_everything_gets_the_wanted_sets() -> None:
    assert adapt(TREE, ZONE, ALL) == (dict(sorted(TREE.items())), ())


def test_without_weights_and_places_a_tree_leads_to_the_default_place() -> None:
    adapted = adapt(TREE, ZONE, PLAIN)
    assert adapted.records[key("app", "CNAME")] == name("lb", 300)
    assert adapted.records[key("lb", "CNAME")] == name("eu.lb", 300)
    assert adapted.records[key("eu.lb")] == a("192.0.2.1", "192.0.2.2", "192.0.2.3")
    assert adapted.records[key("eu.lb", "AAAA")] == a("2001:db8::3")
    assert adapted.records[key("us.lb")] == a("192.0.2.9")
    assert {note.lack for note in adapted.notes} == {Lack.WEIGHT, Lack.GEO}
    assert {note.key for note in adapted.notes} == {member for member in TREE if member.set_id}


def test_weighted_addresses_become_equal_shares_without_those_of_weight_0() -> None:
    wanted = {key("app", "A", "a"): a("192.0.2.1", weight=3), key("app", "A", "b"): a("192.0.2.2", weight=0)}
    assert adapt(wanted, ZONE, PLAIN).records == {key("app"): a("192.0.2.1")}
    asleep = {member: record._replace(weight=0) for member, record in wanted.items()}
    assert adapt(asleep, ZONE, PLAIN).records == {key("app"): a("192.0.2.1", "192.0.2.2")}


def test_weighted_names_of_unknown_addresses_become_the_largest_weight() -> None:
    wanted = {
        key("app", "CNAME", "a"): name("one.example.net.", weight=5),
        key("app", "CNAME", "b"): name("two.example.net.", weight=9),
        key("app", "CNAME", "c"): name("three.example.net.", weight=9),
    }
    assert adapt(wanted, ZONE, PLAIN).records == {key("app", "CNAME"): name("two.example.net.")}
    known = {f"{label}.example.net.": [f"198.51.100.{index}"] for index, label in enumerate(("one", "two", "three"))}
    flat = adapt(wanted, ZONE, PLAIN, known=known).records
    assert flat == {key("app"): a("198.51.100.0", "198.51.100.1", "198.51.100.2")}


def test_without_a_default_the_first_listed_place_stands_for_all() -> None:
    wanted = {key("app", "A", "x"): a("192.0.2.1", geo="DE"), key("app", "A", "y"): a("192.0.2.2", geo="US")}
    assert adapt(wanted, ZONE, PLAIN).records == {key("app"): a("192.0.2.1")}
    assert adapt(wanted, ZONE, PLAIN, geo_order=["US"]).records == {key("app"): a("192.0.2.2")}


def test_clients_of_an_unsupported_place_get_the_other_members() -> None:
    can = replace(ALL, subdivisions=frozenset({"US"}))
    wanted = {
        key("app", "A", "ca"): a("192.0.2.1", geo="US-CA"),
        key("app", "A", "by"): a("192.0.2.2", geo="DE-BY"),
        key("app", "A", "d"): a("192.0.2.3", geo="*"),
    }
    adapted = adapt(wanted, ZONE, can)
    assert set(adapted.records) == {key("app", "A", "ca"), key("app", "A", "d")}
    assert [note.key.set_id for note in adapted.notes] == ["by"]


def test_weights_keep_their_ratio_and_never_become_0() -> None:
    wanted = {key("app", "A", str(weight)): a("192.0.2.1", weight=weight) for weight in (0, 1, 500, 1000)}
    adapted = adapt(wanted, ZONE, ALL)
    assert [record.weight for record in adapted.records.values()] == [0, 1, 255, 128]
    hundred = replace(ALL, weight=(1, 100))
    assert [member.set_id for member in adapt(wanted, ZONE, hundred).records] == ["1", "1000", "500"]
    assert {note.lack for note in adapted.notes} == {Lack.WEIGHT_RANGE}


def test_an_alias_becomes_a_cname_or_at_the_top_of_a_zone_addresses() -> None:
    wanted = {
        key(""): RecordSet(0, (f"eu.lb.{ZONE}",), alias=True),
        key("", "AAAA"): RecordSet(0, (f"eu.lb.{ZONE}",), alias=True),
        key("www"): RecordSet(0, (f"eu.lb.{ZONE}",), alias=True),
        key("www", "AAAA"): RecordSet(0, (f"eu.lb.{ZONE}",), alias=True),
        key("eu.lb"): a("192.0.2.1", ttl=30),
    }
    assert adapt(wanted, ZONE, PLAIN).records == {
        key(""): a("192.0.2.1", ttl=30),
        key("www", "CNAME"): RecordSet(30, (f"eu.lb.{ZONE}",)),
        key("eu.lb"): a("192.0.2.1", ttl=30),
    }
    outside = {key(""): RecordSet(0, ("lb.example.net.",), alias=True)}
    lost = adapt(outside, ZONE, PLAIN)
    assert (lost.records, [note.lack for note in lost.notes]) == ({}, [Lack.ALIAS])
    assert adapt(outside, ZONE, PLAIN, known={"lb.example.net.": ["192.0.2.5"]}).records == {key(""): a("192.0.2.5")}


def test_a_ttl_is_brought_into_range_with_a_note() -> None:
    adapted = adapt({key("app"): a("192.0.2.1", ttl=5)}, ZONE, replace(PLAIN, ttl_min=60, ttl_max=86_400))
    assert adapted.records == {key("app"): a("192.0.2.1", ttl=60)}
    assert [note.lack for note in adapted.notes] == [Lack.TTL]


# --- laws ---------------------------------------------------------------------------------------------------------

TARGETS = st.sampled_from([f"n{number}.{ZONE}" for number in range(4)] + ["out.example.net."])
CAN = st.builds(
    DNSCapabilities,
    types=st.just(frozenset()),
    weight=st.sampled_from([None, (0, 255), (1, 100)]),
    geo=st.sampled_from([frozenset(), frozenset(GeoKind), frozenset({GeoKind.COUNTRY})]),
    subdivisions=st.sampled_from([frozenset(), frozenset({"US"})]),
    alias=st.sampled_from(Alias),
    ttl_min=st.sampled_from([0, 60]),
    ttl_max=st.just(3600),
    atomic=st.just(PLAIN.atomic),
    batch_changes=st.just(0),
    batch_octets=st.just(0),
    write=st.just(PLAIN.write),
    read_back=st.just(PLAIN.read_back),
)
TTLS = st.sampled_from([5, 60, 300, 7200])


@st.composite
def zones(draw: st.DrawFn) -> dict[RecordKey, RecordSet]:
    """Record sets that DNS allows: each name has addresses, aliases or names, each plain or routed by one policy."""
    sets: dict[RecordKey, RecordSet] = {}
    for number in range(4):
        kind = draw(st.sampled_from(["none", "A", "CNAME", "alias"]))
        if kind == "none":
            continue
        policy = draw(st.sampled_from(["plain", "weight", "geo"]))
        count = 1 if policy == "plain" else draw(st.integers(1, 3))
        places = draw(st.permutations(["*", "EU", "DE", "US-CA", "DE-BY"]))
        for member in range(count):
            values = (f"192.0.2.{draw(st.integers(1, 5))}",) if kind == "A" else (draw(TARGETS),)
            own = f"n{number}.{ZONE}"
            if kind == "alias" and values == (own,):
                values = ("out.example.net.",)
            sets[RecordKey(own, "CNAME" if kind == "CNAME" else "A", "" if policy == "plain" else f"m{member}")] = (
                RecordSet(
                    0 if kind == "alias" else draw(TTLS),
                    values,
                    draw(st.integers(0, 1000)) if policy == "weight" else None,
                    places[member] if policy == "geo" else "",
                    kind == "alias",
                )
            )
    return sets


@given(zones(), CAN)
def test_the_provider_takes_adapted_sets_and_adapting_is_idempotent(
    wanted: dict[RecordKey, RecordSet], can: DNSCapabilities
) -> None:
    adapted = adapt(wanted, ZONE, can)
    assert adapt(adapted.records, ZONE, can) == (adapted.records, ())
    changes = [RecordChange(member, None, record, "suite/x") for member, record in adapted.records.items()]
    assert changed_sets(ZONE, {}, changes, can) == adapted.records


@given(zones(), CAN, st.randoms(use_true_random=False))
def test_the_order_of_the_wanted_sets_does_not_matter(wanted, can, random) -> None:
    items = list(wanted.items())
    random.shuffle(items)
    assert adapt(dict(items), ZONE, can) == adapt(wanted, ZONE, can)


@given(zones(), CAN)
def test_a_name_loses_its_answer_only_with_a_note_that_says_left_out(
    wanted: dict[RecordKey, RecordSet], can: DNSCapabilities
) -> None:
    adapted = adapt(wanted, ZONE, can)
    gone = {member.name for member in wanted} - {record.name for record in adapted.records}
    assert gone <= {note.key.name for note in adapted.notes if "left out" in note.message}
