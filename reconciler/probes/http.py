"""HTTP probes over plain TCP: connect, send the prepared request, read until `answer.judge` has a result.

A redirect to the same place is followed within the same run and its deadline, on a connection of its own.
"""

from errno import ECONNRESET

from reconciler.probes.answer import Judgement, judge, waiting_for
from reconciler.probes.net import BROKEN, ET, IN, OUT, Net, pending_error
from reconciler.probes.redirect import after, followed
from reconciler.probes.slot import CONNECTING, READING, SENDING, STAGES, Slot

_MASK = IN | OUT | ET
_READ = 16 * 1024


class HttpProber:
    """See `Prober`."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def start(self, slot: Slot) -> None:
        """Begin to connect."""
        slot.hop = None
        self._connect(slot)

    def _connect(self, slot: Slot) -> None:
        slot.buffer = b""
        if self._net.open(slot):
            self._net.soon(slot)

    def look(self, slot: Slot) -> None:
        """A turn later: most targets are connected by now, or have answered."""
        if slot.stage == READING:
            self._read(slot)
            return
        self._send(slot, slot.request if slot.hop is None else slot.hop[0])
        if slot.stage == READING:
            self._net.soon(slot)

    def event(self, slot: Slot, mask: int) -> None:
        """The watched socket is connected, broken, has bytes or room."""
        if slot.stage == CONNECTING:
            if mask & BROKEN:
                error = pending_error(slot)
                if error:
                    self._net.end_error(slot, error)
                    return
            self._send(slot, slot.request if slot.hop is None else slot.hop[0])
        elif slot.stage == SENDING and mask & OUT:
            self._send(slot, slot.extra)
        if slot.stage in (SENDING, READING) and mask & (IN | BROKEN):
            self._read(slot)

    def _send(self, slot: Slot, data: bytes) -> None:
        """Send the request; what cannot be sent now is sent when the socket says so."""
        try:
            sent = slot.sock.send(data)
        except BlockingIOError:
            if slot.fd < 0:
                self._net.watch(slot, _MASK)
            return
        except OSError as error:
            if slot.stage == CONNECTING and slot.fd < 0:
                self._net.end_error(slot, error.errno or 0)
                return
            # The server may have answered and closed without reading: its answer, if any, counts.
            slot.stage = READING
            self._read(slot)
            return
        if sent == len(data):
            slot.stage = READING
            return
        slot.stage = SENDING
        slot.extra = data[sent:]
        if slot.fd < 0:
            self._net.watch(slot, _MASK)

    def _read(self, slot: Slot) -> None:
        """Read until there is a result or nothing more to read."""
        sock = slot.sock
        while True:
            try:
                data = sock.recv(_READ)
            except BlockingIOError:
                if slot.fd < 0:
                    self._net.watch(slot, _MASK)
                return
            except OSError as error:
                self._end_broken(slot, error.errno or 0)
                return
            slot.buffer = buffer = slot.buffer + data if slot.buffer else data
            result = judge(buffer, not data, slot.rules)
            if result is not None:
                self._judged(slot, result)
                return

    def _judged(self, slot: Slot, judgement: Judgement) -> None:
        """End the run with this result, or go where a redirect leads."""
        result = followed(slot, judgement, slot.buffer, "http")
        if result is None:
            self._net.drop(slot)
            self._connect(slot)
            return
        slot.buffer = b""
        self._net.end(slot, *result)

    def _end_broken(self, slot: Slot, number: int) -> None:
        """The connection broke. A reset is how a server ends that answers without reading: judge what it said first."""
        said = judge(slot.buffer, True, slot.rules) if number == ECONNRESET and slot.buffer else None
        if said is None:
            slot.buffer = b""
            self._net.end_error(slot, number)
            return
        self._judged(slot, said)

    def expire(self, slot: Slot) -> None:
        """No complete answer in time."""
        where = waiting_for(slot.buffer) if slot.stage == READING else STAGES[slot.stage]
        slot.buffer = b""
        self._net.end_late(slot, where + after(slot))

    def abort(self, slot: Slot) -> None:
        """The target is gone."""
        slot.buffer = b""
        self._net.end_aborted(slot)
