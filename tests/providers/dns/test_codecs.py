"""Laws of the codecs: every record survives each provider's spelling, and so does its mark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.geo import CONTINENTS, LONG_COUNTRIES, country_code, country_geo, geo_kind
from providers.actions import RecordChange
from providers.dns.common import canonical
from providers.dns.common.change import canonical_change
from providers.dns.common.ownership import Marked, mark_key, mark_record, marked_key, quote, split
from providers.dns.powerdns import codec as powerdns
from providers.dns.route53 import codec as route53
from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet

ZONE = "example.test."
LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,10}[a-z0-9_])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(lambda labels: ".".join([*labels, ZONE]))
OWNERS = st.one_of(NAMES, NAMES.map("*.".__add__), st.just(ZONE))
ODD = st.binary(min_size=1, max_size=8).map(lambda raw: "".join(f"\\{octet:03d}" for octet in raw) + "." + ZONE)
TEXTS = st.binary(max_size=600).map(lambda raw: quote(raw.decode("latin-1")))
VALUES = st.one_of(
    st.tuples(st.just("A"), st.ip_addresses(v=4).map(str)),
    st.tuples(st.just("AAAA"), st.ip_addresses(v=6).map(str)),
    st.tuples(st.sampled_from(["CNAME", "NS", "PTR", "DNAME"]), st.one_of(NAMES, ODD)),
    st.tuples(st.just("MX"), st.builds(lambda rank, name: f"{rank} {name}", st.integers(0, 65535), NAMES)),
    st.tuples(
        st.just("SRV"),
        st.builds(
            lambda integer, two, three, name: f"{integer} {two} {three} {name}", *[st.integers(0, 65535)] * 3, NAMES
        ),
    ),
    st.tuples(
        st.just("CAA"),
        st.builds(
            lambda flags, tag, text: f"{flags} {tag} {quote(text)}",
            st.integers(0, 255),
            st.sampled_from(["issue", "issuewild", "iodef"]),
            st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60),
        ),
    ),
    st.tuples(st.just("TXT"), TEXTS),
)
SET_IDS = st.one_of(
    st.just(""), st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, categories=["L", "N", "P"]), max_size=128)
)
PLACES = st.sampled_from([*sorted(CONTINENTS), *LONG_COUNTRIES, "DE", "US", "US-CA", "*"])


def canonical_set(kind: str, value: str) -> RecordSet:
    change = canonical_change(RecordChange(RecordKey(ZONE, kind), None, RecordSet(60, (value,)), "suite/x"))
    assert change.after is not None
    return change.after


@given(st.one_of(OWNERS, ODD), VALUES)
def test_a_record_survives_the_spelling_of_powerdns(owner: str, value: tuple[str, str]) -> None:
    key = RecordKey(canonical.absolute(owner), value[0])
    record = canonical_set(*value)
    sent = powerdns.encode(key, record)
    assert powerdns.decode([sent]) == {key: record}


@given(st.one_of(OWNERS, ODD), VALUES, SET_IDS, st.one_of(st.none(), st.integers(0, 255), PLACES))
def test_a_record_survives_the_spelling_of_route_53(
    owner: str, value: tuple[str, str], set_id: str, policy: int | str | None
) -> None:
    weight, geo = (policy, "") if isinstance(policy, int) else (None, policy or "")
    key = RecordKey(canonical.absolute(owner), value[0], set_id)
    record = canonical_set(*value)._replace(weight=weight, geo=geo)
    sent = route53.encode(key, record, "Z1", None)
    assert sent["Name"].isascii()
    found = route53.decode(sent)
    assert (found[0], found[1].record) == (key, record)


@given(OWNERS, SET_IDS)
def test_an_alias_survives_the_spelling_of_route_53(owner: str, set_id: str) -> None:
    key, record = RecordKey(owner, "A", set_id), RecordSet(0, (f"*.lb.{ZONE}",), alias=True)
    found = route53.decode(route53.encode(key, record, "Z1", None))
    assert (found[0], found[1].record) == (key, record)


@given(VALUES)
def test_a_canonical_value_is_canonical(value: tuple[str, str]) -> None:
    record = canonical_set(*value)
    assert canonical_set(value[0], record.values[0]) == record


@given(
    st.lists(
        st.tuples(
            st.one_of(OWNERS, ODD), st.sampled_from(["A", "TXT", "CNAME", "NS", "DS", "DNAME", "NSAP-PTR"]), SET_IDS
        )
    )
)
def test_each_set_has_a_mark_of_its_own_that_leads_back_to_it(sets: list[tuple[str, str, str]]) -> None:
    keys = {RecordKey(canonical.absolute(owner), kind, set_id) for owner, kind, set_id in sets}
    keys = {key for key in keys if not key.name.startswith(("_reconciler-", "_wildcard."))}
    data = dict.fromkeys(keys, RecordSet(60, ("x",)))
    marks = {mark_key(key, ZONE): mark_record(f"suite/{index}", key, ZONE) for index, key in enumerate(keys)}
    assert len(marks) == len(keys)
    assert all(canonical.absolute(mark.name) == mark.name for mark in marks)
    found = split(data | marks)
    assert found == Marked(data, {key: f"suite/{index}" for index, key in enumerate(keys)}, found.marks)
    assert found.marks.keys() == keys


def test_the_mark_of_a_delegation_is_beside_it_and_the_zones_inside() -> None:
    child = RecordKey(f"child.{ZONE}", "NS")
    mark = mark_key(child, ZONE)
    assert mark.name.endswith(f".{ZONE}")
    assert not mark.name.endswith(f".child.{ZONE}")
    assert marked_key(mark, mark_record("suite/x", child, ZONE)) == child
    assert mark_key(RecordKey(ZONE, "NS"), ZONE).name == f"_reconciler-ns.{ZONE}"


def test_a_mark_whose_text_was_changed_has_no_owner() -> None:
    key = RecordKey(f"app.{ZONE}", "A", "one")
    other = mark_record("suite/x", RecordKey(f"app.{ZONE}", "A", "two"))
    found = marked_key(mark_key(key), other)
    assert found is not None
    assert found.set_id not in ("one", "two")


@pytest.mark.parametrize(
    ("kind", "text", "spelling"),
    [
        ("CNAME", "bücher.example", "xn--bcher-kva.example."),
        ("MX", "10 Müller.Example.NET", "10 xn--mller-kva.example.net."),
        ("SRV", "1 2 443 bücher.example.", "1 2 443 xn--bcher-kva.example."),
        ("AAAA", "2001:DB8:0:0::1", "2001:db8::1"),
        ("TXT", "bare", '"bare"'),
        ("TXT", '"ü"', '"\\195\\188"'),
        ("CAA", "0 issue ca.example.net", '0 issue "ca.example.net"'),
    ],
)
def test_what_a_person_writes_gets_one_spelling(kind: str, text: str, spelling: str) -> None:
    assert canonical_set(kind, text).values == (spelling,)


@pytest.mark.parametrize(
    ("kind", "text"), [("CNAME", "straße.example"), ("A", "1.2.3"), ("MX", "mail"), ("CNAME", "a..b")]
)
def test_what_is_no_value_is_refused(kind: str, text: str) -> None:
    with pytest.raises(Rejected):
        canonical_set(kind, text)


@given(PLACES)
def test_a_place_has_one_code_and_countries_have_two_letters_outside(geo: str) -> None:
    assert geo_kind(geo) is not None
    if geo_kind(geo) == "country":
        assert country_geo(country_code(geo)) == geo
    assert geo_kind(geo.lower()) is None or geo == "*"


@pytest.mark.parametrize("ttl", [float("inf"), float("nan"), "x", None, []])
def test_a_ttl_of_powerdns_that_is_no_number_is_a_value_error(ttl):
    with pytest.raises(ValueError, match=r"not as expected|invalid literal|cannot convert"):
        powerdns.decode([{"type": "A", "name": ZONE, "ttl": ttl, "records": [{"content": "192.0.2.1"}]}])


def test_a_value_of_a_type_that_does_not_exist_is_a_value_error():
    with pytest.raises(ValueError, match="is not a value of type"):
        canonical.value("A\nX", "192.0.2.1", ".")
