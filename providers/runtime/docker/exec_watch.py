"""Ends commands in containers whose probe ran out of time: the engine has no request for it, and the probe's helper is dead then.

The helper (`docker_exec.py`) connects here before its command starts and says which one it is. A connection that breaks before
the helper has said that the command ended means that somebody killed the helper. `DockerRuntime` starts one watch with the first
exec probe; it is one thread that sleeps until something happens.
"""

import json
import os
import selectors
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from providers.runtime.docker import exec_helper

AT_ONCE = 4
"""Commands that are ended at the same time; further ones wait for their turn."""

CONNECTIONS = 1000
"""Helpers that are listened to at most: more than the probe engine ever starts. Others run unwatched."""

MAX_LINE = 4096


@dataclass(slots=True)
class _Helper:
    """What one helper has said so far."""

    link: socket.socket
    said: bytes = b""


class ExecWatch:
    """Watches the helpers of one engine's exec probes.

    Args:
        path: the engine's unix socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # Abstract: no file to leave behind, and no limit on the length of the state directory's path.
        self._name = f"reconciler-exec-{os.getpid()}-{os.urandom(8).hex()}"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._enders: ThreadPoolExecutor | None = None

    def name(self) -> str:
        """The abstract socket's name, without the leading NUL; something listens there from now on. Raises OSError."""
        with self._lock:
            if self._thread is None:
                self._start()
        return self._name

    def close(self) -> None:
        """Stop listening. Commands that are being ended are ended first, or given up after their time."""
        with self._lock:
            thread, bell, enders = self._thread, self._bell, self._enders
            self._thread = self._bell = self._enders = None
        if thread is None or bell is None or enders is None:
            return
        with suppress(OSError):
            bell[1].send(b"x")
        thread.join()
        bell[1].close()
        enders.shutdown(wait=True)

    def _start(self) -> None:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            door.bind(f"\0{self._name}")
            door.listen(128)
            door.setblocking(False)
        except OSError:
            door.close()
            raise
        self._bell = socket.socketpair()
        self._enders = ThreadPoolExecutor(AT_ONCE, "exec-end")
        self._thread = threading.Thread(
            target=_listen, args=(self._path, door, self._bell[0], self._enders), name="exec watch", daemon=True
        )
        self._thread.start()


def _listen(path: str, door: socket.socket, bell: socket.socket, enders: ThreadPoolExecutor) -> None:
    """The watch's thread; ends when the bell rings."""
    helpers: dict[int, _Helper] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(door, selectors.EVENT_READ)
        ready.register(bell, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is bell:
                    # The last connections may have broken just now, together with the program that is ending.
                    _sweep(path, helpers, enders)
                    door.close()
                    bell.close()
                    return
                if key.fileobj is door:
                    _admit(door, helpers, ready)
                    continue
                helper = helpers[key.fd]
                if not _hear(helper):
                    ready.unregister(helper.link)
                    del helpers[key.fd]
                    _leave(path, helper, enders)


def _admit(door: socket.socket, helpers: dict[int, _Helper], ready: selectors.BaseSelector) -> None:
    try:
        link, _ = door.accept()
    except OSError:  # it has gone again, or we are out of descriptors: the helper goes on unwatched
        return
    user = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if user not in (0, os.geteuid()) or len(helpers) >= CONNECTIONS:
        link.close()
        return
    link.setblocking(False)
    helpers[link.fileno()] = _Helper(link)
    ready.register(link, selectors.EVENT_READ)


def _hear(helper: _Helper) -> bool:
    """Take what a helper says; False when its connection has ended."""
    try:
        data = helper.link.recv(MAX_LINE)
    except BlockingIOError:
        return True
    except OSError:
        return False
    helper.said = (helper.said + data)[:MAX_LINE]
    return bool(data)


def _leave(path: str, helper: _Helper, enders: ThreadPoolExecutor) -> None:
    """A helper is gone: have its command ended, unless it ended by itself."""
    helper.link.close()
    line, newline, rest = helper.said.partition(b"\n")
    if not newline or rest.endswith(exec_helper.DONE):
        return
    try:
        told = json.loads(line)
        number, mark = str(told["exec"]), str(told["mark"])
    except (ValueError, TypeError, KeyError):
        return
    if mark.startswith(exec_helper.MARK):
        enders.submit(_end, path, number, mark)


def _sweep(path: str, helpers: dict[int, _Helper], enders: ThreadPoolExecutor) -> None:
    for helper in helpers.values():
        if _hear(helper):
            helper.link.close()  # it runs on, and its command with it
        else:
            _leave(path, helper, enders)


def _end(path: str, number: str, mark: str) -> None:
    with suppress(exec_helper.CannotAsk):  # gone with its container, or the next run of the probe ends it
        exec_helper.end_run(path, number, mark)
