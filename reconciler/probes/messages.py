"""What the two processes of the engine say to each other: length-framed `marshal` over a socket pair.

`marshal` is the fastest encoder there is for plain tuples, and safe here: both ends are the same installation of the
same interpreter, joined by a socket that nobody else holds. Named tuples are plain tuples on the wire.

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
BROKEN: Final = 4
"""A target that cannot be probed as it is declared; `note` says why. It answers cannot-run at every period."""
GRPC: Final = 5
PUBLISHED: Final = 6
"""TCP through a port that the runtime publishes: something in between accepts, whoever listens behind it."""

NAMED: Final = 7
"""HTTP or TLS at a host name: no kind of a `Spec`, but that of its prober."""

HEARTBEAT = 1_000_000_000
"""A batch is sent at least this often (ns), empty if need be."""

MAX_FRAME = 64 * 1024 * 1024
"""No honest message comes near this size (bytes); a longer one means that the stream is damaged."""

_LENGTH = Struct(">I")
_MARSHAL_VERSION = 2  # without back references: a third faster for tuples that share nothing


class Spec(NamedTuple):
    """One target as the child needs it: everything that can be prepared is prepared by the parent.

    `id` is never used twice; `heir_of` is the id of the target whose streak this one goes on with (0 = none), which must be
    removed in the same message. Durations and instants are ns (steady clock). `first` is the instant of the first probe,
    `phase` the offset of the grid within the period. `request` is the HTTP request, byte for byte; `expected`, `max_body`
    and `follow` are the rules its answer is judged by. `secure` says that gRPC goes over TLS; `sni` is the name for TLS,
    empty for none; with `verify` the certificate must be good for that name under the authorities `ca` (PEM; empty = the
    system's). `service` and `authority` are gRPC's, `http2` is the directory that holds its HTTP/2 library. `env` is the
    complete environment of an exec probe. `name` is a host name to resolve for each probe (then `address` is empty), `allowed`
    the networks it may lead to whatever they are.
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
    heir_of: int = 0
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
    allowed: tuple[str, ...] = ()


LATE_BOUNDS: Final[tuple[int, ...]] = (
    *range(250_000, 10_000_001, 250_000),
    *(unit * ten for ten in (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000) for unit in (2, 5, 10)),
)
"""Upper bounds (ns) of the lateness histogram: a quarter of a millisecond up to 10 ms, then 1-2-5. One more is above all."""


class Stats(NamedTuple):
    """Counters of the child since it started.

    `started` probes sent out, `finished` with a result, `timed_out` at their deadline, `voided` because the prober itself
    was held up, `delayed` that waited for a free slot, `skipped` due instants while the same probe was still running,
    `running` now, `late` a histogram of start minus due time over LATE_BOUNDS, `late_max` its maximum (ns).
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

    def late_quantile(self, share: float, since: "Stats | None" = None) -> int:
        """Lateness (ns, the upper bound of its bucket) that `share` of the probes stayed within; 0 without probes.

        `since` is an earlier reading: only what came after it counts.
        """
        before = since.late if since else (0,) * len(self.late)
        counts = [now - then for now, then in zip(self.late, before, strict=True)]
        wanted = share * sum(counts)
        seen = 0
        for bound, count in zip((*LATE_BOUNDS, self.late_max), counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.late_max)
        return 0


def late_bucket(late: int) -> int:
    """The index in `Stats.late` that a lateness (ns) belongs to."""
    return bisect_left(LATE_BOUNDS, late)


def encode(message: tuple[Any, ...]) -> bytes:
    """One framed message. Holds only None, bool, int, str, bytes, list, dict and exact tuples."""
    body = marshal.dumps(message, _MARSHAL_VERSION)
    return _LENGTH.pack(len(body)) + body


def change(add: Sequence[Spec], remove: Sequence[int]) -> bytes:
    """A framed change of targets."""
    return encode(([tuple(spec) for spec in add], list(remove)))


class Inbox:
    """Bytes in, messages out. Keeps what is incomplete."""

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
            raise ValueError(f"a message of {length} bytes: the stream between the probe processes is damaged")
        if len(buffer) < 4 + length:
            return None
        message = marshal.loads(memoryview(buffer)[4 : 4 + length])  # noqa: S302  (our own process, our own socket)
        del buffer[: 4 + length]
        if not isinstance(message, tuple):
            raise ValueError("not a message: the stream between the probe processes is damaged")  # noqa: TRY004
        return message
