"""Hints from an engine's event stream: a thread that calls back when something happened to a container.

Events of our own containers call back at once. Foreign containers matter as well, because some of them are adopted, but there
may be many short-lived ones: their events call back at most once in `FOREIGN_PAUSE`.

An event only makes the next look come sooner; the look reads the state. So a broken, wrong or missing stream costs time, never
correctness. `DockerRuntime.watch` starts one listener per callback.
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

ACTIONS = ("die", "oom", "start", "pause", "unpause", "destroy", "rename")
"""Events that may change whether a replica serves. Updates in place and exec probes are left out: they are many."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts to listen; doubled after each failure."""

FOREIGN_PAUSE = 2.0
"""Seconds between two hints about foreign containers; the last event of a series is never lost."""

CONNECT_SECONDS = 3.0

MAX_LINE = 1024 * 1024
"""Octets of one event. The rest of a longer one counts as an event that cannot be read: it costs a look."""


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
        instance: the instance whose containers are our own.
        changed: called on a thread of this listener for each event, and each time the stream begins: it does not contain
            earlier events. It must not raise.
        foreign_pause: seconds between two hints about foreign containers.
    """

    def __init__(
        self, path: str, instance: str, changed: Callable[[], None], foreign_pause: float = FOREIGN_PAUSE
    ) -> None:
        self._path, self._changed, self._instance = path, changed, instance
        self._foreign_pause = foreign_pause
        self._later: threading.Timer | None = None
        self._hinted_at = 0.0
        filters = {"type": ["container"], "event": list(ACTIONS)}
        self._url = f"/events?{urlencode({'filters': json.dumps(filters)})}"
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="engine events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; returns at once. `changed` is not called for later events."""
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
            engine.request("GET", self._url)
            engine.sock.settimeout(None)  # an idle engine sends nothing; `close` ends the wait
            answer = engine.getresponse()
            if answer.status != http.client.OK:
                return False
            self._hint()
            while line := answer.readline(MAX_LINE):
                if self._is_ours(line):
                    self._hint()
                else:
                    self._hint_about_foreign()
        finally:
            with self._lock:
                self._socket = None
        return True

    def _is_ours(self, line: bytes) -> bool:
        """Whether an event is of a container of this instance; an unreadable event counts as one: a look costs little."""
        try:
            attributes = json.loads(line)["Actor"]["Attributes"]
            return bool(attributes.get(LABEL_INSTANCE) == self._instance)
        except (ValueError, TypeError, KeyError, AttributeError):
            return True

    def _hint_about_foreign(self) -> None:
        """Call back now, or at the end of the pause; once for all events until then."""
        with self._lock:
            if self._later is not None or self._closed.is_set():
                return
            wait = self._hinted_at + self._foreign_pause - time.monotonic()
            if wait > 0:
                self._later = threading.Timer(wait, self._hint_late)
                self._later.name, self._later.daemon = "engine events", True
                self._later.start()
                return
            self._hinted_at = time.monotonic()
        self._hint()

    def _hint_late(self) -> None:
        with self._lock:
            self._later, self._hinted_at = None, time.monotonic()
        self._hint()

    def _hint(self) -> None:
        if not self._closed.is_set():
            self._changed()
