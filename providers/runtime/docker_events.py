"""Hints from an engine's event stream: a thread that calls back when something happened to a container of ours.

An event only makes the next look come sooner; what is the case is always read. So a stream that breaks, lies or is not
there costs time, never correctness. `DockerRuntime` starts one for whoever asks to be told.
"""

import http.client
import json
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from urllib.parse import urlencode

from providers.facts import LABEL_INSTANCE

ACTIONS = ("die", "start", "pause", "unpause", "destroy", "rename")
"""What may change whether a replica serves. What is changed in place, and exec probes, are left out: they are many."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts to listen; doubled while they go on failing."""

CONNECT_SECONDS = 3.0


class _Engine(http.client.HTTPConnection):
    """HTTP over the engine's unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(CONNECT_SECONDS)
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            raise


class Listener:
    """Listens to one engine until it is closed.

    Args:
        path: the engine's unix socket.
        instance: whose containers matter.
        changed: called on this listener's own thread for each event, and each time the stream begins: what came before is not
            in it. It must not raise.
    """

    def __init__(self, path: str, instance: str, changed: Callable[[], None]) -> None:
        self._path, self._changed = path, changed
        filters = {"type": ["container"], "event": list(ACTIONS), "label": [f"{LABEL_INSTANCE}={instance}"]}
        self._where = f"/events?{urlencode({'filters': json.dumps(filters)})}"
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="engine events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; returns at once, and `changed` is not called for what comes later."""
        self._closed.set()
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(1.0)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._closed.is_set():
            with suppress(OSError, http.client.HTTPException), closing(_Engine(self._path)) as engine:
                if self._listen(engine):
                    pause = FIRST_PAUSE
            self._closed.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _listen(self, engine: _Engine) -> bool:
        """Read one stream to its end. Returns whether there was one. Raises OSError, HTTPException."""
        engine.connect()
        with self._lock:
            self._socket = engine.sock
        try:
            engine.request("GET", self._where)
            engine.sock.settimeout(None)  # silence is what a quiet engine says; `close` ends it
            answer = engine.getresponse()
            if answer.status != http.client.OK:
                return False
            self._tell()
            while answer.readline():
                self._tell()
        finally:
            with self._lock:
                self._socket = None
        return True

    def _tell(self) -> None:
        if not self._closed.is_set():
            self._changed()
