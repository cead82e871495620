"""The messages between the two processes of the engine: length-framed `marshal` over a socket pair. Used by `engine.py` and `link.py`.

`marshal` is the fastest encoder for plain tuples, and safe here: both ends are the same installation of the same interpreter,
and no other process holds their socket. Named tuples are plain tuples on the wire.

Parent to child: `(specs to add, ids to remove)`. Child to parent: `(made at, rows, stats or None)`.
"""

import marshal
from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

TCP: Final = 0
HTTP: Final = 1
TLS: Final = 2
EXEC: Final = 3
INVALID: Final = 4
"""A target that cannot be probed as declared; `note` says why. Its result is cannot-run at every period."""
GRPC: Final = 5
PUBLISHED: Final = 6
"""TCP through a port that the runtime publishes: its proxy accepts even when the container does not listen."""

NAMED: Final = 7
"""HTTP or TLS at a host name: the key of its prober, not a kind of a `Spec`."""

HEARTBEAT = 1_000_000_000
"""The child sends a batch at least this often (ns), with or without results."""

MAX_FRAME = 64 * 1024 * 1024
"""Far above the size of any valid message (bytes); a longer one means that the stream is damaged."""

_LENGTH = Struct(">I")
_MARSHAL_VERSION = 2  # without back references: a third faster for tuples that share nothing


class Spec(NamedTuple):
    """One target as the child needs it. The parent prepares as much as possible.

    `id` is never used twice; `inherits_from` is the id of the target whose streak this one keeps (0 = none), which must be removed
    in the same message. Durations and instants are ns (steady clock). `first` is the instant of the first probe, `phase` the
    offset of the grid within the period. `request` is the HTTP request, byte for byte; `expected`, `max_body` and `follow` are the
    rules for its answer. `secure` says that gRPC uses TLS; `sni` is the name for TLS, empty for none; with `verify` the
    certificate must be valid for that name under the authorities `ca` (PEM; empty = the system's). `service` and `authority` are
    gRPC's, `http2` is the directory of its HTTP/2 library. `env` is the complete environment of an exec probe. `name` is a host
    name to resolve for each probe (then `address` is empty). `allowed` is set for addresses that manifests or DNS give: the networks
    that it may lead to even if they are off limits; None for an observed address, which is not checked.
    """

    id: int
    kind: int
    address: str
    port: int
    period: int
    timeout: int
    success: int
    failure: int
    valid_for: int
    first: int
    phase: int
    request: bytes = b""
    sni: str = ""
    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    note: str = ""
    inherits_from: int = 0
    expected: tuple[tuple[int, int], ...] = ((200, 399),)
    max_body: int = 10 * 1024
    follow: bool = False
    secure: bool = False
    verify: bool = False
    ca: str = ""
    service: str = ""
    authority: str = ""
    http2: str = ""
    name: str = ""
    allowed: tuple[str, ...] | None = None


LATE_BOUNDS: Final[tuple[int, ...]] = (
    *range(250_000, 10_000_001, 250_000),
    *(unit * ten for ten in (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000) for unit in (2, 5, 10)),
)
"""Upper bounds (ns) of the lateness histogram: steps of 0.25 ms up to 10 ms, then 1-2-5. One more bucket is above all bounds."""

DURATION_BOUNDS: Final[tuple[int, ...]] = tuple(
    half * 500_000 for half in (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000)
)
"""Upper bounds (ns) of the histograms of durations, from 1 ms to 10 s. One more bucket is above all bounds."""

KindCounts = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""Of one kind: the kind, its results in the order of `streak.py`, a histogram over DURATION_BOUNDS, and the sum of durations (ns)."""


class Stats(NamedTuple):
    """Counters of the child since it started.

    `started` probes, `finished` with a result, `timed_out` at their deadline, `voided` because the loop stalled, `delayed` because
    no place was free, `skipped` due instants while the same probe was still running, `running` now, `late` a histogram of start
    minus due time over LATE_BOUNDS, `late_max` its maximum (ns). `kinds` are the results and durations of each kind that was probed.
    """

    started: int
    finished: int
    timed_out: int
    voided: int
    delayed: int
    skipped: int
    running: int
    late_max: int
    late: tuple[int, ...]
    kinds: tuple[KindCounts, ...] = ()

    def late_quantile(self, share: float, since: "Stats | None" = None) -> int:
        """The lateness (ns, the upper bound of its bucket) of at most `share` of the probes; 0 without probes.

        `since` is an earlier reading: only what came after it counts.
        """
        before = since.late if since else (0,) * len(self.late)
        counts = [now - then for now, then in zip(self.late, before, strict=True)]
        wanted = share * sum(counts)
        total = 0
        for bound, count in zip((*LATE_BOUNDS, self.late_max), counts, strict=True):
            total += count
            if count and total >= wanted:
                return min(bound, self.late_max)
        return 0


def late_bucket(late: int) -> int:
    """The index in `Stats.late` that a lateness (ns) belongs to."""
    return bisect_left(LATE_BOUNDS, late)


def encode(message: tuple[Any, ...]) -> bytes:
    """One framed message. It may contain None, bool, int, str, bytes, list, dict and plain tuples."""
    body = marshal.dumps(message, _MARSHAL_VERSION)
    return _LENGTH.pack(len(body)) + body


def change(add: Sequence[Spec], remove: Sequence[int]) -> bytes:
    """A framed change of targets."""
    return encode(([tuple(spec) for spec in add], list(remove)))


class Inbox:
    """Bytes in, messages out. Keeps an incomplete message."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> tuple[Any, ...] | None:
        """The next complete message, or None. Raises ValueError when the stream is damaged."""
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length > MAX_FRAME:
            raise ValueError(f"the stream between the probe processes is damaged: a message of {length} bytes")
        if len(buffer) < 4 + length:
            return None
        message = marshal.loads(memoryview(buffer)[4 : 4 + length])  # noqa: S302  (our own process, our own socket)
        del buffer[: 4 + length]
        if not isinstance(message, tuple):
            raise ValueError("the stream between the probe processes is damaged: not a tuple")  # noqa: TRY004
        return message
