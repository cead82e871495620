"""One HTTP request and its answer, with one deadline for all of it. Used to push and to probe, inside containers.

Not `http.client`: that costs ten times the memory and start-up time, and its time-outs are per read.
"""

import os
import select
import socket
import time
from typing import NamedTuple

MOST = 64 * 1024
"""Bytes of an answer that are looked at."""


class Answer(NamedTuple):
    """The status and the beginning of the body."""

    status: int
    body: bytes


class Failed(Exception):
    """No answer: what happened, in words."""


class Interrupted(Failed):
    """The wait was ended by `wake`, which says nothing about the other side."""


def exchange(place: str | tuple[str, int], request: bytes, seconds: float, wake: int = -1) -> Answer:
    """Connect, send, and read the answer until the other side closes.

    Args:
        place: the path of a unix socket, or (host, port).
        request: the whole request; it should say `Connection: close`.
        seconds: for all of it together.
        wake: a descriptor that ends the wait when it becomes readable; -1 = none.

    Raises:
        Failed: not connected, no complete answer in time, or no HTTP.
        Interrupted: `wake` became readable.
    """
    end = time.monotonic() + seconds
    try:
        with _connected(place, end, wake) as line:
            line.setblocking(False)
            left = memoryview(request)
            while left:
                _wait(line, select.POLLOUT, end, wake)
                left = left[line.send(left) :]
            return _answer(line, end, wake)
    except OSError as error:
        raise Failed(error.strerror or str(error)) from error


def _connected(place: str | tuple[str, int], end: float, wake: int) -> socket.socket:
    if isinstance(place, str):
        return _connected_unix(place)
    # Names are for people who push by hand; what containers are given is an address.
    family, kind, _, _, where = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
    line = socket.socket(family, kind)
    try:
        line.setblocking(False)
        try:
            line.connect(where)
        except BlockingIOError:
            _wait(line, select.POLLOUT, end, wake)
            number = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number)) from None
    except BaseException:
        line.close()
        raise
    return line


def _connected_unix(path: str) -> socket.socket:
    """Connecting to a unix socket does not wait. A path may be longer than the kernel takes at once."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(1.0)  # a full backlog waits
        if len(os.fsencode(path)) <= 107:
            line.connect(path)
            return line
        directory, name = os.path.split(path)
        fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:
            line.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except BaseException:
        line.close()
        raise
    return line


def _answer(line: socket.socket, end: float, wake: int) -> Answer:
    found = b""
    while len(found) < MOST:
        _wait(line, select.POLLIN, end, wake)
        chunk = line.recv(16_384)
        found += chunk
        if not chunk or _complete(found):
            break
    head, _, body = found.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise Failed("the answer is not HTTP" if found else "the connection was closed without an answer")
    return Answer(int(words[1]), body)


def _complete(found: bytes) -> bool:
    """Whether the answer says how long it is, and is all there."""
    head, gap, body = found.partition(b"\r\n\r\n")
    if not gap:
        return False
    for header in head.lower().split(b"\r\n")[1:]:
        name, _, value = header.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def _wait(line: socket.socket, what: int, end: float, wake: int) -> None:
    poll = select.poll()
    poll.register(line, what)
    if wake >= 0:
        poll.register(wake, select.POLLIN)
    left = end - time.monotonic()
    ready = dict(poll.poll(max(0, int(left * 1000)))) if left > 0 else {}
    if line.fileno() in ready:
        return
    if ready:
        raise Interrupted("interrupted")
    raise Failed("no answer in time")
