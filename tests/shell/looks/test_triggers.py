import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reconciler.shell.clock import SystemClock
from reconciler.shell.looks.triggers import REASONS_KEPT, FileTrigger, Wake


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "web.yaml").write_text("0")
    return tmp_path / "tree"


@asynccontextmanager
async def watched(root: Path) -> AsyncIterator[Wake]:
    """The wake of a running trigger; the trigger must end by itself once `stop` is set."""
    wake, stop = Wake(), asyncio.Event()
    task = asyncio.create_task(FileTrigger(root, wake, SystemClock(), check=100).run(stop))
    try:
        yield wake
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await task


async def woken(wake: Wake, *, by: str = "") -> str:
    """Wait at most a minute for a wake-up whose reason contains `by`."""
    async with asyncio.timeout(60):
        while True:
            await wake.event.wait()
            for reason in wake.take():
                if by in reason:
                    return reason


# --- the wake ---


async def test_a_wake_keeps_each_reason_once_until_it_is_taken():
    wake = Wake()
    for reason in ("probe of web-0", "changed: web.yaml", "probe of web-0"):
        wake.set(reason)
    assert wake.event.is_set()
    assert wake.take() == ("probe of web-0", "changed: web.yaml")
    assert not wake.event.is_set()
    assert wake.take() == ()


async def test_a_wake_holds_a_bounded_number_of_reasons():
    wake = Wake()
    for n in range(1000):
        wake.set(f"reason {n}")
    assert len(wake.take()) == REASONS_KEPT
    wake.set("again")
    assert wake.event.is_set()


# --- the file trigger ---


async def test_the_begin_of_a_watch_wakes_because_earlier_changes_were_missed(root):
    async with watched(root) as wake:
        assert await woken(wake) == f"watching {root}"


async def test_each_of_ten_saves_by_rewriting_wakes(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        for n in range(10):
            (root / "web.yaml").write_text(str(n))
            assert await woken(wake, by="web.yaml")


async def test_each_of_ten_saves_by_renaming_wakes(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        for n in range(10):
            (root / ".web.yaml.swp").write_text(str(n))
            (root / ".web.yaml.swp").rename(root / "web.yaml")
            assert await woken(wake, by="web.yaml")


async def test_a_change_deep_in_the_tree_and_in_a_new_directory_wakes(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        (root / "deep" / "a.yaml").touch()
        assert await woken(wake, by="deep/a.yaml") == "changed: deep/a.yaml"
        (root / "new").mkdir()
        await woken(wake, by="new")
        (root / "new" / "b.yaml").touch()
        await woken(wake, by="new/b.yaml")
        (root / "new" / "b.yaml").unlink()
        await woken(wake, by="new/b.yaml")


async def test_changes_without_a_pause_still_wake(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        saving = asyncio.create_task(_save_without_end(root / "web.yaml"))
        try:
            await woken(wake, by="web.yaml")
        finally:
            saving.cancel()


async def _save_without_end(file: Path) -> None:
    while True:
        file.write_text("x")  # noqa: ASYNC240
        await asyncio.sleep(0)


async def test_a_directory_that_is_removed_and_recreated_is_watched_again(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        shutil.rmtree(root)
        await woken(wake, by="removed or replaced")
        root.mkdir()
        await woken(wake, by="watching")
        (root / "web.yaml").touch()
        await woken(wake, by="web.yaml")


async def test_a_directory_replaced_by_a_rename_is_watched_again(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        (root.parent / "next").mkdir()
        root.rename(root.parent / "old")
        (root.parent / "next").rename(root)
        await woken(wake, by="removed or replaced")
        await woken(wake, by="watching")
        (root / "web.yaml").touch()
        await woken(wake, by="web.yaml")


async def test_a_link_that_changes_to_another_directory_wakes_and_is_followed(root):
    (root.parent / "next").mkdir()
    link = root.parent / "current"
    link.symlink_to("tree")
    async with watched(link) as wake:
        await woken(wake, by="watching")
        (root.parent / "other").symlink_to("next")
        (root.parent / "other").rename(link)
        await woken(wake, by="removed or replaced")
        await woken(wake, by="watching")
        (root.parent / "next" / "web.yaml").touch()
        await woken(wake, by="web.yaml")


async def test_a_missing_directory_is_watched_once_it_exists(tmp_path, caplog):
    async with watched(tmp_path / "later") as wake:
        await asyncio.sleep(0)
        (tmp_path / "later").mkdir()
        await woken(wake, by="watching")
    assert caplog.messages == [
        f"{tmp_path}/later: does not exist, so it cannot be watched for changes;"
        " changes are found by the periodic read; watching is retried automatically"
    ]


async def test_an_unchanged_directory_does_not_wake(root):
    async with watched(root) as wake:
        await woken(wake, by="watching")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await wake.event.wait()


async def test_a_cancelled_trigger_ends_and_does_not_stop_other_tasks(root):
    stop = asyncio.Event()
    wake = Wake()
    task = asyncio.create_task(FileTrigger(root, wake, SystemClock(), check=100).run(stop))
    await woken(wake, by="watching")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not stop.is_set()
