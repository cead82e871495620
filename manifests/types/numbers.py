"""Percentages, counts and thresholds in manifests."""

import re
from collections.abc import Callable

from manifests.types.errors import bad_value, out_of_range, wrong_type

_PERCENT = re.compile(r"(\d{1,3})%", re.ASCII)


class Percent(int):
    """A percentage that prints as in manifests: `30%`."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{int(self)}%"

    __repr__ = __str__


def percent(value: object, expected: str = "a percentage such as 30%") -> Percent:
    """A percentage from 0% to 100%."""
    if isinstance(value, Percent):
        return value
    if not isinstance(value, str):
        hint = f'write "{value}%"' if isinstance(value, int) and not isinstance(value, bool) else ""
        raise wrong_type(expected, value, hint)
    match = _PERCENT.fullmatch(value)
    if match is None:
        raise bad_value(f"'{value[:40]}' is not {expected}")
    if int(match[1]) > 100:
        raise out_of_range("must be between 0% and 100%")
    return Percent(match[1])


def int_or_percent(value: object) -> int:
    """A count, or a percentage as `Percent`."""
    if isinstance(value, Percent):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= 1000:
            return value
        raise out_of_range("must be between 0 and 1000")
    return percent(value, "a whole number or a percentage such as 25%")


def threshold_or(zero_means: int) -> Callable[[int], int]:
    """A check for a threshold; 0 means `zero_means`."""

    def check(value: int) -> int:
        if 0 <= value <= 1_000_000:
            return value or zero_means
        raise out_of_range("must be between 1 and 1000000")

    return check
