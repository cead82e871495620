"""TCP probes: a port that accepts a connection passes. Nothing is sent. Used by `loop.py`.

At a published port the runtime's proxy accepts even when the container does not listen, and then closes the connection. Such a
connection must therefore stay open for `net.SETTLE`, or the server must send something.
"""

from errno import ECONNRESET
from socket import IPPROTO_TCP, TCP_QUICKACK

from reconciler.probes.net import ERR_HUP, ET, IN, OUT, Net, pending_error
from reconciler.probes.slot import CONNECTING, READING, STAGES, Slot
from reconciler.probes.streak import FAIL, PASS

_MASK = OUT | ET


class TcpProber:
    """See `Prober`."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def start(self, slot: Slot) -> None:
        """Begin to connect."""
        if self._net.open(slot):
            self._net.check_next_turn(slot)

    def check(self, slot: Slot) -> None:
        """End the run if the socket is connected: an empty `send` says so and sends no packet."""
        try:
            slot.sock.send(b"")
        except BlockingIOError:
            self._net.watch(slot, _MASK)
        except OSError as error:
            self._net.end_error(slot, error.errno or 0)
        else:
            self._net.end(slot, PASS, "connected")

    def event(self, slot: Slot, mask: int) -> None:
        """End the run: connected, or failed."""
        if mask & ERR_HUP:
            error = pending_error(slot)
            if error:
                self._net.end_error(slot, error)
                return
        self._net.end(slot, PASS, "connected")

    def expire(self, slot: Slot) -> None:
        """End the run without a connection."""
        self._net.end_late(slot, STAGES[slot.stage])

    def abort(self, slot: Slot) -> None:
        """Drop the connection of a removed target."""
        self._net.end_aborted(slot)


class PublishedProber:
    """See `Prober`."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def start(self, slot: Slot) -> None:
        """Begin to connect."""
        if self._net.open(slot):
            # Acknowledge at once: without this the proxy learns of the connection some 200 ms later.
            slot.sock.setsockopt(IPPROTO_TCP, TCP_QUICKACK, 1)
            self._net.watch(slot, IN | OUT | ET)

    def event(self, slot: Slot, mask: int) -> None:
        """Handle the socket: connected, failed, closed by the server, or readable."""
        error = pending_error(slot) if mask & ERR_HUP else 0
        if slot.stage == CONNECTING:
            if error and error != ECONNRESET:  # a reset connection had been accepted: a refusal has its own error
                self._net.end_error(slot, error)
                return
            slot.stage = READING
            self._net.settle(slot)
        try:
            data = b"" if error else slot.sock.recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._net.end(slot, PASS, "connected")
            return
        self._net.end(slot, FAIL, "the connection was closed at once: nothing listens behind the published port")

    def check(self, slot: Slot) -> None:
        """Pass: the connection stayed open for long enough."""
        self._net.end(slot, PASS, "connected")

    def expire(self, slot: Slot) -> None:
        """End the run: a connection that is still open passes."""
        if slot.stage == READING:
            self._net.end(slot, PASS, "connected")
            return
        self._net.end_late(slot, STAGES[slot.stage])

    def abort(self, slot: Slot) -> None:
        """Drop the connection of a removed target."""
        self._net.end_aborted(slot)
