"""HTTPS and gRPC probes: a transport (plain or TLS) and an exchange over it (HTTP/1.1 or gRPC). Slower than `http.py`.

`loop.py` uses it for the kinds TLS and GRPC, `named.py` for HTTPS at a host name. Certificates are not verified by default, as in
Kubernetes; with `verify`, the probe fails unless the chain is trusted, in date and for the right name. A handshake takes some
tenths of a millisecond of CPU, so fewer of these probes run at a time (see `loop.py`). Both import this module with the first such
target, because it loads OpenSSL.
"""

import ssl
from errno import ECONNRESET
from typing import Protocol

from reconciler.probes.answer import Judgement, judge, waiting_for
from reconciler.probes.messages import GRPC, Spec
from reconciler.probes.net import ERR_HUP, ET, IN, OUT, Net, pending_error
from reconciler.probes.redirect import follow_redirect, redirect_note
from reconciler.probes.slot import CONNECTING, HANDSHAKE, READING, STAGES, Slot, printable
from reconciler.probes.streak import CANNOT_RUN, FAIL, UNKNOWN

_MASK = IN | OUT | ET
_READ = 16 * 1024
_ROUNDS = 32  # at most 512 KiB per event, so that a fast sender cannot delay other probes
_MAX_UNSENT = 256 * 1024
"""Most bytes that wait to be sent; a server that requests more than this and reads nothing fails."""

_MAX_CONTEXTS = 256
"""Most TLS contexts in the cache: one for each set of authorities."""


class CannotRun(Exception):
    """The probe cannot run as declared; the text says why."""


class Exchange(Protocol):
    """One request and its answer over a transport, without sockets."""

    def begin(self) -> bytes:
        """The first bytes to send."""

    def take(self, data: bytes, ended: bool) -> Judgement | None:
        """Handle more of the answer; the result once it is known. `ended`: the server has closed the connection."""

    def outgoing(self) -> bytes:
        """The bytes to send now."""

    def waiting(self) -> str:
        """Which part of the answer is missing, for messages."""


class HttpExchange:
    """One request and its answer over HTTP/1.1."""

    def __init__(self, slot: Slot) -> None:
        self._request = slot.request if slot.hop is None else slot.hop[0]
        self._rules = slot.rules
        self.data = b""

    def begin(self) -> bytes:
        """The request."""
        return self._request

    def take(self, data: bytes, ended: bool) -> Judgement | None:
        """See `answer.judge`."""
        self.data = self.data + data if self.data else data
        return judge(self.data, ended, self._rules)

    def outgoing(self) -> bytes:
        """Nothing: only the request is sent."""
        return b""

    def waiting(self) -> str:
        """The part of the answer that is missing."""
        return waiting_for(self.data)


class PlainTransport:
    """Unencrypted bytes, with the methods of `TlsTransport`."""

    def __init__(self) -> None:
        self._in: list[bytes] = []
        self._out: list[bytes] = []
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Take received bytes; empty = the server has closed the connection."""
        self._in.append(data)
        self._ended = self._ended or not data

    def handshake(self) -> bool:
        """Always complete: there is no handshake."""
        return True

    def read(self) -> bytes | None:
        """Decoded bytes; empty at the end, None when there are none yet."""
        data = b"".join(self._in)
        self._in.clear()
        if data:
            return data
        return b"" if self._ended else None

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._out.append(data)

    def outgoing(self) -> bytes:
        """The bytes for the socket now."""
        data = b"".join(self._out)
        self._out.clear()
        return data


class TlsTransport:
    """TLS over two memory buffers."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name or None)

    def feed(self, data: bytes) -> None:
        """Take received bytes; empty = the server has closed the connection."""
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def handshake(self) -> bool:
        """Continue the handshake; whether it is complete.

        Raises:
            ssl.SSLError: the handshake failed; `SSLEOFError` and `SSLZeroReturnError` = the server closed the connection within it.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes | None:
        """Decoded bytes; empty at the end, None when there are none yet."""
        try:
            return self._tls.read(_READ)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._tls.write(data)

    def outgoing(self) -> bytes:
        """The bytes for the socket now."""
        return self._out.read()


class _Session:
    """One connection of a run."""

    __slots__ = ("exchange", "transport", "unsent")

    def __init__(self, transport: PlainTransport | TlsTransport, exchange: Exchange) -> None:
        self.transport, self.exchange = transport, exchange
        self.unsent = b""


class StreamProber:
    """See `Prober`."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._contexts: dict[tuple[bool, str, int], ssl.SSLContext] = {}

    def start(self, slot: Slot) -> None:
        """Begin to connect."""
        slot.hop = None
        self._connect(slot)

    def _connect(self, slot: Slot) -> None:
        slot.extra = None
        if self._net.open(slot):
            self._net.watch(slot, _MASK)

    def check(self, slot: Slot) -> None:
        """Read the bytes that the last event left unread."""
        self._progress(slot)

    def event(self, slot: Slot, mask: int) -> None:
        """Handle the socket: connected, failed, readable or writable."""
        if slot.stage == CONNECTING:
            if mask & ERR_HUP:
                error = pending_error(slot)
                if error:
                    self._net.end_error(slot, error)
                    return
            try:
                slot.extra = self._session(slot)
            except CannotRun as error:
                self._end(slot, CANNOT_RUN, str(error))
                return
            slot.stage = HANDSHAKE
        self._progress(slot)

    def _progress(self, slot: Slot) -> None:
        try:
            more = self._receive(slot)
            result = self._advance(slot)
            if result is None:
                result = self._flush(slot)
        except ssl.SSLError as error:
            self._end(slot, FAIL, f"TLS: {_tls_error_text(error)}")
        except OSError as error:
            slot.extra = None
            self._net.end_error(slot, error.errno or 0)
        else:
            if result is not None:
                self._judged(slot, result)
            elif more:
                self._net.check_next_turn(slot)

    def _session(self, slot: Slot) -> _Session:
        """The transport and exchange of a new connection. Raises `CannotRun`."""
        spec = slot.spec
        if spec.kind != GRPC:
            return _Session(self._secure(spec), HttpExchange(slot))
        from reconciler.probes.grpc import GrpcExchange  # noqa: PLC0415  (loads the HTTP/2 library)

        return _Session(self._secure(spec) if spec.secure else PlainTransport(), GrpcExchange(spec))

    def _secure(self, spec: Spec) -> TlsTransport:
        try:
            return TlsTransport(self._context(spec), spec.sni)
        except ValueError as error:  # the name cannot be encoded, so nothing is sent
            raise CannotRun(f"invalid TLS server name: {printable(str(error))}") from error

    def _context(self, spec: Spec) -> ssl.SSLContext:
        key = (spec.verify, spec.ca, spec.kind)
        cached = self._contexts.get(key)
        if cached is not None:
            return cached
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = spec.verify
        context.verify_mode = ssl.CERT_REQUIRED if spec.verify else ssl.CERT_NONE
        context.set_alpn_protocols(["h2"] if spec.kind == GRPC else ["http/1.1"])
        try:
            if spec.ca:
                context.load_verify_locations(cadata=spec.ca)
            elif spec.verify:
                context.set_default_verify_paths()
        except (ssl.SSLError, ValueError) as error:
            raise CannotRun(f"caFile contains no usable certificates: {printable(str(error))}") from error
        if len(self._contexts) >= _MAX_CONTEXTS:
            self._contexts.clear()
        self._contexts[key] = context
        return context

    def _receive(self, slot: Slot) -> bool:
        """Move received bytes into the session; whether the socket may have more."""
        feed = slot.extra.transport.feed
        for _ in range(_ROUNDS):
            try:
                data = slot.sock.recv(_READ)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != ECONNRESET:
                    raise
                data = b""  # judge the bytes before the reset first, as after a normal close
            feed(data)
            if not data:
                return False
        return True

    def _advance(self, slot: Slot) -> Judgement | None:
        """Continue the handshake, the request and the answer as far as the received bytes allow."""
        transport, exchange = slot.extra.transport, slot.extra.exchange
        if slot.stage == HANDSHAKE:
            try:
                if not transport.handshake():
                    return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # which one depends on Python's version
                return FAIL, "the server closed the connection in the TLS handshake"
            transport.write(exchange.begin())
            slot.stage = READING
        while True:
            data = transport.read()
            if data is None:
                return None
            result: Judgement | None = exchange.take(data, not data)
            reply = exchange.outgoing()
            if reply:
                transport.write(reply)
            if result is not None:
                return result
            if not data:
                return UNKNOWN, "the answer ended before a result"

    def _flush(self, slot: Slot) -> Judgement | None:
        """Send the outgoing bytes of the session; the rest follows at the next event."""
        session: _Session = slot.extra
        data = session.unsent + session.transport.outgoing()
        if not data:
            return None
        try:
            sent = slot.sock.send(data)
        except BlockingIOError:
            sent = 0
        session.unsent = data[sent:]
        if len(session.unsent) > _MAX_UNSENT + len(slot.request):
            return FAIL, "the server requests data without reading it"
        return None

    def _judged(self, slot: Slot, judgement: Judgement) -> None:
        """End the run with this result, or follow a redirect."""
        exchange: Exchange = slot.extra.exchange
        result = (
            follow_redirect(slot, judgement, exchange.data, "https")
            if isinstance(exchange, HttpExchange)
            else judgement
        )
        if result is None:
            self._net.drop(slot)
            self._connect(slot)
            return
        self._end(slot, *result)

    def _end(self, slot: Slot, result: int, detail: str) -> None:
        slot.extra = None
        self._net.end(slot, result, detail)

    def expire(self, slot: Slot) -> None:
        """End the run without a complete answer."""
        stage = slot.extra.exchange.waiting() if slot.stage == READING else STAGES[slot.stage]
        slot.extra = None
        self._net.end_late(slot, stage + redirect_note(slot))

    def abort(self, slot: Slot) -> None:
        """Drop the connection of a removed target."""
        slot.extra = None
        self._net.end_aborted(slot)


def _tls_error_text(error: ssl.SSLError) -> str:
    """OpenSSL's error as readable text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {printable(error.verify_message)}"
    return printable((error.reason or str(error)).replace("_", " ").lower())
