"""A listener that fails is opened again, whatever the failure, and each failure is reported once."""

import asyncio

import pytest

from reconciler.shell.store.directory import StoreError
from reconciler.web import keep_open as module
from reconciler.web.keep_open import keep_open


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(24, "Too many open files"), "OSError: [Errno 24] Too many open files"),
        (RuntimeError("can't start new thread"), "RuntimeError: can't start new thread"),
        (StoreError("metrics listener", "address in use", "change it"), "address in use"),
        (ImportError(name="uvicorn"), "uvicorn is not installed"),
    ],
    ids=["descriptors", "threads", "address", "extra"],
)
async def test_a_failed_listener_is_opened_again(error: Exception, said: str) -> None:
    moved, opened, notes = asyncio.Event(), asyncio.Event(), []
    left = [error, error]

    async def listen(listener: str) -> str:
        if left:
            raise left.pop()
        opened.set()
        await moved.wait()
        return ""

    task = asyncio.create_task(keep_open("metrics are not served", moved, lambda: "here", listen, notes.append))
    await asyncio.wait_for(opened.wait(), 10 * module.RETRY_FIRST)
    task.cancel()
    assert len(notes) == 1
    assert said in notes[0]
    assert notes[0].startswith("metrics are not served: ")
