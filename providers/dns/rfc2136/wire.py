"""DNS messages as bytes (RFC 1035 section 4, RFC 2136 section 2), fast enough for whole zones: no object per record.

Used by the other modules of this room. Parsed names and values have the canonical spelling of `canonical.py`; common types take
a fast path, all others use dnspython. Written names are compressed against the zone only, so that the size of a record does not
depend on its position in the message.
"""

import re
import socket
import struct
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from manifests.types import record_types
from providers.dns.common import canonical

A, NS, CNAME, SOA, PTR, TXT, AAAA, DNAME, TSIG, IXFR, AXFR, ANY = 1, 2, 5, 6, 12, 16, 28, 39, 250, 251, 252, 255
CLASS_IN, CLASS_NONE, CLASS_ANY = 1, 254, 255

QUERY = 0
UPDATE = 5
RESPONSE = 0x8000
AUTHORITATIVE = 0x0400
TRUNCATED = 0x0200

HEADER = struct.Struct("!HHHHHH")
FIXED = struct.Struct("!HHIH")
QUESTION_FIXED = struct.Struct("!HH")

MAX_MESSAGE = 65_535
"""Octets in a message over TCP, whose length has two octets (RFC 1035 section 4.2.2)."""

MAX_LABELS = 128
"""Labels, and steps of compression, in one name; 255 octets hold no more labels (RFC 1035 section 2.3.4)."""

ZONE_POINTER = b"\xc0\x0c"
"""Points to octet 12, where the first question (in an update: the zone) begins."""

PLAIN_LABEL = re.compile(rb"[A-Za-z0-9_*-]+")
PLAIN_STRING = re.compile(rb"[ !#-\[\]-~]*")
ONE_NAME = frozenset({NS, CNAME, PTR, DNAME})


class Malformed(Exception):
    """The octets are not a DNS message."""


class Message(NamedTuple):
    """A message's header, and the offset of its records. `rcode` is that of the header, without extensions."""

    wire: bytes
    id: int
    flags: int
    answers: int
    authorities: int
    additionals: int
    records_at: int

    @property
    def rcode(self) -> int:
        """The response code."""
        return self.flags & 15


class Record(NamedTuple):
    """One record of a message; `at` and `length` are the position of its value in the octets."""

    owner: str
    type: int
    rdclass: int
    ttl: int
    at: int
    length: int


# --- reading ------------------------------------------------------------------------------------------------------


def parse(wire: bytes) -> Message:
    """The header of a message. Raises `Malformed`."""
    if len(wire) < HEADER.size:
        raise Malformed("the message is shorter than its header")
    number, flags, questions, answers, authorities, additionals = HEADER.unpack_from(wire)
    at = HEADER.size
    names: dict[int, str] = {}
    try:
        for _ in range(questions):
            at = name_at(wire, at, names)[1] + QUESTION_FIXED.size
    except IndexError as error:
        raise Malformed("the message ends within a question") from error
    return Message(wire, number, flags, answers, authorities, additionals, at)


def records(message: Message, names: dict[int, str]) -> Iterator[tuple[int, int, Record]]:
    """All records of a message as (section, offset, record); sections are 0 answer, 1 authority, 2 additional.

    Args:
        message: the result of `parse`.
        names: receives the names of the message by offset; pass it on to `value_at`.

    Raises:
        Malformed: a record is truncated or its name is broken.
    """
    wire, at, size = message.wire, message.records_at, len(message.wire)
    unpack = FIXED.unpack_from
    try:
        for section, count in enumerate((message.answers, message.authorities, message.additionals)):
            for _ in range(count):
                begin = at
                owner, at = name_at(wire, at, names)
                kind, rdclass, ttl, length = unpack(wire, at)
                at += 10
                if at + length > size:
                    raise Malformed("a record is longer than the message")
                yield section, begin, Record(owner, kind, rdclass, ttl, at, length)
                at += length
    except (IndexError, struct.error) as error:
        raise Malformed("the message ends within a record") from error


def name_at(wire: bytes, at: int, names: dict[int, str], depth: int = 0) -> tuple[str, int]:
    """The canonical name at an offset, and the offset after it. Raises `Malformed`, or `IndexError` past the end."""
    length = wire[at]
    if length == 0:
        return ".", at + 1
    if depth > MAX_LABELS:
        raise Malformed("a name has too many labels")
    if length >= 0xC0:
        pointer = (length & 0x3F) << 8 | wire[at + 1]
        target = names.get(pointer)
        if target is None:
            # Only backwards: a name that points to itself would have no end.
            if pointer >= at:
                raise Malformed("a name points forward")
            target = name_at(wire, pointer, names, depth + 1)[0]
        return target, at + 2
    if length >= 0x40:
        raise Malformed("a label has an unknown kind")
    end = at + 1 + length
    label = wire[at + 1 : end]
    # Almost every name is one label and a pointer to a parsed name: no second call for those.
    known = names.get((wire[end] & 0x3F) << 8 | wire[end + 1]) if wire[end] >= 0xC0 else None
    tail, after = name_at(wire, end, names, depth + 1) if known is None else (known, end + 2)
    text = label.decode().lower() if PLAIN_LABEL.fullmatch(label) else _odd_label(label)
    full = f"{text}." if tail == "." else f"{text}.{tail}"
    names[at] = full
    return full, after


def value_at(message: Message, record: Record, names: dict[int, str]) -> str:
    """The canonical spelling of a record's value.

    Raises:
        Malformed: it is not a value of its type.
    """
    wire, kind, at, length = message.wire, record.type, record.at, record.length
    if kind == A and length == 4:
        return socket.inet_ntoa(wire[at : at + 4])
    if kind == AAAA and length == 16:
        return _ipv6(wire[at : at + 16])
    if kind == TXT and length and wire[at] == length - 1 and PLAIN_STRING.fullmatch(wire, at + 1, at + length):
        return f'"{wire[at + 1 : at + length].decode()}"'
    try:
        if kind in ONE_NAME:
            name, after = name_at(wire, at, names)
            if after != at + length:
                raise Malformed(f"a value of type {type_text(kind)} has a wrong length")
            return name
        rdata = dns.rdata.from_wire(dns.rdataclass.IN, dns.rdatatype.RdataType.make(kind), wire, at, length)
        return canonical.from_rdata(type_text(kind), rdata)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error) as error:
        raise Malformed(f"a value of type {type_text(kind)} at {record.owner} is broken: {error}") from error


def serial_at(message: Message, record: Record) -> int:
    """The serial in the SOA record. Raises `Malformed`."""
    if record.length < 22:
        raise Malformed("the SOA record is too short")
    return int.from_bytes(message.wire[record.at + record.length - 20 :][:4], "big")


def soa_at(message: Message, record: Record) -> bytes:
    """The value of the SOA record, its names as the server spells them, not compressed. Raises `Malformed`."""
    try:
        rdata = dns.rdata.from_wire(dns.rdataclass.IN, dns.rdatatype.SOA, message.wire, record.at, record.length)
        return rdata.to_wire() or b""
    except (dns.exception.DNSException, ValueError) as error:
        raise Malformed(f"the SOA record is broken: {error}") from error


@lru_cache(maxsize=512)
def type_text(number: int) -> str:
    """The name of a type, as `canonical.type_name` gives it."""
    return record_types.number_name(number)


@lru_cache(maxsize=512)
def type_number(text: str) -> int:
    """The number of a type whose name is canonical."""
    row = record_types.TABLE.get(text)
    return row.number if row is not None else int(dns.rdatatype.from_text(text))


@lru_cache(maxsize=4096)
def _odd_label(label: bytes) -> str:
    return dns.name.Name((label, b"")).canonicalize().to_text()[:-1]


@lru_cache(maxsize=4096)
def _ipv6(packed: bytes) -> str:
    return str(IPv6Address(packed))


# --- writing ------------------------------------------------------------------------------------------------------


def query(number: int, name: str, kind: int) -> bytes:
    """A query for one name and type, without recursion."""
    return HEADER.pack(number, QUERY << 11, 1, 0, 0, 0) + name_wire(name) + QUESTION_FIXED.pack(kind, CLASS_IN)


def changes_query(number: int, zone: str, serial: int) -> bytes:
    """A query for the changes of a zone since this serial (RFC 1995 section 3); of its SOA only the serial counts."""
    question = name_wire(zone) + QUESTION_FIXED.pack(IXFR, CLASS_IN)
    soa = b"\0\0" + serial.to_bytes(4, "big") + bytes(16)
    return HEADER.pack(number, QUERY << 11, 1, 0, 1, 0) + question + record_wire(ZONE_POINTER, SOA, CLASS_IN, 0, soa)


def update(number: int, zone: str, prerequisites: list[bytes], updates: list[bytes]) -> bytes:
    """An update of a zone from records of `record_wire`."""
    head = HEADER.pack(number, UPDATE << 11, 1, len(prerequisites), len(updates), 0)
    return b"".join((head, name_wire(zone), QUESTION_FIXED.pack(SOA, CLASS_IN), *prerequisites, *updates))


def record_wire(owner: bytes, kind: int, rdclass: int, ttl: int, value: bytes) -> bytes:
    """One record from the wire form of its owner and value."""
    return owner + FIXED.pack(kind, rdclass, ttl, len(value)) + value


@lru_cache(maxsize=8192)
def name_wire(name: str) -> bytes:
    """An absolute canonical name, not compressed."""
    if canonical.PLAIN_NAME.fullmatch(name):
        return b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    wire: bytes = dns.name.from_text(canonical.escape_high(name)).to_wire() or b""
    return wire


def owner_wire(name: str, zone: str) -> bytes:
    """A name in the zone of an update, as labels and a pointer to the zone."""
    whole, tail = name_wire(name), name_wire(zone)
    # A dot inside a label can make a name of another zone look like one of this zone; the server then answers NOTZONE.
    return whole[: len(whole) - len(tail)] + ZONE_POINTER if whole.endswith(tail) else whole


def value_wire(kind: str, value: str) -> bytes:
    """The wire form of a canonical value. Raises `ValueError` when it is not a value of this type."""
    if kind == "A":
        return socket.inet_aton(value)
    if kind == "AAAA":
        return socket.inet_pton(socket.AF_INET6, value)
    if kind == "TXT" and canonical.PLAIN_TEXT.fullmatch(value):
        octets = value[1:-1].encode()
        return bytes((len(octets),)) + octets
    try:
        text = canonical.escape_high(value)
        number = dns.rdatatype.RdataType.make(type_number(kind))
        rdata = dns.rdata.from_text(dns.rdataclass.IN, number, text, dns.name.root, False)
        wire: bytes = rdata.to_wire() or b""
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"{value!r} is not a value of type {kind}: {error}") from error
    return wire
