"""The clock of an instance goes on over processes, reboots and hosts; no host's own time gets into it."""

import asyncio
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from reconciler.core.model.instant import FOREVER, Instant, Now, elapsed, instant
from reconciler.shell.clock import SystemClock
from reconciler.shell.instance_clock import (
    FIRST,
    LATEST,
    LONGEST_GAP,
    SKEW,
    ClockRecord,
    InstanceClock,
    offset_now,
)
from tests.sim.clock import VirtualClock

DAY = 86_400 * SECOND
WALL = 1_800_000_000 * SECOND
RECORD = ClockRecord("a lineage", FIRST + 5 * DAY, WALL, 7 * DAY, "boot a", "machine a")


def passed(wall: int, steady: int, boot: str, machine: str, record: ClockRecord = RECORD) -> int:
    """The time of the instance since the record that a process works out at its start."""
    return steady + offset_now(record, Now(wall, steady, boot), machine) - record.steady


@pytest.mark.parametrize("step", [-400 * DAY, -60 * SECOND, 0, 3600 * SECOND, 400 * DAY])
@pytest.mark.parametrize("machine", ["machine a", "renamed", ""])
def test_in_the_same_boot_only_the_steady_clock_counts(step, machine):
    assert passed(WALL + step, 7 * DAY + 11 * SECOND, "boot a", machine) == 11 * SECOND


@pytest.mark.parametrize("uptime", [0, 3 * SECOND, 30 * DAY, 3_000 * DAY])
@pytest.mark.parametrize(
    ("wall", "expected"),
    [(11 * SECOND, 11 * SECOND), (0, 0), (-SECOND, 0), (-4000 * DAY, 0), (3 * DAY, 3 * DAY), (900 * DAY, LONGEST_GAP)],
)
def test_on_another_host_only_the_wall_clock_counts(uptime, wall, expected):
    assert passed(WALL + wall, uptime, "boot b", "machine b") == expected
    assert passed(WALL + wall, uptime, "boot b", "") == expected


@pytest.mark.parametrize("wall", [-SKEW, -SECOND, 0, 11 * SECOND, 29 * DAY])
def test_a_copy_of_the_host_with_its_machine_id_lends_no_time(wall):
    assert passed(WALL + wall, 30 * DAY, "boot b", "machine a") == max(0, wall)


def test_after_a_reboot_without_a_clock_battery_the_uptime_counts():
    assert passed(0, 40 * SECOND, "boot b", "machine a") == 40 * SECOND + 1
    nameless = RECORD._replace(machine="")
    assert passed(0, 40 * SECOND, "boot b", "", nameless) == 0, "two hosts without an id are not the same host"


def test_a_steady_clock_that_goes_back_in_its_boot_takes_nothing_away():
    assert passed(WALL, 6 * DAY, "boot a", "machine a") == 0  # a virtual machine was set back to a snapshot


def test_wall_clocks_set_forward_again_and_again_use_up_no_range():
    clock, record = VirtualClock(wall=WALL), InstanceClock(VirtualClock(wall=WALL), None).record()
    for number in range(500):
        clock.move(f"boot {number}", f"machine {number}", 10 * SECOND, step=100 * 366 * DAY if number % 2 else 0)
        clock.step_wall(0 if number % 2 else -100 * 366 * DAY)
        after = InstanceClock(clock, record).record()
        assert after.steady >= record.steady
        record = after
    assert record.steady <= LATEST <= FOREVER // 2


def test_a_new_instance_has_its_own_lineage_and_no_instant_before_zero():
    first, second = (InstanceClock(VirtualClock(steady=30_000 * DAY % FIRST), None) for _ in range(2))
    assert first.now().lineage != second.now().lineage
    assert first.booted > 0
    assert first.now().steady == FIRST


HOST = st.sampled_from(["a", "b", "c"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 3 * DAY)),
        st.tuples(st.just("step"), st.integers(-40 * DAY, 40 * DAY)),
        st.tuples(st.just("save"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("reboot"), st.integers(0, 3 * DAY)),
        st.tuples(st.sampled_from(["move to b", "move to c"]), st.integers(0, 4_000 * DAY)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_the_time_of_the_instance_never_goes_back(events):
    """Whatever is saved when: a moment in the store is never in the future of a later process."""
    clock = VirtualClock(wall=WALL, steady=9 * DAY)
    saved, latest = None, 0
    process = InstanceClock(clock, saved)
    for number, (event, value) in enumerate(events):
        if event == "pass":
            clock.advance(value)
        elif event == "step":
            clock.step_wall(value)
        elif event == "save":
            saved, latest = process.record(), process.now().steady
        elif event == "reboot":
            clock.reboot(f"boot {number}", downtime=value)
        elif event.startswith("move"):
            clock.move(f"boot {number}", event, value)
        if event in ("kill", "reboot") or event.startswith("move"):
            process = InstanceClock(clock, saved)
        assert process.now().steady >= latest
        assert saved is None or process.now().lineage == saved.lineage
        assert process.booted >= 0


@given(st.integers(0, 50 * DAY), st.integers(0, 4_000 * DAY), st.integers(-40 * DAY, 40 * DAY))
def test_another_host_counts_time_up_to_the_error_of_its_wall_clock(stopped, uptime, error):
    clock = VirtualClock(wall=WALL, steady=9 * DAY)
    before = InstanceClock(clock, None)
    since, record = instant(before.now()), before.record()
    clock.advance(stopped)
    clock.move("boot b", "machine b", uptime, step=error)
    counted = elapsed(since, InstanceClock(clock, record).now())
    assert counted == max(0, stopped + error)
    assert abs(counted - stopped) <= abs(error)


def test_a_kill_before_the_first_save_begins_again_as_before_it():
    clock = VirtualClock()
    first = InstanceClock(clock, None)
    clock.advance(DAY)
    second = InstanceClock(clock, None)
    assert first.now().lineage != second.now().lineage
    assert second.now().steady == FIRST


async def test_a_sleep_ends_at_the_instant_of_the_instance():
    host = VirtualClock(steady=50 * SECOND)
    clock = InstanceClock(host, RECORD)
    until = clock.now().steady + 7 * SECOND
    await clock.sleep_until(until, asyncio.Event())
    assert clock.now().steady == until
    assert host.now().steady == 57 * SECOND
    wake = asyncio.Event()
    sleeper = asyncio.create_task(clock.sleep_until(FOREVER, wake))
    await asyncio.sleep(0)
    wake.set()
    await sleeper
    clock.pause(SECOND)
    assert clock.now().steady == until + SECOND


# --- moments of hosts ---------------------------------------------------------------------------------------------------


def test_a_moment_of_this_boot_is_exact_any_other_goes_by_the_wall_clock():
    host = VirtualClock(wall=WALL + 60 * SECOND, steady=50 * SECOND, boot="boot b")
    clock = InstanceClock(host, RECORD)
    now = clock.now()
    here = Instant(WALL, 43 * SECOND, "boot b")
    assert elapsed(clock.of_instance(here), now) == 7 * SECOND
    elsewhere = Instant(WALL + 20 * SECOND, 30 * DAY, "boot c")
    assert elapsed(clock.of_instance(elsewhere), now) == 40 * SECOND
    ahead = Instant(WALL + DAY, 30 * DAY, "boot c")
    assert elapsed(clock.of_instance(ahead), now) == 0
    own = instant(now)
    assert clock.of_instance(own) is own
    assert {clock.of_instance(at).lineage for at in (here, elsewhere, ahead)} == {"a lineage"}


def test_only_moments_change_in_a_row_of_an_earlier_version():
    clock = InstanceClock(VirtualClock(wall=WALL, steady=50 * SECOND, boot="boot b"), RECORD)
    moved = f'[{WALL - SECOND}, {49 * SECOND + clock.offset}, "a lineage"]'
    row = f'["workload/web/0", ["id", {WALL}], [{WALL - SECOND}, {49 * SECOND}, "boot b"], [0, 0, ""], null]'
    assert clock.of_instance_text(row) == f'["workload/web/0", ["id", {WALL}], {moved}, [0, 0, ""], null]'
    assert clock.of_instance_text(clock.of_instance_text(row)) == clock.of_instance_text(row)
    for other in (
        '"a [1800000000000000000, 5, \\"boot b\\"] in a text"',
        '[[8080, 8080, "http"], "x"]',
        "true",
        "null",
    ):
        assert clock.of_instance_text(other) == other


# --- this host ------------------------------------------------------------------------------------------------------------


def test_the_system_clock_knows_its_host():
    machine = SystemClock().machine
    assert machine == "" or machine.endswith(f"/{os.uname().nodename}")


def test_a_time_namespace_is_another_clock_in_the_same_boot():
    code = "from reconciler.shell.clock import SystemClock; print(*SystemClock().now()[1:])"
    command = ["unshare", "-T", "--boottime=2592000", "--", sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError as error:
        pytest.skip(f"unshare cannot be run: {error}")
    if done.returncode:
        pytest.skip(f"no time namespace can be made: {done.stderr.strip()}")
    steady, lineage = done.stdout.split()
    now = SystemClock().now()
    assert int(steady) > now.steady + 29 * DAY
    assert lineage.startswith(f"{now.lineage}/time:")
