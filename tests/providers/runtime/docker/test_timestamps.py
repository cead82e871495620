"""Timestamps and ages of engines are read without an engine."""

import pytest

from providers.runtime.docker.timestamps import (
    SECOND,
    age_span,
    parse_timestamp,
    running_since,
    to_steady,
    wall,
)

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T00:00:01.5Z", SECOND + SECOND // 2),
        ("2026-11-27T23:27:18.315547655Z", 1_795_822_038_315_547_655),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("0001-01-01T00:00:00Z", 0),
        ("", 0),
        ("yesterday", 0),
    ],
)
def test_a_timestamp_is_read_to_the_nanosecond(text: str, instant: int) -> None:
    assert parse_timestamp(text) == instant


@pytest.mark.parametrize(
    ("status", "low", "high"),
    [
        ("Up Less than a second", 0, SECOND),
        ("Up 1 second", SECOND, 2 * SECOND),
        ("Up 59 seconds (healthy)", 59 * SECOND, MINUTE),
        ("Up About a minute", MINUTE, 2 * MINUTE),
        ("Up 5 minutes (Paused)", 5 * MINUTE, 6 * MINUTE),
        ("Up About an hour", HOUR, HOUR + 30 * MINUTE),
        ("Exited (137) 3 hours ago", 2 * HOUR + 30 * MINUTE, 4 * HOUR + 30 * MINUTE),
        ("Restarting (1) 5 seconds ago", 5 * SECOND, 6 * SECOND),
        ("Up 2 days", 2 * DAY - 30 * MINUTE, 3 * DAY + 30 * MINUTE),
    ],
)
def test_a_rounded_age_is_a_range(status: str, low: int, high: int) -> None:
    assert age_span(status) == (low, high)


@pytest.mark.parametrize("status", ["Created", "", "Removal In Progress", "Dead"])
def test_a_status_without_an_age_has_no_range(status: str) -> None:
    assert age_span(status) is None


def test_the_clock_gives_the_start_when_the_pid_is_another_process() -> None:
    started = wall() - 1000 * SECOND
    assert abs(running_since(1, started) - to_steady(started)) < SECOND
    assert running_since(0, started) == to_steady(started)
