"""Hints from an engine's event stream: a thread that calls back when something happened to a container.

What happens to ours is told at once. Containers of others matter as well, because some of them are adopted, but there may be
many that come and go: what happens to them is told at most once in `OTHERS_PAUSE`.

An event only makes the next look come sooner; what is the case is always read. So a stream that breaks, lies or is not
there costs time, never correctness. `DockerRuntime` starts one for whoever asks to be told.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from urllib.parse import urlencode

from providers.facts import LABEL_INSTANCE

ACTIONS = ("die", "start", "pause", "unpause", "destroy", "rename")
"""What may change whether a replica serves. What is changed in place, and exec probes, are left out: they are many."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts to listen; doubled while they go on failing."""

OTHERS_PAUSE = 2.0
"""Seconds between two hints about containers of others; the last one of a series is never lost."""

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
        instance: whose containers are ours.
        changed: called on a thread of this listener for each event, and each time the stream begins: what came before is not
            in it. It must not raise.
        others_pause: seconds between two hints about containers of others.
    """

    def __init__(
        self, path: str, instance: str, changed: Callable[[], None], others_pause: float = OTHERS_PAUSE
    ) -> None:
        self._path, self._changed, self._instance = path, changed, instance
        self._others_pause = others_pause
        self._later: threading.Timer | None = None
        self._told_at = 0.0
        filters = {"type": ["container"], "event": list(ACTIONS)}
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
            later = self._later
        self._thread.join(1.0)
        if later is not None:
            later.cancel()
            later.join(1.0)

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
            while line := answer.readline():
                if self._is_ours(line):
                    self._tell()
                else:
                    self._tell_of_others()
        finally:
            with self._lock:
                self._socket = None
        return True

    def _is_ours(self, line: bytes) -> bool:
        """Whether an event is of a container of ours; one that cannot be read counts as that: a look costs little."""
        try:
            attributes = json.loads(line)["Actor"]["Attributes"]
            return bool(attributes.get(LABEL_INSTANCE) == self._instance)
        except (ValueError, TypeError, KeyError, AttributeError):
            return True

    def _tell_of_others(self) -> None:
        """Tell now, or at the end of the pause; once for all events until then."""
        with self._lock:
            if self._later is not None or self._closed.is_set():
                return
            wait = self._told_at + self._others_pause - time.monotonic()
            if wait > 0:
                self._later = threading.Timer(wait, self._tell_late)
                self._later.name, self._later.daemon = "engine events", True
                self._later.start()
                return
            self._told_at = time.monotonic()
        self._tell()

    def _tell_late(self) -> None:
        with self._lock:
            self._later, self._told_at = None, time.monotonic()
        self._tell()

    def _tell(self) -> None:
        if not self._closed.is_set():
            self._changed()
