"""Checks of recurring times: cron expressions and names of time zones. Used by `kinds/guard.py`."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from manifests.types.errors import bad_value


def cron_text(value: str) -> str:
    """A cron expression with five fields that matches some time."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415  (25 ms, only where a Guard has windows)

    hint = 'write minute, hour, day of month, month, day of week: "0 22 * * 5" is every Friday at 22:00'
    if len(value.split()) != 5:
        raise bad_value(f"'{value[:60]}' is not a cron expression with five fields", hint)
    try:
        soonest = next(CronSim(value, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        raise bad_value(f"'{value[:60]}' is not a cron expression: {error}", hint) from None
    if soonest is None:
        raise bad_value(f"'{value[:60]}' matches no time", hint)
    return value


def zone_text(value: str) -> str:
    """The name of a time zone that this machine knows."""
    try:
        ZoneInfo(value)
    except (ValueError, OSError, KeyError):
        hint = "write a name such as Europe/Berlin or UTC; install tzdata if the machine has no zone data"
        raise bad_value(f"this machine has no time zone '{value[:60]}'", hint) from None
    return value
