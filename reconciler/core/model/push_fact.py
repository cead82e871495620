"""What an instance said of itself last: values of `Observed`. The rules are in `health/pushes.py`."""

from enum import StrEnum
from typing import NamedTuple


class PushEvent(StrEnum):
    """What an instance says of itself. The values are the words of the protocol."""

    STARTUP = "startup"
    READY = "ready"
    NOT_READY = "not-ready"
    DRAINING = "draining"


class PushFact(NamedTuple):
    """The latest push of one generation.

    `at` is the steady instant of its receipt, `since` that of the first push of this event in a row, `boot` the run of the
    sender and `seq` its count in it, `inflight` the requests under way as the sender counts them (None = not said).
    `restored` tells that it is remembered from before a restart of this program and has not been heard again: then `at` may be
    the instant of the restart.
    """

    event: PushEvent
    at: int
    since: int
    boot: str
    seq: int
    inflight: int | None = None
    restored: bool = False
