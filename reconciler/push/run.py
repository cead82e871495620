"""`reconcile push run`: pushes the state of a program while it runs, as its parent or as a sidecar.

It pushes startup, then ready when the probe passes, not-ready when it fails, and repeats the state. It forwards a signal to stop
only after it has pushed draining. A failed push never harms the program: it is reported once and retried.
"""

import os
import random
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.push.client import ANSWER_SECONDS, Target, message_of, push
from reconciler.push.http import Failed, Interrupted, exchange

HEARTBEAT, JITTER = 8.0, 2.0
"""Seconds between two pushes of the same state: 6 to 10, so that many senders do not push at the same time."""

RETRY = 2.0
"""Seconds until a failed push is retried, with the same jitter. A restarted daemon gets all states soon."""

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals to stop: forwarded after draining was pushed."""

FORWARDED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
"""Signals that are forwarded at once."""


class Probe(NamedTuple):
    """The readiness probe: `address` and `host` as for a push, `target` is the path and query; times in seconds."""

    address: tuple[str, int]
    host: str
    target: str
    interval: float
    timeout: float
    failures: int


def probe_of(url: str, interval: float, timeout: float, failures: int) -> Probe:
    """A probe of an http URL. Raises ValueError with a message for the user."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"--probe {url!r} is not an http URL; use a URL like http://127.0.0.1:8080/ready")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Probe((parts.hostname, parts.port or 80), parts.netloc.rpartition("@")[2], path, interval, timeout, failures)


class Runner:
    """Runs one program, or none, and pushes its state."""

    def __init__(self, target: Target | None, probe: Probe | None, argv: Sequence[str]) -> None:
        """With `target` None nothing is pushed; the program runs anyway."""
        self.target, self.probe, self.argv = target, probe, argv
        self.state = "startup"
        self.child = 0
        self.code: int | None = None
        self.stop_signal = 0
        self._reported = ""
        self._next_push = self._next_probe = 0.0
        self._failed = 0
        self._pending: list[int] = []
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Run until the end. Returns the exit code of the program, 128 + n when a signal ended it; 0 without a program."""
        for number in (*STOPPING, *FORWARDED, signal.SIGCHLD):
            signal.signal(number, self._note)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            self._push()
            if self.argv and not self._start():
                return 127
            if self.probe is None:
                self._set_state("ready")
            while self.code is None:
                self._step()
            return self.code
        finally:
            signal.set_wakeup_fd(-1)
            for number in (*STOPPING, *FORWARDED, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._read)
            os.close(self._write)

    def _note(self, number: int, frame: object) -> None:
        del frame
        self._pending.append(number)

    def _start(self) -> bool:
        ours = (*STOPPING, *FORWARDED, signal.SIGCHLD, signal.SIGPIPE)
        try:
            self.child = os.posix_spawnp(self.argv[0], [*self.argv], os.environ, setsigdef=ours, setsigmask=())
        except OSError as error:
            say(f"{self.argv[0]}: {error.strerror}")
            return False
        return True

    # --- the loop -------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Do one thing that is due, or sleep until something is."""
        self._take_signals()
        now = time.monotonic()
        if self.code is not None:
            return
        if self.probe is not None and not self.stop_signal and now >= self._next_probe:
            self._run_probe(self.probe)
            return
        if now >= self._next_push:
            self._push()
            return
        until = self._next_push if self.probe is None or self.stop_signal else min(self._next_push, self._next_probe)
        self._sleep(until - now)

    def _sleep(self, seconds: float) -> None:
        if self._pending:
            return
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.poll(max(0, int(seconds * 1000)) + 1)

    def _drain_pipe(self) -> None:
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            return

    def _take_signals(self) -> None:
        self._drain_pipe()
        while self._pending:
            number = self._pending.pop(0)
            if number in STOPPING:
                self._stop(number)
            elif number != signal.SIGCHLD:
                self._forward(number)
        if self.argv:
            self._reap()

    def _stop(self, number: int) -> None:
        """Push draining once, then forward the signal."""
        first = not self.stop_signal
        self.stop_signal = number
        if first:
            self.state = "draining"
            self._push()
        if self.argv:
            self._forward(number)
        else:
            self.code = 0

    def _forward(self, number: int) -> None:
        if self.child and self.code is None:
            try:
                os.kill(self.child, number)
            except ProcessLookupError:
                return

    def _reap(self) -> None:
        """Reap all children: the first process of a container also gets orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code

    # --- pushes ---------------------------------------------------------------------------------------------

    def _run_probe(self, probe: Probe) -> None:
        request = f"GET {probe.target} HTTP/1.1\r\nHost: {probe.host}\r\nUser-Agent: reconcile-push\r\nConnection: close\r\n\r\n"
        try:
            status = exchange(probe.address, request.encode(), probe.timeout, self._read).status
            good = 200 <= status < 400
        except Interrupted:
            return  # by a signal: probe again
        except Failed:
            good = False
        self._next_probe = time.monotonic() + probe.interval
        self._failed = 0 if good else self._failed + 1
        if good:
            self._set_state("ready")
        elif self.state == "ready" and self._failed >= probe.failures:
            self._set_state("not-ready")

    def _set_state(self, state: str) -> None:
        if state != self.state and not self.stop_signal:
            self.state = state
            self._push()

    def _push(self) -> None:
        """Push the state, and schedule the next push."""
        try:
            problem = self._pushed()
        except Interrupted:
            self._next_push = 0.0  # by a signal: handle it first, then push again
            return
        if problem != self._reported:
            say(problem or "pushes are accepted again")
        self._reported = problem
        pause = RETRY if problem else HEARTBEAT
        # Jitter spreads the senders over time; it need not be secret.
        self._next_push = time.monotonic() + pause + random.uniform(-1, 1) * JITTER * pause / HEARTBEAT  # noqa: S311

    def _pushed(self) -> str:
        """Push the state once. Returns the problem; empty on success. Raises Interrupted."""
        if self.target is None:
            return ""
        # Draining must be sent before the program ends, so no further signal interrupts it.
        wake = -1 if self.state == "draining" else self._read
        try:
            answer = push(self.target, self.state, seconds=ANSWER_SECONDS, wake=wake)
        except Interrupted:
            raise
        except Failed as error:
            return f"push failed: {error}; retried automatically"
        return (
            ""
            if answer.status in (200, 202)
            else f"push refused with {answer.status}: {message_of(answer)}; retried automatically"
        )


def say(text: str) -> None:
    """Print one line on standard error."""
    try:
        sys.stderr.write(f"reconcile push: {text}\n")
        sys.stderr.flush()
    except OSError:
        return
