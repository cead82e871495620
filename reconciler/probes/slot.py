"""One target in the child process and the state of its current run. Used by `loop.py` and the probers."""

from collections import deque
from socket import SocketType
from typing import Any, Protocol

from reconciler.probes.messages import Spec
from reconciler.probes.streak import Streak, initial

IDLE = 0
WAITING = 1
"""Due, and waiting for a place in its pool."""
CONNECTING = 2
HANDSHAKE = 3
SENDING = 4
READING = 5
RUNNING = 6
"""A command runs, or the addresses of a name are being probed."""
RESOLVING = 7

STAGES = (
    "idle",
    "waiting",
    "connecting",
    "in the TLS handshake",
    "sending the request",
    "reading the answer",
    "running",
    "resolving the name",
)
"""The text of each stage for messages about time-outs; indexed by stage."""


class Prober(Protocol):
    """One way to probe. No method blocks. Every run ends with exactly one call of the loop's `finish`."""

    def start(self, slot: "Slot") -> None:
        """Begin a run."""

    def check(self, slot: "Slot") -> None:
        """Look at the slot's socket, one turn after `Net.check_next_turn` or some time after `Net.settle`."""

    def event(self, slot: "Slot", mask: int) -> None:
        """Handle an event of the slot's socket (epoll's mask)."""

    def expire(self, slot: "Slot") -> None:
        """End the run at its deadline."""

    def abort(self, slot: "Slot") -> None:
        """End the run of a removed target (`slot.gone`); its result is not counted."""


class Finish(Protocol):
    """How a prober ends a run: frees the place and counts the result (a value of `streak.py`, and a text for the operator)."""

    def __call__(self, slot: "Slot", result: int, detail: str, /) -> None:
        """End the run."""


class Pool:
    """A bounded number of runs of one kind at a time; the others wait in order of their due instants."""

    __slots__ = ("limit", "ready", "running")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self.ready: deque[Slot] = deque()


class Slot:
    """A target and its run. Plain attributes: this is the hot path.

    `due` is the instant at which this run was due, `began` that at which it started, `run` its number (an entry in a deadline queue counts only for its own run),
    `stalled` the total stall of the loop when the run began, `run_again` says that a due instant passed during the run.
    `sock`, `fd` and `buffer` belong to the prober during a run; `extra` is its own.
    `spec` is the whole declaration; only kinds that need more of it than the fields here keep it (not TCP, HTTP).
    `allowed` are the networks that may be probed even if they are off limits; None = the address is not checked.
    `rules` say how to judge an HTTP answer. `hop` is None, or the request that follows a redirect and the number of redirects.
    """

    __slots__ = (
        "allowed",
        "began",
        "buffer",
        "due",
        "extra",
        "failure",
        "fd",
        "gone",
        "hop",
        "id",
        "kind",
        "period",
        "phase",
        "pool",
        "prober",
        "request",
        "rules",
        "run",
        "run_again",
        "sock",
        "sockaddr",
        "spec",
        "stage",
        "stalled",
        "streak",
        "success",
        "timeout",
        "valid_for",
    )

    sock: SocketType
    sockaddr: tuple[Any, ...]
    extra: Any
    spec: Spec
    rules: Any
    hop: tuple[bytes, int] | None

    def __init__(self, spec: Spec, prober: Prober, pool: Pool, now: int) -> None:
        self.id = spec.id
        self.kind = spec.kind
        self.allowed = spec.allowed
        self.began = now
        self.success = spec.success
        self.failure = spec.failure
        self.valid_for = spec.valid_for
        self.request = spec.request
        self.prober = prober
        self.pool = pool
        self.period = spec.period
        self.phase = spec.phase
        self.timeout = spec.timeout
        self.streak: Streak = initial(now)
        self.sockaddr = ()
        self.stage = IDLE
        self.gone = False
        self.run_again = False
        self.due = 0
        self.run = 0
        self.stalled = 0
        self.fd = -1
        self.buffer = b""
        self.extra = None
        self.hop = None
        self.rules = None


def duration_text(ns: int) -> str:
    """A duration as text: `1s`, `250ms`."""
    if ns >= 1_000_000_000:
        return f"{ns / 1_000_000_000:g}s"
    return f"{ns / 1_000_000:g}ms"


def printable(text: str | bytes, limit: int = 120) -> str:
    """Untrusted text, safe to show: one line, without control characters, at most `limit` characters."""
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode(errors="replace")
    shown = "".join(c if c.isprintable() else "?" for c in text.strip())
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
