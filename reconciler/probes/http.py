"""HTTP probes over plain TCP: connect, send the prepared request, read until `answer.judge` has a result. Used by `loop.py` and `named.py`.

A redirect to the same place is followed within the same run and its deadline, on a new connection.
"""

from errno import ECONNRESET

from reconciler.probes.answer import Judgement, judge, waiting_for
from reconciler.probes.net import ERR_HUP, ET, IN, OUT, Net, pending_error
from reconciler.probes.redirect import follow_redirect, redirect_note
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
            self._net.check_next_turn(slot)

    def check(self, slot: Slot) -> None:
        """A turn later, most targets are connected or have answered."""
        if slot.stage == READING:
            self._read(slot)
            return
        self._send(slot, slot.request if slot.hop is None else slot.hop[0])
        if slot.stage == READING:
            self._net.check_next_turn(slot)

    def event(self, slot: Slot, mask: int) -> None:
        """Handle the watched socket: connected, failed, readable or writable."""
        if slot.stage == CONNECTING:
            if mask & ERR_HUP:
                error = pending_error(slot)
                if error:
                    self._net.end_error(slot, error)
                    return
            self._send(slot, slot.request if slot.hop is None else slot.hop[0])
        elif slot.stage == SENDING and mask & OUT:
            self._send(slot, slot.extra)
        if slot.stage in (SENDING, READING) and mask & (IN | ERR_HUP):
            self._read(slot)

    def _send(self, slot: Slot, data: bytes) -> None:
        """Send the request; the rest follows when the socket is writable."""
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
            # The server may have answered and closed without reading the request: its answer counts, if there is one.
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
        """Read until there is a result or no more data."""
        sock = slot.sock
        while True:
            try:
                data = sock.recv(_READ)
            except BlockingIOError:
                if slot.fd < 0:
                    self._net.watch(slot, _MASK)
                return
            except OSError as error:
                self._end_failed(slot, error.errno or 0)
                return
            slot.buffer = buffer = slot.buffer + data if slot.buffer else data
            result = judge(buffer, not data, slot.rules)
            if result is not None:
                self._judged(slot, result)
                return

    def _judged(self, slot: Slot, judgement: Judgement) -> None:
        """End the run with this result, or follow a redirect."""
        result = follow_redirect(slot, judgement, slot.buffer, "http")
        if result is None:
            self._net.drop(slot)
            self._connect(slot)
            return
        slot.buffer = b""
        self._net.end(slot, *result)

    def _end_failed(self, slot: Slot, number: int) -> None:
        """End a run whose connection failed. A server that answers without reading ends with a reset: its answer is judged first."""
        judgement = judge(slot.buffer, True, slot.rules) if number == ECONNRESET and slot.buffer else None
        if judgement is None:
            slot.buffer = b""
            self._net.end_error(slot, number)
            return
        self._judged(slot, judgement)

    def expire(self, slot: Slot) -> None:
        """End the run without a complete answer."""
        stage = waiting_for(slot.buffer) if slot.stage == READING else STAGES[slot.stage]
        slot.buffer = b""
        self._net.end_late(slot, stage + redirect_note(slot))

    def abort(self, slot: Slot) -> None:
        """Drop the connection of a removed target."""
        slot.buffer = b""
        self._net.end_aborted(slot)
