"""Reads the serial of a zone and single answers from a name server, and gathers records into record sets.

Used by `provider.py`, `queries.py`, `transfer.py` (whole zones) and `update.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import BadSignature, Clocks, Connection, Lost, Signer, Verifier, number, walk
from providers.dns.rfc2136.refusals import NOERROR, NXDOMAIN, allow_transfer, bad_signature, not_served, read_refused
from providers.dns.rfc2136.settings import KeySettings, RFC2136Settings
from providers.errors import Rejected, Unreachable
from providers.facts import RecordKey, RecordSet

BATCH = 64
"""Queries sent at the same time: few enough that neither side blocks on full buffers."""


@dataclass(frozen=True, slots=True)
class Server:
    """How one provider reaches its name server."""

    settings: RFC2136Settings
    clocks: Clocks

    @property
    def reading_key(self) -> KeySettings | None:
        """The key of transfers and queries."""
        return self.settings.transfer_key or self.settings.update_key

    def connection(self) -> Connection:
        """A new connection, not opened yet."""
        return Connection(self.settings.server, self.settings.port, self.settings.timeout, self.clocks)

    def signer(self, key: KeySettings | None, zone: str) -> Signer | None:
        """The key with its present secret. Raises `Rejected`, `Unreachable`."""
        return None if key is None else Signer(key, f"key {key.name} of zone {zone}")

    def lost(self, zone: str, error: Exception) -> Unreachable:
        """The error for an exchange that changed nothing and got no usable answer."""
        server = f"name server {self.settings.server} port {self.settings.port}"
        return Unreachable(f"zone {zone}", f"{server}: {error}")


class Zone(NamedTuple):
    """A complete zone: its serial and all record sets except the SOA, by key, values sorted.

    `hidden`: sets that queries do not show, because another zone of the server answers for their names.
    """

    serial: int
    records: dict[RecordKey, RecordSet]
    hidden: frozenset[RecordKey] = frozenset()


class Sets:
    """Gathers records into record sets. Few objects per set: their number decides how long a big zone takes."""

    __slots__ = ("_many", "_sets", "text")

    def __init__(self) -> None:
        self.text = 0
        """Characters of all names and values so far."""
        self._sets: dict[RecordKey, RecordSet] = {}
        self._many: dict[RecordKey, list[str]] = {}

    def add(self, message: wire.Message, record: wire.Record, names: dict[int, str]) -> None:
        """Add one record. Raises `Malformed`."""
        if record.rdclass != wire.CLASS_IN:
            raise wire.Malformed(f"the answer contains a record of class {record.rdclass}")
        value = wire.value_at(message, record, names)
        self.text += len(record.owner) + len(value)
        key = RecordKey(record.owner, wire.type_text(record.type))
        known = self._sets.get(key)
        if known is None:
            self._sets[key] = RecordSet(record.ttl, (value,))
            return
        self._many.setdefault(key, list(known.values)).append(value)
        if record.ttl < known.ttl:
            # TTLs differ only in RRSIG sets: each has the TTL of the set that it signs (RFC 4034 section 3).
            self._sets[key] = RecordSet(record.ttl, known.values)

    def all(self) -> dict[RecordKey, RecordSet]:
        """The sets, values sorted. Do not add records after this."""
        for key, values in self._many.items():
            self._sets[key] = RecordSet(self._sets[key].ttl, tuple(sorted(set(values))))
        return self._sets


class Question(NamedTuple):
    """One question: a canonical name and the number of a type."""

    name: str
    type: int


class Answer(NamedTuple):
    """One verified answer with canonical record sets: of the answer section, NS sets of the authority section, and the addresses of
    the additional section (`glue`).
    """

    question: Question
    rcode: int
    authoritative: bool
    records: dict[RecordKey, RecordSet]
    referral: dict[RecordKey, RecordSet]
    serial: int | None
    soa: bytes = b""
    glue: Mapping[RecordKey, RecordSet] = MappingProxyType({})


def serial(server: Server, connection: Connection, signer: Signer | None, zone: str) -> int:
    """The serial of a zone. Raises as `version`."""
    return version(server, connection, signer, zone)[0]


def version(server: Server, connection: Connection, signer: Signer | None, zone: str) -> tuple[int, bytes]:
    """The serial of a zone, and the value of its SOA in wire form, names not compressed.

    Raises:
        Unreachable: no answer, or the server cannot serve the zone now.
        Rejected: the server does not serve the zone, or does not accept the key.
    """
    (answer,) = ask(server, connection, signer, zone, [Question(zone, wire.SOA)])
    if answer.rcode != NOERROR:
        raise read_refused(zone, "a query", answer.rcode, server.reading_key)
    if answer.serial is None or not answer.authoritative:
        raise Rejected(f"zone {zone}", "the server is not authoritative for this zone", not_served(zone))
    return answer.serial, answer.soa


def ask(
    server: Server, connection: Connection, signer: Signer | None, zone: str, questions: Iterable[Question]
) -> list[Answer]:
    """Answers to some questions about one zone, in their order.

    Raises:
        Unreachable: an answer is missing or broken.
        Rejected: the server does not accept the key.
    """
    wanted = list(questions)
    answers: list[Answer] = []
    for start in range(0, len(wanted), BATCH):
        answers += _batch(server, connection, signer, zone, wanted[start : start + BATCH])
    return answers


def _batch(
    server: Server, connection: Connection, signer: Signer | None, zone: str, questions: list[Question]
) -> list[Answer]:
    base = number()
    waiting: dict[int, tuple[Question, Verifier]] = {}
    answers: dict[Question, Answer] = {}
    try:
        for offset, question in enumerate(questions):
            message_id = (base + offset) & 0xFFFF
            query = wire.query(message_id, question.name, question.type)
            waiting[message_id] = (question, connection.send(query, signer))
        while waiting:
            message = wire.parse(connection.receive())
            expected = waiting.pop(message.id, None)
            answer = _answer(message, expected)
            answers[answer.question] = answer
    except (Lost, wire.Malformed) as error:
        raise server.lost(zone, error) from error
    except BadSignature as error:
        raise bad_signature(zone, error, server.reading_key, allow_transfer(zone, server.reading_key)) from error
    return [answers[question] for question in questions]


def _answer(message: wire.Message, expected: tuple[Question, Verifier] | None) -> Answer:
    if expected is None or not message.flags & wire.RESPONSE:
        raise wire.Malformed("the server sent an answer without a request")
    question, verifier = expected
    names: dict[int, str] = {}
    records, tsig = walk(message, names)
    if tsig is not None or message.rcode in (NOERROR, NXDOMAIN):
        verifier.check(message, tsig)
    if message.flags & wire.TRUNCATED:
        raise wire.Malformed("the server truncated the answer")
    groups = (Sets(), Sets(), Sets())
    soa_serial, soa = None, b""
    for section, record in records:
        if section == 0 and record.type == wire.SOA and record.owner == question.name:
            soa_serial = wire.serial_at(message, record)
            soa = wire.soa_at(message, record)
        elif section == 0 or record.type in ((wire.NS,) if section == 1 else (wire.A, wire.AAAA)):
            groups[section].add(message, record, names)
    flags = message.flags
    return Answer(
        question,
        message.rcode,
        bool(flags & wire.AUTHORITATIVE),
        groups[0].all(),
        groups[1].all(),
        soa_serial,
        soa,
        groups[2].all(),
    )
