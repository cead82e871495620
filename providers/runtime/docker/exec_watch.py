"""Kills commands in containers whose exec probe timed out: the engine has no request for it, and the probe itself was killed.

The probe (`exec_probe.py`) connects here before its command starts and names the command. A connection that breaks before the
probe reported that the command exited means that the probe was killed. `DockerRuntime` starts one watch with the first exec
probe; it is one thread that sleeps until something happens.
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

from providers.runtime.docker import exec_probe

WORKERS = 4
"""Commands that are killed at the same time; further ones are queued."""

MAX_PROBES = 1000
"""Probes that are watched at most: more than the probe engine ever starts. Further ones run unwatched."""

MAX_LINE = 4096


@dataclass(slots=True)
class _Probe:
    """One running probe: its connection, and what it has sent so far."""

    connection: socket.socket
    received: bytes = b""


class ExecWatch:
    """Watches the exec probes of one engine.

    Args:
        path: the engine's unix socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # Abstract: no file to leave behind, and no limit on the length of the state directory's path.
        self._name = f"reconciler-exec-{os.getpid()}-{os.urandom(8).hex()}"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self._killers: ThreadPoolExecutor | None = None

    def name(self) -> str:
        """The abstract socket's name without the leading NUL; the watch listens there from now on. Raises OSError."""
        with self._lock:
            if self._thread is None:
                self._start()
        return self._name

    def close(self) -> None:
        """Stop listening. Kills under way are completed first, or abandoned after their time."""
        with self._lock:
            thread, wakeup, killers = self._thread, self._wakeup, self._killers
            self._thread = self._wakeup = self._killers = None
        if thread is None or wakeup is None or killers is None:
            return
        with suppress(OSError):
            wakeup[1].send(b"x")
        thread.join()
        wakeup[1].close()
        killers.shutdown(wait=True)

    def _start(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(f"\0{self._name}")
            listener.listen(128)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._wakeup = socket.socketpair()
        self._killers = ThreadPoolExecutor(WORKERS, "exec-end")
        self._thread = threading.Thread(
            target=_listen, args=(self._path, listener, self._wakeup[0], self._killers), name="exec watch", daemon=True
        )
        self._thread.start()


def _listen(path: str, listener: socket.socket, wakeup: socket.socket, killers: ThreadPoolExecutor) -> None:
    """The watch's thread; ends when `wakeup` is readable."""
    probes: dict[int, _Probe] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(wakeup, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is wakeup:
                    # The last connections may have broken just now, together with the program that is shutting down.
                    _finish(path, probes, killers)
                    listener.close()
                    wakeup.close()
                    return
                if key.fileobj is listener:
                    _accept(listener, probes, ready)
                    continue
                probe = probes[key.fd]
                if not _receive(probe):
                    ready.unregister(probe.connection)
                    del probes[key.fd]
                    _gone(path, probe, killers)


def _accept(listener: socket.socket, probes: dict[int, _Probe], ready: selectors.BaseSelector) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:  # the probe has exited already, or no descriptor is free: the probe runs unwatched
        return
    user = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if user not in (0, os.geteuid()) or len(probes) >= MAX_PROBES:
        connection.close()
        return
    connection.setblocking(False)
    probes[connection.fileno()] = _Probe(connection)
    ready.register(connection, selectors.EVENT_READ)


def _receive(probe: _Probe) -> bool:
    """Read what a probe sends; False when its connection has ended."""
    try:
        data = probe.connection.recv(MAX_LINE)
    except BlockingIOError:
        return True
    except OSError:
        return False
    probe.received = (probe.received + data)[:MAX_LINE]
    return bool(data)


def _gone(path: str, probe: _Probe, killers: ThreadPoolExecutor) -> None:
    """A probe is gone: kill its command, unless it has exited by itself."""
    probe.connection.close()
    line, newline, rest = probe.received.partition(b"\n")
    if not newline or rest.endswith(exec_probe.DONE):
        return
    try:
        command = json.loads(line)
        exec_id, mark = str(command["exec"]), str(command["mark"])
    except (ValueError, TypeError, KeyError):
        return
    if mark.startswith(exec_probe.MARK):
        killers.submit(_kill, path, exec_id, mark)


def _finish(path: str, probes: dict[int, _Probe], killers: ThreadPoolExecutor) -> None:
    for probe in probes.values():
        if _receive(probe):
            probe.connection.close()  # it continues, and its command with it
        else:
            _gone(path, probe, killers)


def _kill(path: str, exec_id: str, mark: str) -> None:
    with suppress(exec_probe.NoAnswer):  # gone with its container, or the next run of the probe kills it
        exec_probe.end_run(path, exec_id, mark)
