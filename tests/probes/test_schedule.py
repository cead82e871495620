"""The schedule of probes, in virtual time."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.probes.schedule import FIRST_WINDOW, NO_PHASE, Schedule, first_due, next_due, phase_of

SECOND = 1_000_000_000
periods = st.integers(1, 1800 * SECOND)
instants = st.integers(0, 10**18)


@dataclass(eq=False)
class Item:
    period: int
    phase: int = NO_PHASE
    gone: bool = False


@given(periods, instants, instants, st.integers(0, 100 * SECOND), st.text(), st.integers(1, 100_000))
def test_the_first_probe_comes_after_the_delay_and_within_the_window(
    period: int, now: int, started: int, delay: int, name: str, together: int
) -> None:
    due = first_due(now, started, delay, period, phase_of(name, period), together)
    earliest = max(now, min(started, now) + delay)
    assert earliest <= due <= earliest + min(period, FIRST_WINDOW)


def test_a_single_new_target_is_probed_as_soon_as_its_delay_is_over() -> None:
    assert first_due(100, 50, 70, 10 * SECOND, phase_of("a", 10 * SECOND), 1) == 120


def test_a_start_in_the_future_counts_as_now() -> None:
    assert first_due(100, 10**15, 5, SECOND, NO_PHASE, 1) == 105


@given(instants, instants, periods, st.text())
def test_the_next_instant_is_on_the_grid_about_a_period_later(due: int, now: int, period: int, name: str) -> None:
    phase = phase_of(name, period)
    then = next_due(due, now, period, phase)
    assert then > now
    assert then % period == phase
    if now <= due:
        assert period // 2 <= then - due <= period + period // 2 + 1


@given(instants, periods, st.text(), st.integers(1, 20))
def test_from_the_second_probe_on_the_cadence_is_exactly_the_period(
    due: int, period: int, name: str, count: int
) -> None:
    phase = phase_of(name, period)
    now = next_due(due, due, period, phase)
    for _ in range(count):
        then = next_due(now, now, period, phase)
        assert then - now == period
        now = then


@pytest.mark.parametrize("missed", [1, 2, 1000])
def test_missed_instants_collapse_into_one(missed: int) -> None:
    schedule: Schedule[Item] = Schedule()
    item = Item(period=10)
    schedule.add(1, item, 10)
    assert [due for due, _ in schedule.take(10 + 10 * missed, 99)] == [10]
    assert schedule.take(10 + 10 * missed, 99) == []
    assert schedule.next() == 20 + 10 * missed


def test_phases_spread_targets_evenly_over_the_period() -> None:
    period = 10 * SECOND
    slots = [0] * 100
    for number in range(20_000):
        slots[phase_of(f"container-{number} liveness", period) * 100 // period] += 1
    assert min(slots) > 130
    assert max(slots) < 270


def test_removed_targets_are_never_due_and_are_swept() -> None:
    schedule: Schedule[Item] = Schedule()
    items = [Item(period=3600 * SECOND) for _ in range(1000)]
    for number, item in enumerate(items):
        schedule.add(number, item, number)
    for item in items[:990]:
        item.gone = True
        schedule.item_gone()
    assert len(schedule) < 200
    assert [item for _, item in schedule.take(2000, 2000)] == items[990:]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), min_size=1, max_size=20), st.integers(1, 400))
def test_every_target_gets_its_probe_in_every_period(targets: list[tuple[int, int]], until: int) -> None:
    schedule: Schedule[Item] = Schedule()
    served: dict[int, list[int]] = {}
    for number, (period, first) in enumerate(targets):
        schedule.add(number, Item(period), first)
        served[number] = []
    items = {id(item): key for _, key, item in schedule._heap}
    while (due := schedule.next()) is not None and due <= until:
        for at, item in schedule.take(due, 1000):
            served[items[id(item)]].append(at)
    for number, (period, first) in enumerate(targets):
        assert served[number] == list(range(first, until + 1, period))
