"""TCP probes: a port that accepts a connection passes. Nothing is sent.

Through a published port the runtime's proxy accepts, whether anybody listens behind it or not, and hangs up when nobody
does. So such a connection must also stay open for a moment (`net.SETTLE`), or say something.
"""

from errno import ECONNRESET
from socket import IPPROTO_TCP, TCP_QUICKACK

from reconciler.probes.net import BROKEN, ET, IN, OUT, Net, pending_error
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
            self._net.soon(slot)

    def look(self, slot: Slot) -> None:
        """Whether it is connected by now: sending nothing says so and sends nothing."""
        try:
            slot.sock.send(b"")
        except BlockingIOError:
            self._net.watch(slot, _MASK)
        except OSError as error:
            self._net.end_error(slot, error.errno or 0)
        else:
            self._net.end(slot, PASS, "connected")

    def event(self, slot: Slot, mask: int) -> None:
        """Connected, or not."""
        if mask & BROKEN:
            error = pending_error(slot)
            if error:
                self._net.end_error(slot, error)
                return
        self._net.end(slot, PASS, "connected")

    def expire(self, slot: Slot) -> None:
        """No answer in time."""
        self._net.end_late(slot, STAGES[slot.stage])

    def abort(self, slot: Slot) -> None:
        """The target is gone."""
        self._net.end_aborted(slot)


class PublishedProber:
    """See `Prober`."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def start(self, slot: Slot) -> None:
        """Begin to connect."""
        if self._net.open(slot):
            # The proxy must hear at once that it has a connection: without this it would be told some 200 ms later.
            slot.sock.setsockopt(IPPROTO_TCP, TCP_QUICKACK, 1)
            self._net.watch(slot, IN | OUT | ET)

    def event(self, slot: Slot, mask: int) -> None:
        """Connected, broken, closed by the other side, or it has something to say."""
        error = pending_error(slot) if mask & BROKEN else 0
        if slot.stage == CONNECTING:
            if error and error != ECONNRESET:  # what was reset had been connected: a refusal has its own error
                self._net.end_error(slot, error)
                return
            slot.stage = READING
            self._net.settle(slot)
        try:
            said = b"" if error else slot.sock.recv(1)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said:
            self._net.end(slot, PASS, "connected")
            return
        self._net.end(slot, FAIL, "connected and hung up at once: nothing listens behind the published port")

    def look(self, slot: Slot) -> None:
        """It was left alone for long enough."""
        self._net.end(slot, PASS, "connected")

    def expire(self, slot: Slot) -> None:
        """Out of time: open until now is open, else nothing answered."""
        if slot.stage == READING:
            self._net.end(slot, PASS, "connected")
            return
        self._net.end_late(slot, STAGES[slot.stage])

    def abort(self, slot: Slot) -> None:
        """The target is gone."""
        self._net.end_aborted(slot)
