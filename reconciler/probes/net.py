"""Sockets of network probes: opens, watches and drops them, and maps their errors to results. Used by the network probers and `loop.py`.

Each probe has a new connection and ends it with a reset (linger 0): no TIME_WAIT on this host, no long-lived entry in the
kernel's connection tracking. Quick acknowledgements are off, so that a plain port check is three packets. A server never sees
such a connection in `accept()`; docs/probes.md says so.
"""

import errno
import os
import select
import socket
import time
from collections import deque
from struct import pack

from reconciler.probes.slot import CONNECTING, Finish, Slot, duration_text
from reconciler.probes.streak import CANNOT_RUN, FAIL, UNKNOWN

SETTLE = 100_000_000
"""How long a connection through a published port must stay open, ns: a proxy without a listener closes it within a few ms."""

IN, OUT, ET = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET
ERR_HUP = select.EPOLLERR | select.EPOLLHUP

_RESET_ON_CLOSE = pack("ii", 1, 0)
_TYPE = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
_SOL_SOCKET, _SO_LINGER, _SO_ERROR = socket.SOL_SOCKET, socket.SO_LINGER, socket.SO_ERROR
_IPPROTO_TCP, _TCP_QUICKACK = socket.IPPROTO_TCP, socket.TCP_QUICKACK
_STARTED = (0, errno.EINPROGRESS)

_TARGET_ERRORS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.ECONNABORTED: "connection aborted",
    errno.EPIPE: "connection closed while sending",
    errno.ETIMEDOUT: "connection timed out",
}
"""Errors that come from the target. All others (no route, no descriptor, no local port) come from this host: unknown."""

_LOCAL_ERRORS = {
    errno.EADDRNOTAVAIL: "no free local port",
    errno.EMFILE: "too many open files in the probe engine",
    errno.ENFILE: "too many open files on this host",
}


def classify(number: int) -> tuple[int, str]:
    """The result and detail of a failed socket call, by its errno."""
    target_error = _TARGET_ERRORS.get(number)
    if target_error:
        return FAIL, target_error
    return UNKNOWN, _LOCAL_ERRORS.get(number) or os.strerror(number).lower()


def sockaddr(address: str, port: int) -> tuple[object, ...]:
    """The address in the form that `connect` takes. Raises OSError when it is not numeric."""
    if ":" not in address:
        socket.inet_pton(socket.AF_INET, address)
        return (address, port)
    if "%" not in address:
        socket.inet_pton(socket.AF_INET6, address)
        return (address, port, 0, 0)
    infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return infos[0][4]


class Net:
    """Opens and drops the sockets of probes and keeps the table from descriptor to slot."""

    def __init__(self, epoll: select.epoll, table: dict[int, Slot], finish: Finish) -> None:
        self._register = epoll.register
        self._unregister = epoll.unregister
        self._table = table
        self.finish = finish
        self.to_check: list[tuple[Slot, int]] = []
        self.settling: deque[tuple[int, Slot, int]] = deque()

    def open(self, slot: Slot) -> bool:
        """Begin to connect; False when that failed at once and the run has ended.

        Call `check_next_turn` or `watch` afterwards.
        """
        address = slot.sockaddr
        if slot.allowed is not None:
            from reconciler.probes.off_limits import refusal  # noqa: PLC0415  (only for addresses that manifests or DNS give)

            # Here, because an address may have become this host's since the target was declared, and for each redirect.
            reason = refusal(str(address[0]), slot.allowed)
            if reason:
                self.finish(slot, CANNOT_RUN, reason)
                return False
        try:
            sock = socket.SocketType(socket.AF_INET if len(address) == 2 else socket.AF_INET6, _TYPE, 0)
        except OSError as error:
            self.finish(slot, *classify(error.errno or 0))
            return False
        sock.setsockopt(_SOL_SOCKET, _SO_LINGER, _RESET_ON_CLOSE)
        sock.setsockopt(_IPPROTO_TCP, _TCP_QUICKACK, 0)
        number = sock.connect_ex(address)
        if number not in _STARTED:
            sock.close()
            self.finish(slot, *classify(number))
            return False
        slot.sock = sock
        slot.stage = CONNECTING
        return True

    def check_next_turn(self, slot: Slot) -> None:
        """Have the prober's `check` called in the next turn.

        Most targets are on this host and answer within a turn: one check costs less than watching. The prober watches a socket
        that is not ready by then.
        """
        self.to_check.append((slot, slot.run))

    def settle(self, slot: Slot) -> None:
        """Have the prober's `check` called after SETTLE, unless the run ends before."""
        self.settling.append((time.clock_gettime_ns(time.CLOCK_BOOTTIME) + SETTLE, slot, slot.run))

    def watch(self, slot: Slot, mask: int) -> None:
        """Have the prober's `event` called when the socket is ready (edge-triggered; at once if it is ready already)."""
        fd = slot.sock.fileno()
        try:
            self._register(fd, mask)
        except OSError as error:  # the user's limit of watches
            self.end_error(slot, error.errno or 0)
            return
        slot.fd = fd
        self._table[fd] = slot

    def drop(self, slot: Slot) -> None:
        """Close the socket with a reset. It is unregistered first, because a command that is being started may share the descriptor."""
        fd = slot.fd
        if fd >= 0:
            self._unregister(fd)
            del self._table[fd]
            slot.fd = -1
        slot.sock.close()

    def end(self, slot: Slot, result: int, detail: str) -> None:
        """Close the socket and end the run."""
        self.drop(slot)
        self.finish(slot, result, detail)

    def end_error(self, slot: Slot, number: int) -> None:
        """Close the socket and end the run with the result of this errno."""
        self.drop(slot)
        self.finish(slot, *classify(number))

    def end_late(self, slot: Slot, stage: str) -> None:
        """Close the socket and end the run as timed out."""
        self.drop(slot)
        self.finish(slot, FAIL, f"timed out after {duration_text(slot.timeout)} {stage}")

    def end_aborted(self, slot: Slot) -> None:
        """Close the socket of a removed target."""
        self.drop(slot)
        self.finish(slot, UNKNOWN, "")


def pending_error(slot: Slot) -> int:
    """The pending error of the socket (SO_ERROR), 0 for none."""
    return slot.sock.getsockopt(_SOL_SOCKET, _SO_ERROR)
