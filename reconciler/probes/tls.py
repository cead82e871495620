"""HTTPS probes: the second, slower path. Same answers as `http.py`, through OpenSSL's memory buffers, without blocking.

As in Kubernetes the certificate is never verified: the probe asks whether the server answers, not who it is. A name for
SNI is sent only when the probe has a Host header that is a name. A handshake costs some tenths of a millisecond of CPU
here, so fewer of these run at a time (see `loop.py`). The module is imported with the first HTTPS target: it loads
OpenSSL.
"""

import ssl

from reconciler.probes.answer import judge, waiting_for
from reconciler.probes.net import BROKEN, ET, IN, OUT, Net, pending_error
from reconciler.probes.slot import CONNECTING, HANDSHAKE, READING, STAGES, Slot, printable
from reconciler.probes.streak import CANNOT_RUN, FAIL

_MASK = IN | OUT | ET
_READ = 16 * 1024
_ROUNDS = 32  # at most 512 KiB are taken in one go, so that a fast sender cannot hold up the other probes


class _Session:
    """TLS over two memory buffers. `unsent` is what the socket would not take yet."""

    __slots__ = ("incoming", "outgoing", "tls", "unsent")

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.unsent = b""
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name or None)


class TlsProber:
    """See `Prober`."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def start(self, slot: Slot) -> None:
        """Begin to connect."""
        slot.buffer = b""
        slot.extra = None
        if self._net.open(slot):
            self._net.watch(slot, _MASK)

    def look(self, slot: Slot) -> None:
        """Not asked for: these are watched from the start."""

    def event(self, slot: Slot, mask: int) -> None:
        """The socket is connected, broken, has bytes or room."""
        if slot.stage == CONNECTING:
            if mask & BROKEN:
                error = pending_error(slot)
                if error:
                    self._net.end_error(slot, error)
                    return
            try:
                slot.extra = _Session(self._context, slot.more.sni)
            except ValueError as error:  # a name that cannot be sent (its encoding): the server is never asked
                self._end(slot, CANNOT_RUN, f"the Host header cannot be used for TLS: {printable(str(error))}")
                return
            slot.stage = HANDSHAKE
        try:
            ended = self._receive(slot)
            result = self._advance(slot, ended)
            self._flush(slot)
        except ssl.SSLError as error:
            self._end(slot, FAIL, f"TLS: {printable((error.reason or str(error)).replace('_', ' ').lower())}")
        except OSError as error:
            slot.extra, slot.buffer = None, b""
            self._net.end_error(slot, error.errno or 0)
        else:
            if result is not None:
                self._end(slot, *result)

    def _receive(self, slot: Slot) -> bool:
        """Move what the socket has into the session; True when the other side has closed."""
        incoming = slot.extra.incoming
        for _ in range(_ROUNDS):
            try:
                data = slot.sock.recv(_READ)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                data = b""  # what came before is judged first, as after an orderly end
            if not data:
                incoming.write_eof()
                return True
            incoming.write(data)
        return False

    def _advance(self, slot: Slot, ended: bool) -> tuple[int, str] | None:
        """Go on with the handshake, the request and the answer as far as the received bytes allow."""
        session: _Session = slot.extra
        if slot.stage == HANDSHAKE:
            try:
                session.tls.do_handshake()
            except ssl.SSLWantReadError:
                return (FAIL, "closed in the TLS handshake") if ended else None
            except ssl.SSLEOFError:
                return FAIL, "closed in the TLS handshake"
            session.tls.write(slot.request)
            slot.stage = READING
        while True:
            try:
                data = session.tls.read(_READ)
            except ssl.SSLWantReadError:
                return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                data = b""
            slot.buffer += data
            result = judge(slot.buffer, not data)
            if result is not None:
                return result

    def _flush(self, slot: Slot) -> None:
        """Send what the session has produced; the rest goes out at the next event."""
        session: _Session = slot.extra
        data = session.unsent + session.outgoing.read()
        if not data:
            return
        try:
            sent = slot.sock.send(data)
        except BlockingIOError:
            sent = 0
        session.unsent = data[sent:]

    def _end(self, slot: Slot, result: int, detail: str) -> None:
        slot.extra, slot.buffer = None, b""
        self._net.end(slot, result, detail)

    def expire(self, slot: Slot) -> None:
        """No complete answer in time."""
        where = waiting_for(slot.buffer) if slot.stage == READING else STAGES[slot.stage]
        slot.extra, slot.buffer = None, b""
        self._net.end_late(slot, where)

    def abort(self, slot: Slot) -> None:
        """The target is gone."""
        slot.extra, slot.buffer = None, b""
        self._net.end_aborted(slot)
