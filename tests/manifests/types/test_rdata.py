"""Values in manifests have the same spelling as in looks at a zone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.types import rdata, record_types
from providers.dns.common import canonical
from providers.dns.common.ownership import unquote

LABELS = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,10}[A-Za-z0-9_])?", fullmatch=True)
NAMES = st.builds(
    lambda labels, wild, dot: ("*." if wild else "") + ".".join(labels) + dot,
    st.lists(LABELS, min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(["", "."]),
)
SHORT = st.integers(0, 65_535)
VALUES = st.one_of(
    st.tuples(st.just("A"), st.ip_addresses(v=4).map(str)),
    st.tuples(st.just("AAAA"), st.ip_addresses(v=6).map(lambda address: address.exploded.upper())),
    st.tuples(st.sampled_from(["CNAME", "NS", "PTR", "DNAME"]), NAMES),
    st.tuples(st.just("MX"), st.builds("{} {}".format, SHORT, NAMES)),
    st.tuples(st.just("SRV"), st.builds("{} {} {}  {}".format, SHORT, SHORT, SHORT, NAMES)),
    st.tuples(
        st.just("CAA"),
        st.builds('{} {} "{}"'.format, st.integers(0, 255), st.sampled_from(["issue", "IODEF"]), st.text(max_size=60)),
    ),
    st.tuples(st.just("TXT"), st.text(max_size=700)),
)


@given(VALUES)
def test_values_have_the_spelling_of_the_providers(value: tuple[str, str]) -> None:
    kind, text = value
    spelled = record_types.value(kind, text)
    assert canonical.value(kind, spelled, ".") == spelled


@given(NAMES)
def test_a_name_has_the_spelling_of_the_providers(name: str) -> None:
    assert rdata.record_name(name) == canonical.absolute(name)


@given(st.text(max_size=700))
def test_a_txt_value_of_any_length_is_one_text(text: str) -> None:
    assert unquote(rdata.txt(text)) == text


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("CNAME", "Bücher.Example", "xn--bcher-kva.example."),
        ("SRV", "0 0 0 .", "0 0 0 ."),
        ("CAA", '0 issue ";"', '0 issue ";"'),
        ("CAA", "0 issue ca.example.net", '0 issue "ca.example.net"'),
        ("TXT", 'v=spf1 "x"', '"v=spf1 \\"x\\""'),
        ("AAAA", "2001:DB8:0::0:1", "2001:db8::1"),
    ],
)
def test_values_of_manifests_become_canonical(kind: str, text: str, expected: str) -> None:
    assert record_types.value(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("A", "2001:db8::1", "IPv4"),
        ("A", "192.0.2.01", "IPv4"),
        ("AAAA", "fe80::1%eth0", "scope"),
        ("AAAA", "192.0.2.1", "IPv6"),
        ("MX", "mail.example.net", "PREFERENCE NAME"),
        ("MX", "70000 mail.example.net", "0 to 65535"),
        ("SRV", "1 2 x sip.example.net", "port must be a number"),
        ("CAA", "0 is-sue x", "tag"),
        ("CNAME", "a..b", "DNS name"),
        ("CNAME", "a b", "DNS name"),
        ("CNAME", "x" * 64 + ".test", "DNS name"),
        ("CNAME", ".".join(["x" * 60] * 5), "253"),
        ("CNAME", "straße.example", "xn--"),
        ("TXT", "x" * 60_001, "does not fit"),
        ("SOA", "x", "manifests cannot declare"),
    ],
)
def test_a_bad_value_is_refused_with_its_cause(kind: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record_types.value(kind, text)
