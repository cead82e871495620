"""Values in manifests have the same spelling as in looks at a zone."""

import base64

import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.types import rdata, record_types
from providers.dns.common import canonical
from providers.dns.common.ownership import unquote
from providers.dns.powerdns import codec as powerdns
from providers.dns.rfc2136.wire import value_wire
from providers.facts import RecordKey, RecordSet

KEY = RecordKey("app.example.test.", "A")

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
OCTET = st.integers(0, 255)
STRINGS = st.text(max_size=40).map(lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
HEX = st.binary(min_size=1, max_size=90).map(
    lambda raw: " ".join(raw.hex().upper()[at : at + 7] for at in range(0, 2 * len(raw), 7))
)
BASE64 = (
    st.binary(min_size=1, max_size=200)
    .map(lambda raw: base64.b64encode(raw).decode())
    .map(lambda text: " ".join(text[at : at + 30] for at in range(0, len(text), 30)))
)
ANGLE = st.builds(
    "{} {} {}.{:03d}".format, st.integers(0, 89), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999)
)
METRES = st.integers(0, 9_000_000_000).map(lambda number: f"{number / 100:.2f}m")
PARAMETERS = st.builds(
    lambda first, port, hint, key, text: f"{first} port={port} key{key}={text} ipv6hint={hint} no-default-alpn",
    st.sampled_from(["alpn=h2,h3", 'alpn="dot"', "mandatory=port,alpn alpn=h3"]),
    SHORT,
    st.ip_addresses(v=6),
    st.integers(7, 65_534),
    STRINGS,
)
NEW_VALUES = st.one_of(
    st.tuples(
        st.sampled_from(["TLSA", "SMIMEA"]),
        st.builds("{} {} {} ( {} )".format, OCTET, OCTET, st.sampled_from([0, 3, 255]), HEX),
    ),
    st.tuples(st.just("SSHFP"), st.builds("{} {} {}".format, OCTET, st.sampled_from([3, 255]), HEX)),
    st.tuples(
        st.just("DS"),
        st.builds(
            "{} {} {} {}".format,
            SHORT,
            st.sampled_from(["8", "ED25519", "200"]),
            st.just(2),
            st.binary(min_size=32, max_size=32).map(bytes.hex),
        ),
    ),
    st.tuples(
        st.just("CERT"), st.builds("{} {} {} {}".format, st.sampled_from(["PGP", "7", "300"]), SHORT, OCTET, BASE64)
    ),
    st.tuples(st.just("OPENPGPKEY"), BASE64),
    st.tuples(
        st.just("URI"),
        st.builds(
            "{} {} {}".format,
            SHORT,
            SHORT,
            st.text(min_size=1, max_size=40).map(
                lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
            ),
        ),
    ),
    st.tuples(
        st.just("NAPTR"),
        st.builds(
            "{} {} {} {} {} {}".format, SHORT, SHORT, st.sampled_from(['"S"', "u", '""']), STRINGS, STRINGS, NAMES
        ),
    ),
    st.tuples(st.just("HINFO"), st.builds("{} {}".format, STRINGS, STRINGS)),
    st.tuples(st.just("RP"), st.builds("{} {}".format, NAMES, NAMES)),
    st.tuples(
        st.just("LOC"),
        st.builds(
            "{} {} {} {} {} {} {} {}".format,
            ANGLE,
            st.sampled_from("NS"),
            ANGLE,
            st.sampled_from("EW"),
            METRES.map(lambda text: text if len(text) < 11 else "-5.5m"),
            METRES,
            METRES,
            METRES,
        ),
    ),
    st.tuples(
        st.sampled_from(["SVCB", "HTTPS"]), st.builds("{} {} {}".format, st.integers(1, 65_535), NAMES, PARAMETERS)
    ),
    st.tuples(
        st.sampled_from(["TYPE65280", "TYPE300"]),
        st.binary(max_size=300).map(lambda raw: f"\\# {len(raw)} {raw.hex()}"),
    ),
)


@given(VALUES)
def test_values_have_the_spelling_of_the_providers(value: tuple[str, str]) -> None:
    kind, text = value
    spelled = record_types.value(kind, text)
    assert canonical.value(kind, spelled, ".") == spelled


@given(NEW_VALUES)
def test_values_of_newer_types_have_it_and_survive_the_wire(value: tuple[str, str]) -> None:
    kind, text = value
    spelled = record_types.value(kind, text)
    assert canonical.value(kind, spelled, ".") == spelled
    assert record_types.value(kind, spelled) == spelled
    octets = value_wire(kind, spelled)
    assert canonical.value(kind, f"\\# {len(octets)} {octets.hex()}", ".") == spelled
    assert powerdns.decode([powerdns.encode(KEY._replace(type=kind), RecordSet(60, (spelled,)))]) == {
        KEY._replace(type=kind): RecordSet(60, (spelled,))
    }


@pytest.mark.parametrize("kind", record_types.TYPES)
def test_the_example_of_each_type_is_a_value_of_it(kind: str) -> None:
    row = record_types.TABLE[kind]
    spelled = record_types.value(kind, row.example)
    assert canonical.value(kind, spelled, ".") == spelled
    assert int(dns.rdatatype.from_text(kind)) == row.number


def test_the_table_knows_every_type_that_the_library_names() -> None:
    named = {int(kind): kind.name for kind in dns.rdatatype.RdataType if not dns.rdatatype.is_metatype(kind)}
    named = {number: name for number, name in named.items() if number and number not in range(128, 256)}
    assert {number: record_types.number_name(number).replace("-", "_") for number in named} == named


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
        ("TLSA", f"3 1 1 ({'AB' * 16}\n {'cd' * 16})", f"3 1 1 {'ab' * 16}{'cd' * 16}"),
        ("DS", f"1 ECDSAP256SHA256 2 {'0b' * 32}", f"1 13 2 {'0b' * 32}"),
        ("CERT", "PGP 0 RSASHA256 QUJD", "3 0 8 QUJD"),
        ("HTTPS", "1 . port=443 alpn=h3,h2", '1 . alpn="h3,h2" port="443"'),
        ("SVCB", "1 . dohpath=/q{?dns} alpn=h2", '1 . alpn="h2" key7="/q{?dns}"'),
        ("LOC", "52 22 23 N 4 53 32 E -2m 0m 10000m 10m", "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000.00m 10.00m"),
        ("NAPTR", '100 10 u E2U+sip "!^.*$!sip:i@e.test!" .', '100 10 "u" "E2U+sip" "!^.*$!sip:i@e.test!" .'),
        ("TYPE65280", "\\# 4 C0 00 02 01", "\\# 4 c0000201"),
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
        ("TYPE6", "x", "TYPE6 is SOA, which manifests cannot declare"),
        ("TYPE52", "\\# 0", "TYPE52 is TLSA; write TLSA"),
        ("TYPE250", "\\# 0", "no type of records"),
        ("TYPE65536", "\\# 0", "no type of records"),
        ("TYPE65280", "\\# 3 00", "gives its length as 3"),
        ("TYPE65280", "00", "HEX"),
        ("TLSA", "3 1 1 abc", "hexadecimal"),
        ("TLSA", "3 1 1 ab", "a digest of kind 1 has 32 octets, not 1"),
        ("SSHFP", "4 2 ab", "a fingerprint of kind 2 has 32 octets, not 1"),
        ("HTTPS", "0 . alpn=h2", "priority 0 is an alias"),
        ("HTTPS", "1 . alpn", "needs a value"),
        ("HTTPS", "1 . port=x", "port must be a number"),
        ("HTTPS", "1 . mandatory=alpn", "alpn, which is not given"),
        ("HTTPS", "1 . colour=blue", "not a service parameter"),
        ("HTTPS", "1 . alpn=h2 alpn=h3", "given twice"),
        ("LOC", "91 N 4 E 0m", "at most 90 degrees"),
        ("URI", '1 2 ""', "must not be empty"),
        ("NAPTR", '1 2 "u" "x" "!', "write: ORDER"),
        ("OPENPGPKEY", "???", "base64"),
    ],
)
def test_a_bad_value_is_refused_with_its_cause(kind: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record_types.value(kind, text)
