"""HTTPS and gRPC probes: the second, slower path, of a transport (plain or TLS) and a talk over it (HTTP/1.1 or gRPC).

Used by the loop for the kinds TLS and GRPC. A certificate is not verified unless the probe asks for it, as in Kubernetes:
then the probe fails unless the chain is trusted, in date and for the right name. A handshake costs some tenths of a
millisecond of CPU here, so fewer of these run at a time (see `loop.py`). The module is imported with the first such
target: it loads OpenSSL.
"""

import ssl
from errno import ECONNRESET
from typing import Protocol

from reconciler.probes.answer import Judgement, judge, waiting_for
from reconciler.probes.messages import GRPC, Spec
from reconciler.probes.net import BROKEN, ET, IN, OUT, Net, pending_error
from reconciler.probes.redirect import after, followed
from reconciler.probes.slot import CONNECTING, HANDSHAKE, READING, STAGES, Slot, printable
from reconciler.probes.streak import CANNOT_RUN, FAIL, UNKNOWN

_MASK = IN | OUT | ET
_READ = 16 * 1024
_ROUNDS = 32  # at most 512 KiB are taken in one go, so that a fast sender cannot hold up the other probes
_MOST_UNSENT = 256 * 1024
"""Bytes waiting to be sent; a peer that makes us answer more than this and reads nothing has failed."""

_CONTEXTS = 256
"""Settings of TLS that are kept: one for each set of authorities."""


class Unusable(Exception):
    """The probe cannot be run as it is declared; the text says why."""


class Talk(Protocol):
    """What is said over a transport. Knows nothing of sockets."""

    def begin(self) -> bytes:
        """What to send first."""

    def take(self, data: bytes, ended: bool) -> Judgement | None:
        """Hear more of the answer; the result once there is one. `ended`: nothing more will come."""

    def outgoing(self) -> bytes:
        """What the talk wants to send now."""

    def waiting(self) -> str:
        """What was missing when time ran out, for messages."""


class HttpTalk:
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
        """Nothing but the request is ever sent."""
        return b""

    def waiting(self) -> str:
        """The part of the answer that is missing."""
        return waiting_for(self.data)


class Plain:
    """Bytes as they are, with the methods of `Secure`."""

    def __init__(self) -> None:
        self._in: list[bytes] = []
        self._out: list[bytes] = []
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Take received bytes; empty means that the other side has closed."""
        self._in.append(data)
        self._ended = self._ended or not data

    def handshake(self) -> bool:
        """There is none."""
        return True

    def read(self) -> bytes | None:
        """Some bytes; empty at the end, None when there are none yet."""
        data = b"".join(self._in)
        self._in.clear()
        if data:
            return data
        return b"" if self._ended else None

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._out.append(data)

    def outgoing(self) -> bytes:
        """What goes to the socket now."""
        data = b"".join(self._out)
        self._out.clear()
        return data


class Secure:
    """TLS over two memory buffers."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name or None)

    def feed(self, data: bytes) -> None:
        """Take received bytes; empty means that the other side has closed."""
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def handshake(self) -> bool:
        """Go on with the handshake; whether it is over. Raises `ssl.SSLError`, of which `SSLEOFError` and `SSLZeroReturnError` say
        that it was closed within it."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes | None:
        """Some bytes; empty at the end, None when there are none yet."""
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
        """What goes to the socket now."""
        return self._out.read()


class _Session:
    """One connection of a run."""

    __slots__ = ("talk", "transport", "unsent")

    def __init__(self, transport: Plain | Secure, talk: Talk) -> None:
        self.transport, self.talk = transport, talk
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

    def look(self, slot: Slot) -> None:
        """The last event left something unread."""
        self._go_on(slot)

    def event(self, slot: Slot, mask: int) -> None:
        """The socket is connected, broken, has bytes or room."""
        if slot.stage == CONNECTING:
            if mask & BROKEN:
                error = pending_error(slot)
                if error:
                    self._net.end_error(slot, error)
                    return
            try:
                slot.extra = self._session(slot)
            except Unusable as error:
                self._end(slot, CANNOT_RUN, str(error))
                return
            slot.stage = HANDSHAKE
        self._go_on(slot)

    def _go_on(self, slot: Slot) -> None:
        try:
            more = self._receive(slot)
            result = self._advance(slot)
            if result is None:
                result = self._flush(slot)
        except ssl.SSLError as error:
            self._end(slot, FAIL, f"TLS: {_spell(error)}")
        except OSError as error:
            slot.extra = None
            self._net.end_error(slot, error.errno or 0)
        else:
            if result is not None:
                self._judged(slot, result)
            elif more:
                self._net.soon(slot)

    def _session(self, slot: Slot) -> _Session:
        """The transport and talk of a new connection. Raises `Unusable`."""
        spec = slot.more
        if spec.kind != GRPC:
            return _Session(self._secure(spec), HttpTalk(slot))
        from reconciler.probes.grpc import GrpcTalk  # noqa: PLC0415  (loads the HTTP/2 library)

        return _Session(self._secure(spec) if spec.secure else Plain(), GrpcTalk(spec))

    def _secure(self, spec: Spec) -> Secure:
        try:
            return Secure(self._context(spec), spec.sni)
        except ValueError as error:  # a name that cannot be sent (its encoding): the server is never asked
            raise Unusable(f"the name cannot be used for TLS: {printable(str(error))}") from error

    def _context(self, spec: Spec) -> ssl.SSLContext:
        key = (spec.verify, spec.ca, spec.kind)
        found = self._contexts.get(key)
        if found is not None:
            return found
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
            raise Unusable(f"caFile holds no certificates that can be used: {printable(str(error))}") from error
        if len(self._contexts) >= _CONTEXTS:
            self._contexts.clear()
        self._contexts[key] = context
        return context

    def _receive(self, slot: Slot) -> bool:
        """Move what the socket has into the session; whether there may be more."""
        feed = slot.extra.transport.feed
        for _ in range(_ROUNDS):
            try:
                data = slot.sock.recv(_READ)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != ECONNRESET:
                    raise
                data = b""  # what came before is judged first, as after an orderly end
            feed(data)
            if not data:
                return False
        return True

    def _advance(self, slot: Slot) -> Judgement | None:
        """Go on with the handshake, the request and the answer as far as the received bytes allow."""
        transport, talk = slot.extra.transport, slot.extra.talk
        if slot.stage == HANDSHAKE:
            try:
                if not transport.handshake():
                    return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # which one it is depends on Python's version
                return FAIL, "closed in the TLS handshake"
            transport.write(talk.begin())
            slot.stage = READING
        while True:
            data = transport.read()
            if data is None:
                return None
            result: Judgement | None = talk.take(data, not data)
            reply = talk.outgoing()
            if reply:
                transport.write(reply)
            if result is not None:
                return result
            if not data:
                return UNKNOWN, "the answer ended without a result"

    def _flush(self, slot: Slot) -> Judgement | None:
        """Send what the session has produced; the rest goes out at the next event."""
        session: _Session = slot.extra
        data = session.unsent + session.transport.outgoing()
        if not data:
            return None
        try:
            sent = slot.sock.send(data)
        except BlockingIOError:
            sent = 0
        session.unsent = data[sent:]
        if len(session.unsent) > _MOST_UNSENT + len(slot.request):
            return FAIL, "asks for more and more, and reads nothing"
        return None

    def _judged(self, slot: Slot, judgement: Judgement) -> None:
        """End the run with this result, or go where a redirect leads."""
        talk: Talk = slot.extra.talk
        result = followed(slot, judgement, talk.data, "https") if isinstance(talk, HttpTalk) else judgement
        if result is None:
            self._net.drop(slot)
            self._connect(slot)
            return
        self._end(slot, *result)

    def _end(self, slot: Slot, result: int, detail: str) -> None:
        slot.extra = None
        self._net.end(slot, result, detail)

    def expire(self, slot: Slot) -> None:
        """No complete answer in time."""
        where = slot.extra.talk.waiting() if slot.stage == READING else STAGES[slot.stage]
        slot.extra = None
        self._net.end_late(slot, where + after(slot))

    def abort(self, slot: Slot) -> None:
        """The target is gone."""
        slot.extra = None
        self._net.end_aborted(slot)


def _spell(error: ssl.SSLError) -> str:
    """What OpenSSL says, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {printable(error.verify_message)}"
    return printable((error.reason or str(error)).replace("_", " ").lower())
