"""How many examples a costly law runs, and at how many points it kills. Used by laws that run a whole world or many decisions for each example."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Point = TypeVar("Point")

SHARES = {"ci": 1.0, "default": 0.2}
"""The share of its examples that a law runs, by profile (tests/conftest.py). Other profiles set their own numbers."""


def examples(count: int, steps: int | None = None) -> settings:
    """This many examples in CI, and a share of them elsewhere. `steps` is the number of steps of a state machine."""
    share = SHARES.get(settings.get_current_profile_name())
    if share is None:
        return settings()
    some = max(3, int(count * share))
    return settings(max_examples=some) if steps is None else settings(max_examples=some, stateful_step_count=steps)


def some(points: Sequence[Point]) -> Sequence[Point]:
    """The points at which a process is killed, in rising order: all in a long search and in CI, else every fourth."""
    return points[:: stride(search=1, ci=1)]


def stride(search: int, ci: int) -> int:
    """The distance between the points at which a process is killed: in a long search, in CI, and four times that of CI elsewhere."""
    return {"search": search, "ci": ci}.get(settings.get_current_profile_name(), 4 * ci)
