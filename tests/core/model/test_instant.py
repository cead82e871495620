"""Elapsed time over steps of the wall clock, within a lineage and between two."""

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Instant, Now, due, due_awake, elapsed, next_after
from tests.builders import NOW, SEEN, ago


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (ago(7), 7 * SECOND),
        (Instant(NOW.wall + 99 * SECOND, NOW.steady - 7 * SECOND, NOW.lineage), 7 * SECOND),
        (Instant(NOW.wall - 99 * SECOND, NOW.steady - 7 * SECOND, NOW.lineage), 7 * SECOND),
    ],
)
def test_elapsed_time_ignores_steps_of_the_wall_clock(since, expected):
    assert elapsed(since, NOW) == expected
    assert due(since, 100 * SECOND, NOW) == NOW.steady + 100 * SECOND - expected


@pytest.mark.parametrize(("wall", "expected"), [(-60, 60), (-7, 7), (60, 0), (3600, 0)])
def test_of_another_lineage_only_the_wall_clock_counts(wall, expected):
    elsewhere = Now(NOW.wall, 10**18, "this lineage")
    since = Instant(NOW.wall + wall * SECOND, 77, "another lineage")
    assert elapsed(since, elsewhere) == expected * SECOND
    assert due(since, 100 * SECOND, elsewhere) == 10**18 + (100 - expected) * SECOND


def test_time_before_the_boot_of_the_host_is_not_progress():
    wait = 60 * SECOND
    assert due_awake(ago(7), wait, NOW, 0) == SEEN + 53 * SECOND
    assert due_awake(ago(900), wait, NOW, SEEN - 20 * SECOND) == SEEN + 40 * SECOND
    assert due_awake(ago(7), wait, NOW, SEEN - 20 * SECOND) == SEEN + 53 * SECOND


def test_the_grid_gives_the_same_next_instant_until_it_comes():
    base = SEEN - 2500
    later = Now(NOW.wall, SEEN + 499, NOW.lineage)
    assert next_after(base, 1000, NOW) == next_after(base, 1000, later) == SEEN + 500
    assert next_after(base, 1000, Now(NOW.wall, SEEN + 500, NOW.lineage)) == SEEN + 1500
