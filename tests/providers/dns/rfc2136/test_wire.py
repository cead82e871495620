"""Parsing zones from octets: equal to dnspython for every common type, and at most an error for any octets."""

from collections.abc import Callable

import dns.name
import dns.query
import dns.rdatatype
import dns.tsigkeyring
import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dns.common import canonical
from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import walk
from providers.dns.zonefile.parser import parse
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.providers.dns.rfc2136.name_servers import BORN, SECRETS, Knot, Named, NameServer

ZONE = "types.test."
TYPES = r"""
@ 3600 MX 10 Mail.Example.NET.
@ 3600 MX 20 mail2
@ CAA 0 issue "ca.example.net"
@ TXT "v=spf1 -all"
@ NS NS2.example.net.
a A 192.0.2.1
a A 192.0.2.2
a AAAA 2001:db8::1
a AAAA ::ffff:192.0.2.1
a LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
a HINFO "PC" "Linux"
a SSHFP 4 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789
a RP admin.example.net. text.example.net.
a NAPTR 100 50 "s" "z3950+I2L+I2C" "" _z3950._tcp.gatech.edu.
a SVCB 1 svc.example.net. alpn=h2,h3 port=8443 ipv4hint=192.0.2.1
a HTTPS 1 . alpn=h3
a URI 10 1 "ftp://ftp1.example.com/public"
a CERT 1 0 0 AQID
a DNSKEY 257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==
a AFSDB 1 afs.example.net.
a KX 10 kx.example.net.
a SPF "v=spf1 -all"
a OPENPGPKEY AQID
a SMIMEA 3 1 1 123456789abcdef67890123456789abcdef67890123456789abcdef123456789
a TYPE65400 \# 3 010203
a CDS 12345 13 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789
alias CNAME A
alias2 CNAME other.example.net.
ptr PTR Host.Example.net.
tree DNAME example.org.
_sip._tcp SRV 1 2 5060 Sip.example.net.
_443._tcp TLSA 3 1 1 123456789abcdef67890123456789abcdef67890123456789abcdef123456789
*.wild A 192.0.2.3
UPPER A 192.0.2.4
odd\.dot TXT "one"
sp\032ace TXT "one" "two"
text TXT "back\\slash \"quoted\"; semi"
text TXT "\195\188\000\127"
text TXT "" "x"
child NS ns.child
ns.child A 192.0.2.5
child DS 12345 13 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789
"""


@pytest.mark.parametrize(
    "make",
    [pytest.param(Named, marks=pytest.mark.server("named")), pytest.param(Knot, marks=pytest.mark.server("knotd"))],
)
def test_a_zone_with_every_common_type_is_read_as_dnspython_reads_it(
    make: type[NameServer], tmp_path, here: Callable[..., Context]
) -> None:
    text = BORN.format(zone=ZONE) + TYPES
    server = make(tmp_path / "server", {ZONE: text})
    try:
        server.start()
        (fact,) = server.provider(here()).observe([ZONE])
        other = dns.zone.Zone(ZONE, relativize=False)
        keyring = dns.tsigkeyring.from_text({"transfer.key": SECRETS["transfer.key"]})
        query, _ = dns.xfr.make_query(other, keyring=keyring, keyname="transfer.key", keyalgorithm="hmac-sha256")
        dns.query.inbound_xfr("127.0.0.1", other, query, port=server.port, timeout=60, lifetime=60)
    finally:
        server.kill()
    # Each value of dnspython is converted to the canonical spelling.
    expected: dict[RecordKey, tuple[int, set[str]]] = {}
    for name, rdataset in other.iterate_rdatasets():
        kind = dns.rdatatype.to_text(rdataset.rdtype)
        if kind != "SOA":
            key = RecordKey(canonical.name(name.to_text(), "."), kind)
            expected[key] = (rdataset.ttl, {canonical.value(kind, rdata.to_text(), ".") for rdata in rdataset})
    assert {key: (record.ttl, set(record.values)) for key, record in fact.records.items()} == expected
    assert len(expected) > 35
    # The zone file provider reads the same from the file.
    assert dict(fact.records) == parse(text, ZONE).records


@given(st.binary(max_size=300))
def test_any_octets_are_a_message_or_malformed(octets: bytes) -> None:
    try:
        message = wire.parse(octets)
        names: dict[int, str] = {}
        for _, record in walk(message, names)[0]:
            wire.value_at(message, record, names)
    except wire.Malformed:
        pass


@given(st.data())
def test_changed_or_missing_octets_give_a_message_or_malformed(data: st.DataObject) -> None:
    octets = bytearray(_message())
    for _ in range(data.draw(st.integers(0, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(0, len(octets)))])
    test_any_octets_are_a_message_or_malformed.hypothesis.inner_test(cut)  # type: ignore[attr-defined]


def test_names_that_point_to_themselves_or_forward_are_malformed() -> None:
    head = wire.HEADER.pack(1, wire.RESPONSE, 1, 0, 0, 0)
    for name in (b"\xc0\x0c", b"\xc0\x0e\xc0\x0c", b"\x01a\xc0\x0c", b"\xc0\x20", b"\x41a\x00"):
        with pytest.raises(wire.Malformed):
            wire.parse(head + name + b"\0\1\0\1" + bytes(40))


def test_long_chains_of_pointers_end() -> None:
    chain = b"\x01a\x00" + b"".join(
        (0xC000 | (12 if i == 0 else 15 + 2 * (i - 1))).to_bytes(2, "big") for i in range(4000)
    )
    with pytest.raises(wire.Malformed, match="too many labels"):
        wire.name_at(bytes(12) + chain, 12 + len(chain) - 2, {})


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6))
def test_a_written_name_is_read_back(labels: list[bytes]) -> None:
    text = dns.name.Name([*labels, b""]).canonicalize().to_text()
    octets = wire.name_wire(text)
    assert wire.name_at(octets, 0, {}) == (text, len(octets))
    assert canonical.name(text, ".") == text


@given(st.lists(st.binary(max_size=255), min_size=1, max_size=4))
def test_a_written_text_is_read_back(strings: list[bytes]) -> None:
    octets = b"".join(bytes((len(string),)) + string for string in strings)
    message = wire.parse(wire.HEADER.pack(1, wire.RESPONSE, 0, 1, 0, 0) + b"\0" + octets)
    record = wire.Record(".", wire.TXT, 1, 0, 13, len(octets))
    value = wire.value_at(message, record, {})
    assert wire.value_wire("TXT", value) == octets
    assert canonical.value("TXT", value, ".") == value


def _message() -> bytes:
    zone = wire.name_wire("example.test.")
    answer = [
        wire.record_wire(wire.owner_wire("a.example.test.", "example.test."), wire.A, 1, 60, bytes(4)),
        wire.record_wire(wire.ZONE_POINTER, wire.NS, 1, 60, wire.name_wire("ns.example.net.")),
        wire.record_wire(wire.ZONE_POINTER, 15, 1, 60, b"\0\1" + wire.name_wire("mx.example.net.")),
        wire.record_wire(wire.ZONE_POINTER, wire.TXT, 1, 60, b"\3one\3two"),
    ]
    head = wire.HEADER.pack(7, wire.RESPONSE | wire.AUTHORITATIVE, 1, len(answer), 0, 0)
    return head + zone + wire.QUESTION_FIXED.pack(wire.A, 1) + b"".join(answer)


def test_a_well_formed_message_is_read_whole() -> None:
    message = wire.parse(_message())
    names: dict[int, str] = {}
    parsed = {
        RecordKey(record.owner, wire.type_text(record.type)): RecordSet(
            record.ttl, (wire.value_at(message, record, names),)
        )
        for _, record in walk(message, names)[0]
    }
    assert parsed == {
        RecordKey("a.example.test.", "A"): RecordSet(60, ("0.0.0.0",)),
        RecordKey("example.test.", "NS"): RecordSet(60, ("ns.example.net.",)),
        RecordKey("example.test.", "MX"): RecordSet(60, ("1 mx.example.net.",)),
        RecordKey("example.test.", "TXT"): RecordSet(60, ('"one" "two"',)),
    }
