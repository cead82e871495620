"""How endpoints get traffic and lose it: values of `desired.Service` that only the rules of weights read.

Pure values: created by `resolve/service.py`, read by `reconciler.core`. Durations are nanoseconds, percentages whole numbers.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Ramp:
    """How a new endpoint's weight grows: from `min_share` percent of it to all of it in `duration`."""

    duration: int
    min_share: int = 10


class PanicMode(StrEnum):
    """The weight of failing endpoints while too few are ready."""

    FREEZE = "freeze"
    """Their current weight."""
    SPREAD = "spread"
    """The weight of ready endpoints."""
    CLOSED = "closed"
    """0, even if the pool becomes empty."""


@dataclass(frozen=True, slots=True)
class Panic:
    """When so many endpoints of a pool fail that the probes are in doubt: below `threshold` percent ready; 0 = never.

    With `override_pushes` endpoints that push `not-ready` or `startup` keep their weights too.
    """

    threshold: int = 50
    mode: PanicMode = PanicMode.FREEZE
    override_pushes: bool = False


DEFAULT_PANIC = Panic()
