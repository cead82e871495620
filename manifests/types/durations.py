"""Durations in manifests: `500ms`, `30s`, `1h30m`, and numbers of seconds in the fields that Kubernetes has."""

import re
from collections.abc import Callable

from manifests.types.errors import bad_value, out_of_range, wrong_type
from manifests.values.desired import SECOND

MILLISECOND = SECOND // 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?", re.ASCII)
_UNITS = (DAY, HOUR, MINUTE, SECOND, MILLISECOND)


class Duration(int):
    """Nanoseconds that print as in manifests: `1h30m`."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_duration(self)

    __repr__ = __str__


def parse_duration(value: object) -> Duration:
    """`500ms`, `30s`, `1h30m` as nanoseconds. A number without a unit is refused."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise wrong_type(
            "a duration with a unit", value, f'write {value}s for seconds, or another unit such as "{value}m"'
        )
    if not isinstance(value, str):
        raise wrong_type("a duration such as 30s", value)
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        hint = "write units d, h, m, s and ms, largest first, such as 1h30m"
        if value.isascii() and value.isdigit():
            hint = f"write {value}s"
        raise bad_value(f"'{value[:40]}' is not a duration", hint)
    parts = (int(count) * unit for count, unit in zip(match.groups(default="0"), _UNITS, strict=True))
    return Duration(sum(parts))


def format_duration(nanoseconds: int) -> str:
    """The shortest text that `parse_duration` parses to the same number of whole milliseconds."""
    rest, text = nanoseconds, ""
    for unit, letter in zip(_UNITS, ("d", "h", "m", "s", "ms"), strict=True):
        count, rest = divmod(rest, unit)
        text += f"{count}{letter}" if count else ""
    return text or "0s"


def between(low: int, high: int) -> Callable[[Duration], Duration]:
    """A check that a duration lies within these limits (nanoseconds, inclusive)."""

    def check(value: Duration) -> Duration:
        if low <= value <= high:
            return value
        raise out_of_range(f"must be between {format_duration(low)} and {format_duration(high)}")

    return check


def whole_seconds(value: Duration) -> Duration:
    """A duration in whole seconds."""
    if value % SECOND:
        raise bad_value(f"'{value}' is not a whole number of seconds", "write seconds without a fraction, such as 30s")
    return value


def seconds_from(low: float, zero_means: float | None = None) -> Callable[[float], float]:
    """A check for a number of seconds from `low` to a day; 0 means `zero_means` where it is given."""

    def check(value: float) -> float:
        if value == 0 and zero_means is not None:
            return zero_means
        if low <= value <= 86_400:
            return value
        raise out_of_range(f"must be between {low:g} and 86400")

    return check
