"""One TCP connection to a name server: framing, deadlines and signatures (RFC 1035 section 4.2.2, RFC 8945).

Used by `read.py`, `transfer.py` and `update.py`; they decide what a failure means, because that depends on what was sent.
All messages use TCP: answers are never truncated, and a lost packet does not cost a time-out.
"""

import base64
import binascii
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.TSIG
import dns.tsig

from manifests.values.desired import SECOND
from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.settings import KeySettings
from providers.errors import Rejected

FUDGE = 300
"""Seconds that the two clocks may differ (RFC 8945 section 10 recommends this value)."""

UNSIGNED_MESSAGES = 99
"""Consecutive messages of a transfer that may be unsigned (RFC 8945 section 5.3.1)."""


PEER_CODES: dict[type[Exception], str] = {
    dns.tsig.PeerBadKey: "BADKEY",
    dns.tsig.PeerBadSignature: "BADSIG",
    dns.tsig.PeerBadTime: "BADTIME",
    dns.tsig.PeerBadTruncation: "BADTRUNC",
}

# dnspython has no types here.
_sign: Any = dns.tsig.sign
_validate: Any = dns.tsig.validate

QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""A server that delays small answers until the last one is acknowledged (BIND) must not wait 40 ms for that."""

EXCHANGE_TIMEOUTS = 5
"""The time limit of a whole exchange of many messages, in time-outs of one wait."""


class Lost(Exception):
    """The connection gives no (further) answer: refused, closed, reset or too slow."""


class BadSignature(Exception):
    """A signature is missing or wrong. `code` is the server's error about our signature; empty when its own is wrong."""

    def __init__(self, cause: str, code: str = "") -> None:
        super().__init__(cause)
        self.code = code


@dataclass(frozen=True, slots=True)
class Clocks:
    """`steady` in ns bounds waits; `wall` in seconds since 1970 is the time in signatures."""

    steady: Callable[[], int]
    wall: Callable[[], int] = lambda: int(time.clock_gettime(time.CLOCK_REALTIME))


class Signer:
    """A TSIG key with its secret. Has no printed form."""

    __slots__ = ("key",)

    def __init__(self, settings: KeySettings, target: str) -> None:
        text = settings.secret.resolve(target).reveal()
        try:
            raw = base64.b64decode(text.encode(), validate=True)
        except (binascii.Error, ValueError):
            raw = b""  # no error is chained: it might quote the secret
        if not raw:
            cause = f"the secret of key {settings.name} in {settings.secret} is not base64"
            raise Rejected(target, cause, "store the secret as the key tool printed it")
        self.key = dns.tsig.Key(settings.name, raw, settings.algorithm)

    def __repr__(self) -> str:
        return "Signer(***)"

    def sign(self, body: bytes, wall: int) -> tuple[bytes, bytes]:
        """The message with a signature, and the MAC of the signature, which the check of the answer needs."""
        number = int.from_bytes(body[:2], "big")
        kind = dns.rdatatype.TSIG
        make: Any = dns.rdtypes.ANY.TSIG.TSIG
        empty = make(dns.rdataclass.ANY, kind, self.key.algorithm, 0, FUDGE, b"", number, 0, b"")
        signed, _ = _sign(body, self.key, empty, wall, b"")
        owner = self.key.name.to_wire() or b""
        record = wire.record_wire(owner, wire.TSIG, wire.CLASS_ANY, 0, signed.to_wire() or b"")
        additionals = int.from_bytes(body[10:12], "big") + 1
        return body[:10] + additionals.to_bytes(2, "big") + body[12:] + record, signed.mac

    @property
    def size(self) -> int:
        """Octets that a signature adds to a message."""
        return len(self.sign(bytes(wire.HEADER.size), 0)[0]) - wire.HEADER.size


class Verifier:
    """Checks the signatures of the answers to one request; for a transfer, over all its messages."""

    __slots__ = ("_context", "_mac", "_many", "_signer", "_unsigned", "_wall")

    def __init__(self, signer: Signer | None, mac: bytes, wall: Callable[[], int], many: bool = False) -> None:
        self._signer = signer
        self._mac = mac
        self._wall = wall
        self._many = many
        self._context: Any = None
        self._unsigned = 0

    @property
    def complete(self) -> bool:
        """Whether the last message was signed, as the last one of a transfer must be."""
        return self._unsigned == 0

    def check(self, message: wire.Message, tsig: tuple[int, wire.Record] | None) -> None:
        """Check one message; `tsig` is (its offset, the record), None without one. Raises `BadSignature`."""
        if self._signer is None:
            return
        if tsig is None:
            self._check_unsigned(message)
            return
        begin, record = tsig
        try:
            value = dns.rdata.from_wire(dns.rdataclass.ANY, dns.rdatatype.TSIG, message.wire, record.at, record.length)
            owner = dns.name.from_text(record.owner)
            self._context = _validate(
                message.wire, self._signer.key, owner, value, self._wall(), self._mac, begin, self._context, self._many
            )
        except dns.tsig.PeerError as error:
            code = PEER_CODES.get(type(error), "TSIG error")
            raise BadSignature(f"the server does not accept our signature ({code})", code) from error
        except dns.tsig.BadTime as error:
            raise BadSignature(
                "the clocks of the server and of this machine differ by more than five minutes", "BADTIME"
            ) from error
        except (dns.exception.DNSException, ValueError) as error:
            raise BadSignature(f"the signature of the answer is wrong ({type(error).__name__})") from error
        self._unsigned = 0

    def _check_unsigned(self, message: wire.Message) -> None:
        if self._context is None or self._unsigned >= UNSIGNED_MESSAGES:
            raise BadSignature("the answer is not signed")
        self._unsigned += 1
        self._context.update(message.wire)


class Connection:
    """A connection, opened with the first message. Each wait ends after `timeout` (ns), all together after `EXCHANGE_TIMEOUTS` times that."""

    def __init__(self, address: str, port: int, timeout: int, clocks: Clocks) -> None:
        self._address = (address, port)
        self._timeout = timeout
        self._clocks = clocks
        self._end = clocks.steady() + EXCHANGE_TIMEOUTS * timeout
        self._socket: socket.socket | None = None
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, body: bytes, signer: Signer | None, *, many: bool = False) -> Verifier:
        """Connect if needed, sign and send a message; returns the verifier of its answers.

        Raises:
            Lost: the message was not sent completely: the server cannot have acted on it.
        """
        mac = b""
        if signer is not None:
            body, mac = signer.sign(body, self._clocks.wall())
        if len(body) > wire.MAX_MESSAGE:
            raise ValueError(f"a message of {len(body)} octets is too long")
        with self._waiting("sending") as connection:
            connection.sendall(len(body).to_bytes(2, "big") + body)
        return Verifier(signer, mac, self._clocks.wall, many)

    def receive(self) -> bytes:
        """The next message. Raises `Lost`."""
        head = self._exactly(2)
        return self._exactly(int.from_bytes(head, "big"))

    def close(self) -> None:
        """Close the connection. May be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            with self._waiting("waiting for the answer") as connection:
                if QUICKACK is not None:
                    connection.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
                piece = connection.recv(262_144)
            if not piece:
                raise Lost("the server closed the connection before the answer was complete")
            self._buffer += piece
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    @contextmanager
    def _waiting(self, doing: str) -> Iterator[socket.socket]:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, self._left())
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(self._left())
            yield self._socket
        except TimeoutError as error:
            raise Lost(f"no progress within {self._timeout / SECOND:g} s while {doing}") from error
        except OSError as error:
            raise Lost(f"{error.strerror or error} while {doing}") from error

    def _left(self) -> float:
        left = min(self._timeout, self._end - self._clocks.steady())
        if left <= 0:
            raise TimeoutError
        return left / SECOND


def number() -> int:
    """A random message id."""
    return secrets.randbits(16)


def walk(
    message: wire.Message, names: dict[int, str]
) -> tuple[list[tuple[int, wire.Record]], tuple[int, wire.Record] | None]:
    """All records of a message as (section, record), and its signature if it has one. Raises `Malformed`."""
    records: list[tuple[int, wire.Record]] = []
    tsig = None
    for section, begin, record in wire.records(message, names):
        if record.type == wire.TSIG:
            tsig = (begin, record)
        else:
            records.append((section, record))
    return records, tsig
