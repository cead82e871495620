"""TCP probes: a port that accepts a connection passes. Nothing is sent or read."""

from reconciler.probes.net import BROKEN, ET, OUT, Net, pending_error
from reconciler.probes.slot import STAGES, Slot
from reconciler.probes.streak import PASS

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
