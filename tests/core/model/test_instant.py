"""Elapsed time over steps of the wall clock and over reboots."""

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Instant, Now, due, elapsed, next_after
from tests.builders import NOW, SEEN, ago


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (ago(7), 7 * SECOND),
        (Instant(NOW.wall + 99 * SECOND, NOW.steady - 7 * SECOND, NOW.boot), 7 * SECOND),
        (Instant(NOW.wall - 99 * SECOND, NOW.steady - 7 * SECOND, NOW.boot), 7 * SECOND),
    ],
)
def test_elapsed_time_ignores_steps_of_the_wall_clock(since, expected):
    assert elapsed(since, NOW) == expected
    assert due(since, 100 * SECOND, NOW) == NOW.steady + 100 * SECOND - expected


@pytest.mark.parametrize(("wall", "expected"), [(-60, 60), (-7, 20), (60, 20), (3600, 20)])
def test_over_a_reboot_the_wall_clock_counts_and_at_least_the_uptime(wall, expected):
    booted = Now(NOW.wall, 20 * SECOND, "this boot")
    since = Instant(NOW.wall + wall * SECOND, 10**18, "earlier boot")
    assert elapsed(since, booted) == expected * SECOND
    assert due(since, 100 * SECOND, booted) == (120 - expected) * SECOND


def test_the_grid_gives_the_same_next_instant_until_it_comes():
    base = SEEN - 2500
    later = Now(NOW.wall, SEEN + 499, NOW.boot)
    assert next_after(base, 1000, NOW) == next_after(base, 1000, later) == SEEN + 500
    assert next_after(base, 1000, Now(NOW.wall, SEEN + 500, NOW.boot)) == SEEN + 1500
