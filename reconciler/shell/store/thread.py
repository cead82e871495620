"""The one thread of a store: all calls go there, in order, so that a slow or hung disk never blocks the event loop.

A store has one connection and one writer. A pool would let a second write begin while the first one hangs. Made by `memory.py`.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class NoThread(Exception):
    """The thread cannot be started, so the call has not begun and never will."""


class Calls(Protocol):
    """Makes blocking calls of a store, one after another."""

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result. Errors of the call are raised here."""


class StoreThread:
    """Implements `Calls`. The thread begins with the first call; it does not keep the process alive."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result. Errors of the call are raised here. A waiter that is cancelled does not end the call.

        Raises:
            NoThread: the thread cannot be started.
        """
        self._begin()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  (raised where the result is awaited)
                failure = error
            with suppress(RuntimeError):  # the event loop has ended: no task waits any more
                loop.call_soon_threadsafe(_answer, answer, result, failure)

        self._calls.put(work)
        return await answer

    def close(self, last: Callable[[], None], seconds: float) -> bool:
        """Make the last call, wait at most `seconds` for it, and end the thread. Whether it has ended; else a call hangs."""
        if self._thread is None:
            last()
            return True
        self._calls.put(last)
        self._calls.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _begin(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._work, name="store", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise NoThread(f"no thread can be started: {error}") from error
        self._thread = thread

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _answer(answer: "asyncio.Future[T]", result: T, failure: BaseException | None) -> None:
    if answer.done():  # cancelled
        return
    if failure is None:
        answer.set_result(result)
    else:
        answer.set_exception(failure)
