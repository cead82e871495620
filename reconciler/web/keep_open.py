"""Keeps a listener open as the Instance in force declares it. Used by `serving.py` for pushes and by `metrics_serving.py`.

When listening fails, it reports that and tries again; the loop goes on without the listener.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from reconciler.shell.store.directory import StoreError

if TYPE_CHECKING:
    from reconciler.web.server import Server

Listener = TypeVar("Listener")

RETRY_FIRST, RETRY_LONGEST = 1.0, 30.0
"""Seconds until a failed listener is opened again: the first wait, doubled each time up to the longest."""


async def keep_open(
    effect: str,
    moved: asyncio.Event,
    declared: Callable[[], Listener | None],
    listen: Callable[[Listener], Awaitable[str]],
    note: Callable[[str], None],
) -> None:
    """Run until cancelled.

    Args:
        effect: what is missing while listening fails, for messages.
        moved: is set when the Instance declares another listener.
        declared: the listener of the Instance; None for none.
        listen: listens until `moved`. Returns the problem; empty when there was none. May raise ImportError, StoreError, OSError
            (no more descriptors) and RuntimeError (no more threads).
        note: reports failures, each once.
    """
    pause, reported = RETRY_FIRST, ""
    while True:
        moved.clear()
        listener = declared()
        if listener is None:
            await moved.wait()
            continue
        began = asyncio.get_running_loop().time()
        try:
            problem = await listen(listener)
        except ImportError as error:
            problem = f"{error.name or error} is not installed; run: pip install 'reconciler-gitops[serve]'"
        except StoreError as error:
            problem = str(error)
        except (OSError, RuntimeError) as error:
            problem = f"{type(error).__name__}: {error}"
        if not problem:
            pause, reported = RETRY_FIRST, ""
            continue
        if problem != reported:
            note(f"{effect}: {problem}; retried automatically")
        if asyncio.get_running_loop().time() - began > RETRY_LONGEST:
            pause = RETRY_FIRST
        reported = problem
        with suppress(TimeoutError):
            await asyncio.wait_for(moved.wait(), pause)
        pause = min(2 * pause, RETRY_LONGEST)


async def run_until_moved(server: "Server", sockets: list[socket.socket], moved: asyncio.Event) -> str:
    """Serve until the Instance declares another listener. Returns the problem when the server ends before that; else empty."""
    running = asyncio.create_task(server.run_on(sockets))
    waiting = asyncio.create_task(moved.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        server.stop()
        await asyncio.gather(running, waiting, return_exceptions=True)
    if moved.is_set():
        return ""
    failed = running.exception()
    logging.getLogger("reconciler").debug("a listener ended", exc_info=failed)
    return f"the listener ended: {failed or 'unexpectedly'}"
