"""Opening times of windows of the Guard: over midnight, over changes of daylight saving, joined where their spans touch."""

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.limits import Held, Window
from reconciler.core.decide import decide
from reconciler.core.limits import windows
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.reasons import Rule
from tests.builders import NOW, Scene, gone
from tests.sim.manifest import Shop, Spec

HOUR = 3600 * SECOND
NIGHT = Window("night", frozenset({Held.HEAL}), "0 22 * * *", 8 * HOUR, "Europe/Berlin")


def wall(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("at", "until", "change"),
    [
        ("2026-06-10T21:59:59+02:00", None, "2026-06-10T22:00:00+02:00"),
        ("2026-06-10T22:00:00+02:00", "2026-06-11T06:00:00+02:00", "2026-06-11T06:00:00+02:00"),
        ("2026-06-11T03:00:00+02:00", "2026-06-11T06:00:00+02:00", "2026-06-11T06:00:00+02:00"),
        ("2026-06-11T06:00:00+02:00", None, "2026-06-11T22:00:00+02:00"),
        # The night in which the clock goes back is an hour longer by the clock on the wall, not by time that passes.
        ("2026-10-25T04:30:00+01:00", "2026-10-25T05:00:00+01:00", "2026-10-25T05:00:00+01:00"),
        ("2026-10-25T05:00:00+01:00", None, "2026-10-25T22:00:00+01:00"),
    ],
)
def test_a_window_opens_at_its_schedule_in_its_zone_and_lasts_its_duration(at, until, change):
    open_until, upcoming = windows.opening(NIGHT, wall(at))
    assert open_until == (wall(until) if until else 0)
    assert upcoming == wall(change)


def test_spans_that_touch_or_overlap_are_one_opening():
    hourly = Window("h", frozenset({Held.HEAL}), "0 8-11 * * *", HOUR, "UTC")
    assert windows.opening(hourly, wall("2026-06-10T08:30:00+00:00"))[0] == wall("2026-06-10T12:00:00+00:00")
    longer = replace(hourly, duration=90 * 60 * SECOND)
    assert windows.opening(longer, wall("2026-06-10T08:30:00+00:00"))[0] == wall("2026-06-10T12:30:00+00:00")


def test_a_window_whose_spans_never_end_still_has_a_next_change():
    always = Window("a", frozenset({Held.HEAL}), "* * * * *", HOUR, "UTC")
    until, change = windows.opening(always, NOW.wall)
    assert NOW.wall < until == change < FOREVER


@given(st.integers(0, 400 * 24 * 3600), st.sampled_from(["Europe/Berlin", "UTC", "America/New_York", "Asia/Kathmandu"]))
def test_the_answer_stays_the_same_until_the_change_it_names(second, zone):
    window = replace(NIGHT, timezone=zone)
    at = wall("2026-01-01T00:00:00+00:00") + second * SECOND
    until, change = windows.opening(window, at)
    assert change > at
    assert bool(windows.opening(window, change - 1)[0]) == bool(until)
    assert bool(windows.opening(window, change)[0]) != bool(until)
    if until:
        assert windows.opening(window, (at + change) // 2)[0] == until


def test_a_window_for_prune_holds_deletions_until_it_ends():
    window = Window("freeze", frozenset({Held.PRUNE}), "*/10 * * * *", 120 * SECOND, "UTC")
    guard = Guard(mass_change=MassChange(100, 50), windows=(window,))
    web, old = Spec(), Spec(name="old", replicas=1, pools=("old",))
    desired, world = gone(Shop((web,), prune=True, guard=guard), Scene(web, old))
    decision = decide(desired, world, NOW)
    assert {hold.rule for hold in decision.holds} == {Rule.WINDOW}
    until = {hold.until for hold in decision.holds}
    assert until == {NOW.steady + 120 * SECOND}
    assert not decision.steps
    assert decision.wake_at <= min(until)
