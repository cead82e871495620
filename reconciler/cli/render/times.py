"""Durations and instants as people read them. Instants come in as wall-clock ns; ages are made here and nowhere earlier."""

from manifests.values.desired import SECOND

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def short(duration: int) -> str:
    """A duration in ns in its two largest units: `1h30m`, `45s`; below a second `0s`."""
    left = max(0, duration) // SECOND
    parts = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return "".join(parts[:2]) or "0s"


def ago(wall: int, now: int) -> str:
    """How long ago an instant was; `just now` also for one that a stepped clock puts into the future."""
    passed = now - wall
    return "just now" if passed < SECOND else f"{short(passed)} ago"


def ahead(wall: int, now: int) -> str:
    """When an instant will be; `now` for one that has passed."""
    left = wall - now
    return "now" if left <= 0 else f"in {short(max(left, SECOND))}"
