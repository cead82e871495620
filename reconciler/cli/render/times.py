"""Durations and instants as text. Instants come in as wall-clock ns, and ages are computed only here."""

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
    """How long ago an instant was; `just now` also for an instant in the future after a step of the clock."""
    passed = now - wall
    return "just now" if passed < SECOND else f"{short(passed)} ago"


def ahead(wall: int, now: int) -> str:
    """When an instant will be; `now` for one that has passed."""
    left = wall - now
    return "now" if left <= 0 else f"in {short(max(left, SECOND))}"


def age_text(observed: int, now: int) -> str:
    """The age of a stored decision, when no running process has refreshed it."""
    return f"observed {ago(observed, now)}; no daemon is running"
