"""One target inside the child process: what it is, and where its current run stands."""

from collections import deque
from socket import SocketType
from typing import Any, Protocol

from reconciler.probes.messages import Spec
from reconciler.probes.streak import Streak, initial

IDLE = 0
WAITING = 1
"""Due, and waiting for one of the bounded places."""
CONNECTING = 2
HANDSHAKE = 3
SENDING = 4
READING = 5
RUNNING = 6
"""A command runs, or the addresses of a name are asked."""
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
"""What was going on when time ran out, for messages; indexed by stage."""


class Prober(Protocol):
    """One way to ask. No method blocks. Every run ends with exactly one call of the loop's `finish`."""

    def start(self, slot: "Slot") -> None:
        """Begin a run."""

    def look(self, slot: "Slot") -> None:
        """A turn has passed since the prober asked for this with `Net.soon`."""

    def event(self, slot: "Slot", mask: int) -> None:
        """The slot's socket has something to say (epoll's mask)."""

    def expire(self, slot: "Slot") -> None:
        """The deadline of the run has passed: end it as a failure."""

    def abort(self, slot: "Slot") -> None:
        """The target is gone (`slot.gone`): end the run; its result is not counted."""


class Finish(Protocol):
    """How a prober ends a run: frees the place and counts the result (a value of `streak.py`, and a text for people)."""

    def __call__(self, slot: "Slot", result: int, detail: str, /) -> None:
        """End the run."""


class Pool:
    """A bounded number of runs of one kind at a time; what is over the bound waits in order of its due instants."""

    __slots__ = ("limit", "ready", "running")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self.ready: deque[Slot] = deque()


class Slot:
    """A target and its run. Plain attributes: this is the hot path.

    `due` is the instant this run was due at, `run` its number (an entry in a deadline queue counts only for its own run),
    `stolen` how long the prober had been held up in all when the run began, `owed` says that a due instant passed while
    the run was going on. `sock`, `fd` and `buffer` belong to the prober while a run goes on; `extra` is its own.
    `more` is the whole declaration, kept only for the kinds that need more of it than the fields here (not TCP, HTTP).
    `rules` say how an HTTP answer is judged. `hop` is None, or the request that follows a redirect and how many came before.
    """

    __slots__ = (
        "buffer",
        "due",
        "extra",
        "failure",
        "fd",
        "gone",
        "hop",
        "id",
        "more",
        "owed",
        "period",
        "phase",
        "pool",
        "prober",
        "request",
        "rules",
        "run",
        "sock",
        "sockaddr",
        "stage",
        "stolen",
        "streak",
        "success",
        "timeout",
        "valid_for",
    )

    sock: SocketType
    sockaddr: tuple[Any, ...]
    extra: Any
    more: Spec
    rules: Any
    hop: tuple[bytes, int] | None

    def __init__(self, spec: Spec, prober: Prober, pool: Pool, now: int) -> None:
        self.id = spec.id
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
        self.owed = False
        self.due = 0
        self.run = 0
        self.stolen = 0
        self.fd = -1
        self.buffer = b""
        self.extra = None
        self.hop = None
        self.rules = None


def spell(ns: int) -> str:
    """A duration for people: `1s`, `250ms`."""
    if ns >= 1_000_000_000:
        return f"{ns / 1_000_000_000:g}s"
    return f"{ns / 1_000_000:g}ms"


def printable(text: str | bytes, limit: int = 120) -> str:
    """Text from outside, safe to show: one line, without control characters, at most `limit` characters."""
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode(errors="replace")
    shown = "".join(c if c.isprintable() else "?" for c in text.strip())
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
