import asyncio
import time
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import FOREVER, elapsed, instant
from reconciler.shell.clock import SystemClock, utc, utc_stamp
from tests.sim.clock import VirtualClock


def test_the_system_clock_reads_the_clocks_and_boot_id_of_the_kernel():
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    now = SystemClock().now()
    assert before <= now.steady <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert abs(now.wall - time.time_ns()) < 5 * SECOND
    assert now.lineage == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def test_a_system_sleep_ends_at_its_instant_and_not_before():
    clock = SystemClock()
    until = clock.now().steady + 20_000_000
    await clock.sleep_until(until, asyncio.Event())
    assert clock.now().steady >= until


async def test_a_system_sleep_of_any_length_ends_at_a_wake():
    clock, wake = SystemClock(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, wake.set)
    async with asyncio.timeout(60):
        await clock.sleep_until(FOREVER, wake)
    assert wake.is_set()


@pytest.mark.parametrize("clock", [SystemClock(), VirtualClock()])
async def test_a_sleep_that_is_already_due_still_yields_to_other_tasks(clock):
    ran = asyncio.Event()
    task = asyncio.create_task(_set(ran))
    await clock.sleep_until(0, asyncio.Event())
    assert ran.is_set()
    await task


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_a_virtual_sleep_jumps_to_its_instant_on_both_clocks():
    clock = VirtualClock(wall=100, steady=10)
    await clock.sleep_until(10 + 3600 * SECOND, asyncio.Event())
    assert clock.now() == (100 + 3600 * SECOND, 10 + 3600 * SECOND, "virtual-boot-1")


async def test_a_virtual_sleep_ended_by_a_wake_takes_no_time():
    clock, wake = VirtualClock(steady=10), asyncio.Event()
    wake.set()
    await clock.sleep_until(FOREVER - 1, wake)
    assert clock.now().steady == 10


async def test_a_virtual_sleep_lets_ready_tasks_set_the_wake_first():
    clock, wake = VirtualClock(steady=10), asyncio.Event()
    task = asyncio.create_task(_set(wake))
    await clock.sleep_until(5 * SECOND, wake)
    assert clock.now().steady == 10
    await task


async def test_a_virtual_sleep_without_end_waits_only_for_the_wake():
    clock, wake = VirtualClock(steady=10), asyncio.Event()
    sleeper = asyncio.create_task(clock.sleep_until(FOREVER, wake))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not sleeper.done()
    wake.set()
    await sleeper
    assert clock.now().steady == 10


async def test_of_several_virtual_sleepers_the_earliest_goes_first():
    clock = VirtualClock(steady=0)
    woken: list[tuple[int, int]] = []

    async def sleep(until: int) -> None:
        await clock.sleep_until(until, asyncio.Event())
        woken.append((until, clock.now().steady))

    async with asyncio.TaskGroup() as group:
        for until in (30, 10, 20, 10):
            group.create_task(sleep(until))
    assert woken == [(10, 10), (10, 10), (20, 20), (30, 30)]


def test_a_step_of_the_wall_clock_does_not_move_the_steady_clock():
    clock = VirtualClock(wall=1000, steady=10)
    since = instant(clock.now())
    clock.step_wall(-900)
    assert clock.now() == (100, 10, "virtual-boot-1")
    assert elapsed(since, clock.now()) == 0


def test_a_virtual_reboot_resets_the_steady_clock_and_changes_the_boot_id():
    clock = VirtualClock()
    since = instant(clock.now())
    clock.reboot("virtual-boot-2", downtime=90 * SECOND)
    assert clock.now().steady < since.steady
    assert elapsed(since, clock.now()) == 90 * SECOND


def test_virtual_time_never_goes_back():
    with pytest.raises(ValueError, match="cannot advance"):
        VirtualClock().advance(-1)


def test_a_blocking_pause_on_the_virtual_clock_only_moves_time():
    clock = VirtualClock(steady=0)
    clock.pause(3600 * SECOND)
    assert clock.now().steady == 3600 * SECOND


def test_instants_are_shown_in_utc():
    assert utc(0).isoformat() == "1970-01-01T00:00:00+00:00"
    assert utc(1_500_000_000_123_456_789).microsecond == 123456
    assert utc_stamp(1_500_000_000 * SECOND) == "20170714T024000Z"
