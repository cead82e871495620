"""Windows of the Guard: named spans of time that hold healing, corrections of drift, new commits, rollouts or deletions.

The one place where the core turns an instant into a date, because manifests declare windows as dates: in a zone, with its changes
of daylight saving. It reads no clock; the zone was loaded when the manifests were read. Called by `gates`, `prune_guard`, `commits`
and `decide`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from manifests.values.desired import SECOND, Desired
from manifests.values.limits import Held, Window
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.reasons import UNSPECIFIED, HeldAction, Hold, Rule

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_BACK = 400
"""Starts looked back at most while spans that overlap are joined; then the window counts as open until the latest known end."""


def _wall(at: datetime) -> int:
    """Nanoseconds since the epoch."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


@lru_cache(maxsize=256)
def _around(schedule: str, timezone: str, second: int) -> tuple[int, int]:
    """(latest start at or before this second, first start after it), as wall ns; 0 and FOREVER where there is none."""
    from cronsim import CronSim  # noqa: PLC0415  (25 ms, only where a Guard has windows)

    at = (_EPOCH + timedelta(seconds=second)).astimezone(ZoneInfo(timezone))
    before = next(CronSim(schedule, at + timedelta(seconds=1), reverse=True), None)
    after = next(CronSim(schedule, at), None)
    return (0 if before is None else _wall(before), FOREVER if after is None else _wall(after))


def opening(window: Window, wall: int) -> tuple[int, int]:
    """(wall instant until which it is open, or 0 while it is closed; wall instant at which that changes next, or FOREVER)."""
    start, upcoming = _around(window.schedule, window.timezone, wall // SECOND)
    if not start or start + window.duration <= wall:
        return 0, upcoming
    end = start + window.duration
    for _ in range(_BACK):
        if upcoming > end:
            break
        # The next span begins before this one ends: one opening.
        end = upcoming + window.duration
        upcoming = _around(window.schedule, window.timezone, upcoming // SECOND)[1]
    return end, end


def holds(desired: Desired, kind: Held, obj: str, action: str, now: Now, held: HeldAction = UNSPECIFIED) -> list[Hold]:
    """The holds of all open windows, by name, that hold actions of this kind."""
    found: list[Hold] = []
    for name, until in open_until(desired.guard.windows, kind, now):
        message = f"window {name} of the Guard holds {kind.value} actions"
        next_step = f"wait until the window closes, or remove {kind.value} from window {name} of the Guard"
        found.append(Hold(obj, action, Rule.WINDOW, message, until=until, next_step=next_step, held=held))
    return found


def open_until(windows: Iterable[Window], kind: Held, now: Now) -> Iterator[tuple[str, int]]:
    """The windows that hold actions of this kind now, each with the steady instant at which it closes."""
    for window in windows:
        until = opening(window, now.wall)[0] if kind in window.holds else 0
        if until:
            yield window.name, now.steady + until - now.wall


def wake_at(desired: Desired, now: Now) -> int:
    """The steady instant at which the first window opens or closes."""
    changes = [opening(window, now.wall)[1] for window in desired.guard.windows]
    return min((now.steady + change - now.wall for change in changes if change < FOREVER), default=FOREVER)
