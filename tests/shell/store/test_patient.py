"""How long the loop waits for the store, and what becomes of a call that ends later."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.audit import Event
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.memory import BlockingMemory, StoreMemory
from reconciler.shell.store.patient import PatientMemory
from reconciler.shell.store.ports import Document, Rows
from reconciler.shell.store.state_db import Store

NOW = Now(1, 2, "boot")
ROWS = Rows((), "r1", (Event(7, "hold", "workload/web", "start", "", "held", "a test"),))


class Hasty(SystemClock):
    """Waits a hundredth of what it is asked for while `hasty` is set: only a disk that hangs must not take the time of a test."""

    __slots__ = ("hasty",)

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        left = max(0, steady - self.now().steady)
        await super().sleep_until(self.now().steady + (left // 100 if self.hasty else left), wake)


class Disk:
    """A store whose next calls wait until the disk answers."""

    def __init__(self, state: Path) -> None:
        self.store = Store.open(state, SystemClock())
        self.memory = StoreMemory(BlockingMemory(self.store, "a test"))
        self.clock = Hasty()
        self.clock.hasty = False
        self.patient = PatientMemory(self.memory, self.clock)
        self.patient.stays = True
        self.hung = threading.Event()

    async def hang(self) -> None:
        """Let every call of the store hang behind one that hangs: they have one thread."""
        self.hung.clear()
        self.clock.hasty = True
        self.hanging = asyncio.create_task(self.memory.thread.run(lambda: self.hung.wait(60)))
        await asyncio.sleep(0)

    async def recover(self) -> None:
        """Let the disk answer, and wait until the store can be written again."""
        self.hung.set()
        self.clock.hasty = False
        ended = asyncio.Event()
        self.patient.begin_recovery(ended.set)
        async with asyncio.timeout(60):
            await ended.wait()
        assert self.patient.recovered() is True
        await self.patient.write_kept()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "state")
    yield made
    made.hung.set()
    assert made.memory.close(60)


async def late(disk: Disk, call: Callable[[], Awaitable[object]]) -> None:
    """Make a call that the disk answers too late."""
    await disk.hang()
    with pytest.raises(StoreError, match="has not answered for"):
        await call()
    assert disk.patient.late


async def test_a_journal_entry_that_is_recorded_too_late_is_closed(disk: Disk) -> None:
    await late(disk, lambda: disk.patient.begin("s", "workload/web/0", "stop", "", "Crashed", NOW))
    assert disk.store.entries() == ()
    await disk.recover()
    assert [(entry.step, entry.outcome) for entry in disk.store.entries()] == [("s", "skipped")]


async def test_an_outcome_whose_write_ends_late_is_recorded_once(disk: Disk) -> None:
    entry = await disk.patient.begin("s", "workload/web/0", "stop", "", "Crashed", NOW)
    await disk.hang()
    await disk.patient.end(entry, "done")
    assert disk.patient.error is not None
    await disk.recover()
    assert [(entry.step, entry.outcome) for entry in disk.store.entries()] == [("s", "done")]


async def test_a_report_whose_write_ends_late_is_not_written_twice(disk: Disk) -> None:
    await disk.hang()
    await disk.patient.report([ROWS], [Document({"holds": []})])
    await disk.patient.report([ROWS._replace(revision="r2")])  # kept: the store is not asked
    await disk.recover()
    assert [row.revision for _, row in disk.store.audit_since()] == ["r1", "r2"]


async def test_a_call_that_waits_behind_one_that_hangs_never_begins(disk: Disk) -> None:
    await disk.hang()
    first = asyncio.create_task(disk.patient.save_ledger({("wanted", "a"): "[1]"}))
    await asyncio.sleep(0)
    with pytest.raises(StoreError):
        await disk.patient.begin("s", "workload/web/0", "stop", "", "Crashed", NOW)
    with pytest.raises(StoreError):
        await first
    await disk.recover()
    assert disk.store.entries() == ()
    assert disk.store.load_ledger() == {("wanted", "a"): "[1]"}, (
        "what had begun is carried out, and the next save sees it"
    )
    assert await disk.patient.save_ledger({("wanted", "b"): "[2]"}) == 2
    assert disk.store.load_ledger() == {("wanted", "b"): "[2]"}


async def test_nothing_is_asked_of_a_store_that_does_not_answer(disk: Disk) -> None:
    await late(disk, disk.patient.check)
    began = SystemClock().now().steady
    assert await disk.patient.commands() == ()
    with pytest.raises(StoreError):
        await disk.patient.save_ledger({})
    assert SystemClock().now().steady - began < 5 * SECOND
    await disk.recover()
    assert disk.patient.error is None


async def test_calls_are_made_one_after_another_in_their_order(disk: Disk) -> None:
    calls = [disk.patient.begin(f"{n}", "workload/web", "stop", "", "Crashed", NOW) for n in range(50)]
    assert await asyncio.gather(*calls) == list(range(1, 51))
    assert [entry.step for entry in disk.store.entries()] == [f"{n}" for n in range(50)]


async def test_the_event_loop_runs_while_the_disk_hangs(disk: Disk) -> None:
    await disk.hang()
    waiting = asyncio.create_task(disk.patient.save_ledger({("wanted", "a"): "[1]"}))
    turns = 0
    while not waiting.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert isinstance(waiting.exception(), StoreError)
    assert turns > 1


async def test_a_store_that_hangs_does_not_keep_a_run_from_ending(disk: Disk) -> None:
    await disk.hang()
    assert disk.memory.close(0.05) is False
