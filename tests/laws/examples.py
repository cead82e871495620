"""How many examples a costly law looks at, and at how many points it kills. Used by the laws that run whole worlds, or many decisions, for each example."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Point = TypeVar("Point")

SHARES = {"ci": 1.0, "default": 0.2}
"""How much of its examples a law looks at, by profile (tests/conftest.py). Other profiles decide for themselves."""


def examples(count: int, steps: int | None = None) -> settings:
    """This many examples in CI, and a share of them elsewhere; of a state machine with so many steps each."""
    share = SHARES.get(settings.get_current_profile_name())
    if share is None:
        return settings()
    some = max(3, int(count * share))
    return settings(max_examples=some) if steps is None else settings(max_examples=some, stateful_step_count=steps)


def some(points: Sequence[Point]) -> Sequence[Point]:
    """Of these points, in rising order, those at which something is killed: all in a long search and in CI, else every fourth."""
    return points[:: stride(search=1, ci=1)]


def stride(search: int, ci: int) -> int:
    """At every how many points a process is killed: in a long search, in CI, and a quarter as often elsewhere."""
    return {"search": search, "ci": ci}.get(settings.get_current_profile_name(), 4 * ci)
