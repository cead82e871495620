"""How endpoints get traffic and lose it: values of `desired.Service` that only the rules of weights look at.

Pure values: made by `build_traffic.py`, read by `reconciler.core`. Durations are nanoseconds, percentages whole numbers.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Ramp:
    """How a new endpoint's weight grows: from `min_share` percent of it to all of it in `duration`."""

    duration: int
    min_share: int = 10


class PanicMode(StrEnum):
    """What endpoints that fail get while too few are ready."""

    FREEZE = "freeze"
    """The weights that they have."""
    SPREAD = "spread"
    """The same as ready ones."""
    CLOSED = "closed"
    """Nothing, even if the pool becomes empty."""


@dataclass(frozen=True, slots=True)
class Panic:
    """When so many endpoints of a pool fail that their failing is doubted: below `threshold` percent ready; 0 = never.

    `override_pushes` tells that endpoints which say of themselves that they are not ready keep their weights then, too.
    """

    threshold: int = 50
    mode: PanicMode = PanicMode.FREEZE
    override_pushes: bool = False


DEFAULT_PANIC = Panic()
