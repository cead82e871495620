"""Reads from a name server: the serial of a zone and single answers. What a zone is made of is gathered here as well.

Used by the other `rfc2136_*` modules; whole zones are read by `rfc2136_transfer.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import BadSignature, Clocks, Link, Lost, Signer, Verifier, number, walk
from providers.dns.rfc2136.refusals import NOERROR, NXDOMAIN, allow_transfer, bad_signature, not_served, read_refused
from providers.dns.rfc2136.settings import KeySettings, RFC2136Settings
from providers.errors import Rejected, Unreachable
from providers.facts import RecordKey, RecordSet

BATCH = 64
"""Queries on their way at the same time: few enough that neither side waits for the other with full buffers."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where and how one provider reaches its name server."""

    settings: RFC2136Settings
    clocks: Clocks

    @property
    def reading_key(self) -> KeySettings | None:
        """The key of transfers and queries."""
        return self.settings.transfer_key or self.settings.update_key

    def link(self) -> Link:
        """A new connection, not yet made."""
        return Link(self.settings.server, self.settings.port, self.settings.timeout, self.clocks)

    def signer(self, key: KeySettings | None, zone: str) -> Signer | None:
        """The key with its secret as it is now. Raises `Rejected`, `Unreachable`."""
        return None if key is None else Signer(key, f"key {key.name} of zone {zone}")

    def lost(self, zone: str, error: Exception) -> Unreachable:
        """The error for an exchange that changed nothing and got no usable answer."""
        where = f"name server {self.settings.server} port {self.settings.port}"
        return Unreachable(f"zone {zone}", f"{where}: {error}")


class Zone(NamedTuple):
    """A complete zone: its serial and all record sets but the SOA, by key, values sorted."""

    serial: int
    records: dict[RecordKey, RecordSet]


class Sets:
    """Gathers records into record sets. Few objects per set: their number is what reading a big zone costs."""

    __slots__ = ("_found", "_many")

    def __init__(self) -> None:
        self._found: dict[RecordKey, RecordSet] = {}
        self._many: dict[RecordKey, list[str]] = {}

    def add(self, message: wire.Message, record: wire.Record, names: dict[int, str]) -> None:
        """Take in one record. Raises `Malformed`."""
        if record.rdclass != wire.CLASS_IN:
            raise wire.Malformed(f"it holds a record of class {record.rdclass}")
        value = wire.value_at(message, record, names)
        key = RecordKey(record.owner, wire.type_text(record.type))
        known = self._found.get(key)
        if known is None:
            self._found[key] = RecordSet(record.ttl, (value,))
            return
        self._many.setdefault(key, list(known.values)).append(value)
        if record.ttl < known.ttl:
            # Only signatures differ, whose TTL is that of what they sign (RFC 4034 section 3).
            self._found[key] = RecordSet(record.ttl, known.values)

    def all(self) -> dict[RecordKey, RecordSet]:
        """The sets, values sorted. Nothing may be added after this."""
        for key, values in self._many.items():
            self._found[key] = RecordSet(self._found[key].ttl, tuple(sorted(set(values))))
        return self._found


class Question(NamedTuple):
    """One question: a canonical name and the number of a type."""

    name: str
    type: int


class Answer(NamedTuple):
    """One checked answer, its record sets canonical: those of the answer section, and NS sets of the authority section."""

    question: Question
    rcode: int
    authoritative: bool
    records: dict[RecordKey, RecordSet]
    referral: dict[RecordKey, RecordSet]
    serial: int | None


def serial(server: Server, link: Link, signer: Signer | None, zone: str) -> int:
    """The serial of a zone.

    Raises:
        Unreachable: no answer, or the server cannot serve the zone now.
        Rejected: the server does not serve the zone, or does not accept the key.
    """
    (answer,) = ask(server, link, signer, zone, [Question(zone, wire.SOA)])
    if answer.rcode != NOERROR:
        raise read_refused(zone, "a query", answer.rcode, server.reading_key)
    if answer.serial is None or not answer.authoritative:
        raise Rejected(f"zone {zone}", "the server answers without authority over this zone", not_served(zone))
    return answer.serial


def ask(server: Server, link: Link, signer: Signer | None, zone: str, questions: Iterable[Question]) -> list[Answer]:
    """Answers to some questions about one zone, in their order.

    Raises:
        Unreachable: an answer is missing or broken.
        Rejected: the server does not accept the key.
    """
    wanted = list(questions)
    found: list[Answer] = []
    for start in range(0, len(wanted), BATCH):
        found += _batch(server, link, signer, zone, wanted[start : start + BATCH])
    return found


def _batch(server: Server, link: Link, signer: Signer | None, zone: str, questions: list[Question]) -> list[Answer]:
    base = number()
    waiting: dict[int, tuple[Question, Verifier]] = {}
    found: dict[Question, Answer] = {}
    try:
        for offset, question in enumerate(questions):
            one = (base + offset) & 0xFFFF
            waiting[one] = (question, link.send(wire.query(one, question.name, question.type), signer))
        while waiting:
            message = wire.parse(link.receive())
            expected = waiting.pop(message.id, None)
            found_one = _answer(message, expected)
            found[found_one.question] = found_one
    except (Lost, wire.Malformed) as error:
        raise server.lost(zone, error) from error
    except BadSignature as error:
        raise bad_signature(zone, error, server.reading_key, allow_transfer(zone, server.reading_key)) from error
    return [found[question] for question in questions]


def _answer(message: wire.Message, expected: tuple[Question, Verifier] | None) -> Answer:
    if expected is None or not message.flags & wire.RESPONSE:
        raise wire.Malformed("it sent an answer that nobody asked for")
    question, verifier = expected
    names: dict[int, str] = {}
    records, tsig = walk(message, names)
    if tsig is not None or message.rcode in (NOERROR, NXDOMAIN):
        verifier.check(message, tsig)
    if message.flags & wire.TRUNCATED:
        raise wire.Malformed("it cut an answer short")
    groups = (Sets(), Sets())
    serial_found = None
    for section, record in records:
        if section == 0 and record.type == wire.SOA and record.owner == question.name:
            serial_found = wire.serial_at(message, record)
        elif section == 0 or (section == 1 and record.type == wire.NS):
            groups[section].add(message, record, names)
    flags = message.flags
    return Answer(
        question,
        message.rcode,
        bool(flags & wire.AUTHORITATIVE),
        groups[0].all(),
        groups[1].all(),
        serial_found,
    )
