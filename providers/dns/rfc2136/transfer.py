"""Reads zones by transfer: whole (AXFR, RFC 5936), or the changes since a serial (IXFR, RFC 1995) applied to the known zone.

Used by `provider.py`. An incomplete transfer raises; a part of a zone is never returned. Changes must fit the known zone exactly
(removed records were present, added ones were not), else the known zone was not of that serial, and no change is used.
"""

from typing import NamedTuple, Protocol

from providers.dns.common.change import in_zone
from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import BadSignature, Connection, Lost, Signer, number, walk
from providers.dns.rfc2136.read import Server, Sets, Zone
from providers.dns.rfc2136.refusals import NOERROR, allow_transfer, bad_signature, read_refused
from providers.facts import RecordKey, RecordSet


class Bounds(NamedTuple):
    """What one transfer may have at most, so that no server can fill the memory.

    Attributes:
        records: records. A short one was measured to take 400 octets of memory.
        octets: octets of all messages. A zone of 5 million short records has about 200 MB.
        text: characters of all names and values: a name of 255 octets is two octets in a compressed message.
    """

    records: int = 5_000_000
    octets: int = 1 << 30
    text: int = 1 << 29


BOUNDS = Bounds()


class _Refused(Exception):
    """The server answers with a code other than NOERROR."""

    def __init__(self, rcode: int) -> None:
        super().__init__(rcode)
        self.rcode = rcode


def transfer(server: Server, connection: Connection, signer: Signer | None, zone: str, bounds: Bounds = BOUNDS) -> Zone:
    """A whole zone.

    Raises:
        Unreachable: the transfer is incomplete or not a zone; no part of it is used.
        Rejected: the server refuses the transfer, or does not accept the key.
    """
    message_id, whole = number(), _Whole(zone)
    try:
        _receive(connection, signer, message_id, wire.query(message_id, zone, wire.AXFR), whole, bounds)
        return whole.zone()
    except _Refused as refused:
        raise read_refused(zone, "a transfer", refused.rcode, server.reading_key) from None
    except Lost as error:
        raise server.lost(zone, Lost(f"{error}; the incomplete transfer is not used")) from error
    except wire.Malformed as error:
        raise server.lost(zone, Lost(f"the transfer cannot be used: {error}")) from error
    except BadSignature as error:
        raise bad_signature(zone, error, server.reading_key, allow_transfer(zone, server.reading_key)) from error


def catch_up(
    server: Server,
    connection: Connection,
    signer: Signer | None,
    zone: str,
    known: Zone,
    serial: int,
    bounds: Bounds = BOUNDS,
) -> Zone | None:
    """The present zone, from the known zone and the changes since.

    Args:
        server, connection, signer, zone: the server, the connection, its signer and the zone.
        bounds: of the answer.
        known: the known zone.
        serial: the server's present serial.

    Returns:
        The zone; None when a whole transfer is needed: the serial is older, the server does not send changes, the zone is
        signed, or the changes do not fit the known zone. Do not use the connection any more then.

    Raises:
        Unreachable: the answer is incomplete; no part of it is used.
        Rejected: the server does not accept the key.
    """
    if not _newer(serial, known.serial):
        return None
    message_id, changes = number(), _Changes(zone, known)
    try:
        _receive(connection, signer, message_id, wire.changes_query(message_id, zone, known.serial), changes, bounds)
        return changes.zone()
    except (_Refused, wire.Malformed):
        return None
    except Lost as error:
        raise server.lost(zone, Lost(f"{error}; the incomplete changes are not used")) from error
    except BadSignature as error:
        raise bad_signature(zone, error, server.reading_key, allow_transfer(zone, server.reading_key)) from error


class _Consumer(Protocol):
    """Consumes the records of a transfer, in their order."""

    @property
    def text(self) -> int:
        """Characters of the names and values consumed so far."""

    @property
    def done(self) -> bool:
        """Whether the last record was consumed."""

    def take(self, message: wire.Message, record: wire.Record, names: dict[int, str]) -> None:
        """Consume the next record. Raises `Malformed`."""


def _receive(
    connection: Connection, signer: Signer | None, message_id: int, request: bytes, consumer: _Consumer, bounds: Bounds
) -> None:
    """Send a request and pass all records of its answer to `consumer`, until that is done."""
    verifier = connection.send(request, signer, many=True)
    count = octets = 0
    while not consumer.done:
        message = wire.parse(connection.receive())
        octets += len(message.wire)
        if octets > bounds.octets:
            raise wire.Malformed(f"the transfer has more than {bounds.octets} octets")
        names: dict[int, str] = {}
        if message.id != message_id or not message.flags & wire.RESPONSE:
            raise wire.Malformed("the server sent an answer without a request")
        if message.rcode != NOERROR:
            tsig = walk(message, names)[1]
            if tsig is not None:
                verifier.check(message, tsig)
            raise _Refused(message.rcode)
        if message.flags & wire.TRUNCATED or not message.answers:
            raise wire.Malformed("the server sent a message without records")
        tsig = None
        for section, begin, record in wire.records(message, names):
            if section:
                tsig = (begin, record) if record.type == wire.TSIG else tsig
                continue
            if consumer.done:
                raise wire.Malformed("records follow the closing SOA")
            consumer.take(message, record, names)
        if consumer.text > bounds.text:
            raise wire.Malformed(f"the names and values of the zone have more than {bounds.text} characters")
        verifier.check(message, tsig)
        count += message.answers
        if count > bounds.records:
            raise wire.Malformed(f"the zone has more than {bounds.records} records")
    if not verifier.complete:
        raise BadSignature("the last message of the transfer is not signed")


class _Whole:
    """A whole zone: from its SOA to the same SOA again."""

    __slots__ = ("_first", "_last", "_name", "_sets", "done")

    def __init__(self, name: str, first: int | None = None) -> None:
        """`first`: the serial of the first SOA, when that is consumed already."""
        self._name, self._first, self._last = name, first, first
        self._sets = Sets()
        self.done = False

    @property
    def text(self) -> int:
        return self._sets.text

    def take(self, message: wire.Message, record: wire.Record, names: dict[int, str]) -> None:
        if record.type == wire.SOA:
            self._last = _serial(message, record, self._name)
            self.done = self._first is not None
            self._first = self._last if self._first is None else self._first
        elif self._first is None:
            raise wire.Malformed("the transfer does not begin with the SOA of the zone")
        else:
            self._sets.add(message, record, names)

    def zone(self) -> Zone:
        """The zone. Raises `Malformed` when it mixes versions."""
        if self._first is None or self._first != self._last:
            raise wire.Malformed("the zone changed during the transfer")
        # Glue below a delegation belongs to the zone; records outside the zone are ignored.
        records = self._sets.all()
        outside = [key for key in records if not in_zone(key.name, self._name)]
        for key in outside:
            del records[key]
        return Zone(self._first, records)


class _Touched(NamedTuple):
    """A changed set: its TTL and values after the last change."""

    ttl: int
    values: set[str]


class _Changes:
    """An answer to IXFR: the new SOA; for each version since the known one its old SOA, the removed records, its new SOA, the added
    records; the new SOA again. A server may send the whole zone instead, which begins in the same way (RFC 1995 section 4).
    """

    def __init__(self, name: str, known: Zone) -> None:
        self._name, self._known = name, known
        self._last: int | None = None
        self._at: int | None = None
        self._adding = True
        self._touched: dict[RecordKey, _Touched] = {}
        self._whole: _Whole | None = None
        self._ended = False
        self._text = 0

    @property
    def text(self) -> int:
        return self._text if self._whole is None else self._whole.text

    @property
    def done(self) -> bool:
        return self._ended if self._whole is None else self._whole.done

    def take(self, message: wire.Message, record: wire.Record, names: dict[int, str]) -> None:
        if self._whole is None and self._at is None and self._last is not None and record.type != wire.SOA:
            self._whole = _Whole(self._name, self._last)
        if self._whole is not None:
            self._whole.take(message, record, names)
        elif record.type == wire.SOA:
            self._version(_serial(message, record, self._name))
        elif self._at is None:
            raise wire.Malformed("the transfer does not begin with the SOA of the zone")
        elif in_zone(record.owner, self._name):
            self._change(message, record, names)

    def zone(self) -> Zone:
        """The zone after all changes. Raises `Malformed` when a whole zone was sent that mixes versions."""
        if self._whole is not None:
            return self._whole.zone()
        records = dict(self._known.records)
        for key, touched in self._touched.items():
            after = RecordSet(touched.ttl, tuple(sorted(touched.values)))
            if not touched.values:
                records.pop(key, None)
            elif records.get(key) != after:
                records[key] = after
        return Zone(self._last or 0, records)

    def _version(self, serial: int) -> None:
        """Consume a SOA."""
        if self._last is None:
            if not _newer(serial, self._known.serial):
                raise wire.Malformed("the answer contains no changes")
            self._last = serial
            return
        if not self._adding:
            self._at, self._adding = serial, True
            return
        self._ended = serial == self._last == self._at
        if serial != (self._known.serial if self._at is None else self._at):
            raise wire.Malformed("the changes are not consecutive")
        self._at, self._adding = serial, False

    def _change(self, message: wire.Message, record: wire.Record, names: dict[int, str]) -> None:
        """Apply a removed or added record."""
        if record.rdclass != wire.CLASS_IN:
            raise wire.Malformed(f"the answer contains a record of class {record.rdclass}")
        key = RecordKey(record.owner, wire.type_text(record.type))
        if key.type == "RRSIG":
            raise wire.Malformed("signatures at one name have different TTLs, and the known zone has only one")
        value = wire.value_at(message, record, names)
        self._text += len(record.owner) + len(value)
        touched = self._touched.get(key)
        if touched is None:
            before = self._known.records.get(key, RecordSet(record.ttl, ()))
            touched = _Touched(before.ttl, set(before.values))
        if (touched.values and touched.ttl != record.ttl) or (value in touched.values) is self._adding:
            raise wire.Malformed("the changes do not fit the known zone")
        change = touched.values.add if self._adding else touched.values.remove
        change(value)
        self._touched[key] = touched._replace(ttl=record.ttl)


def _newer(serial: int, known: int) -> bool:
    """Whether a serial is newer than another one; serials wrap around (RFC 1982 section 3.2)."""
    return 0 < (serial - known) & 0xFFFFFFFF < 1 << 31


def _serial(message: wire.Message, record: wire.Record, zone: str) -> int:
    if record.owner != zone:
        raise wire.Malformed(f"the answer contains the SOA of {record.owner}")
    return wire.serial_at(message, record)
