"""One HTTP request and its answer, with one deadline for both. Used for pushes and probes inside containers.

It does not use `http.client`, which needs ten times the memory and start-up time and has time-outs per read.
"""

import os
import select
import socket
import time
from typing import NamedTuple

ANSWER_BYTES = 64 * 1024
"""The size limit of an answer; the rest is not read."""


class Answer(NamedTuple):
    """The status and the beginning of the body."""

    status: int
    body: bytes


class Failed(Exception):
    """There was no answer; the message says why."""


class Interrupted(Failed):
    """`wake` ended the wait before there was an answer."""


def exchange(address: str | tuple[str, int], request: bytes, seconds: float, wake: int = -1) -> Answer:
    """Connect, send, and read the answer until the server closes.

    Args:
        address: the path of a unix socket, or (host, port).
        request: the whole request, with `Connection: close`.
        seconds: the time limit for everything.
        wake: a descriptor that ends the wait when it becomes readable; -1 = none.

    Raises:
        Failed: no connection, no complete answer in time, or the answer is not HTTP.
        Interrupted: `wake` became readable.
    """
    end = time.monotonic() + seconds
    try:
        with _connected(address, end, wake) as connection:
            connection.setblocking(False)
            left = memoryview(request)
            while left:
                _wait(connection, select.POLLOUT, end, wake)
                left = left[connection.send(left) :]
            return _answer(connection, end, wake)
    except OSError as error:
        raise Failed(error.strerror or str(error)) from error


def _connected(address: str | tuple[str, int], end: float, wake: int) -> socket.socket:
    if isinstance(address, str):
        return _connected_unix(address)
    # Containers get an address; a host name is for manual pushes.
    family, kind, _, _, socket_address = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    connection = socket.socket(family, kind)
    try:
        connection.setblocking(False)
        try:
            connection.connect(socket_address)
        except BlockingIOError:
            _wait(connection, select.POLLOUT, end, wake)
            number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _connected_unix(path: str) -> socket.socket:
    """Connect to a unix socket; its path may be longer than the kernel allows."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)  # for a full backlog
        if len(os.fsencode(path)) <= 107:
            connection.connect(path)
            return connection
        directory, name = os.path.split(path)
        fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except BaseException:
        connection.close()
        raise
    return connection


def _answer(connection: socket.socket, end: float, wake: int) -> Answer:
    received = b""
    while len(received) < ANSWER_BYTES:
        _wait(connection, select.POLLIN, end, wake)
        chunk = connection.recv(16_384)
        received += chunk
        if not chunk or _complete(received):
            break
    head, _, body = received.partition(b"\r\n\r\n")
    status_line = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status_line) < 2 or not status_line[0].startswith(b"HTTP/") or not status_line[1].isdigit():
        raise Failed("the answer is not HTTP" if received else "the connection was closed without an answer")
    return Answer(int(status_line[1]), body)


def _complete(received: bytes) -> bool:
    """Whether the answer has a Content-Length and is complete."""
    head, gap, body = received.partition(b"\r\n\r\n")
    if not gap:
        return False
    for header in head.lower().split(b"\r\n")[1:]:
        name, _, value = header.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def _wait(connection: socket.socket, events: int, end: float, wake: int) -> None:
    poll = select.poll()
    poll.register(connection, events)
    if wake >= 0:
        poll.register(wake, select.POLLIN)
    left = end - time.monotonic()
    ready = dict(poll.poll(max(0, int(left * 1000)))) if left > 0 else {}
    if connection.fileno() in ready:
        return
    if ready:
        raise Interrupted("interrupted")
    raise Failed("no answer in time")
