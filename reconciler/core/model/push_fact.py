"""The latest push of an instance about itself: a value of `Observed`. `health/pushes` has the rules."""

from enum import StrEnum
from typing import NamedTuple


class PushEvent(StrEnum):
    """The state that an instance reports. The values are those of the protocol."""

    STARTUP = "startup"
    READY = "ready"
    NOT_READY = "not-ready"
    DRAINING = "draining"


class PushFact(NamedTuple):
    """The latest push of one generation.

    `at` is the steady instant of its receipt, `since` that of the first push of this event in a row, `boot` the run of the
    sender and `seq` its count in it, `inflight` the sender's count of requests in flight (None = not sent). `restored` says that
    it was stored before a restart of this program and not received again: then `at` may be the instant of the restart.
    """

    event: PushEvent
    at: int
    since: int
    boot: str
    seq: int
    inflight: int | None = None
    restored: bool = False
