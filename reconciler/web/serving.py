"""Keeps the push listener open as the Instance in force declares it. Run by `wire.py` beside the loop.

When listening fails, it reports that and tries again; the loop goes on without pushes.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from manifests.values.desired import PushListener
from reconciler.shell.pushing.credentials import Credentials
from reconciler.shell.pushing.pushes import Pushing
from reconciler.shell.report.last_decision import last_decision
from reconciler.shell.store.directory import StoreError
from reconciler.web.sockets import open_sockets

RETRY_FIRST, RETRY_LONGEST = 1.0, 30.0
"""Seconds until a failed listener is opened again: the first wait, doubled each time up to the longest."""


async def serve(
    pushing: Pushing,
    credentials: Credentials,
    note: Callable[[str], None],
    answered: Callable[[str, int], None] | None = None,
) -> None:
    """Listen until cancelled. `note` reports failures; `answered` gets the event and the status code of every answer."""
    pause, reported = RETRY_FIRST, ""
    while True:
        pushing.moved.clear()
        listener = pushing.listener
        credentials.listener = listener
        if listener is None:
            await pushing.moved.wait()
            continue
        began = asyncio.get_running_loop().time()
        problem = await _listen(listener, pushing, credentials, answered)
        if not problem:
            pause, reported = RETRY_FIRST, ""
            continue
        if problem != reported:
            note(f"pushes cannot be received: {problem}; retried automatically")
        if asyncio.get_running_loop().time() - began > RETRY_LONGEST:
            pause = RETRY_FIRST
        reported = problem
        with suppress(TimeoutError):
            await asyncio.wait_for(pushing.moved.wait(), pause)
        pause = min(2 * pause, RETRY_LONGEST)


async def _listen(
    listener: PushListener,
    pushing: Pushing,
    credentials: Credentials,
    answered: Callable[[str, int], None] | None,
) -> str:
    """Listen until the listener of the Instance changes. Returns the problem; empty when there was none."""
    try:
        # Imported only here: the server is an extra, and costs memory.
        from reconciler.web.push import SLOW_SECONDS, push_app  # noqa: PLC0415
        from reconciler.web.reading import read_routes  # noqa: PLC0415
        from reconciler.web.server import make_server  # noqa: PLC0415
    except ImportError as error:
        return f"{error.name or error} is not installed; run: pip install 'reconciler-gitops[serve]'"
    sockets: list[socket.socket] = []
    try:
        credentials.token("")  # creates the key, so that an unusable state directory is reported now
        sockets = open_sockets(listener, credentials.directory)
        credentials.reader()
        reading = read_routes(partial(last_decision, credentials.state), credentials.reader, SLOW_SECONDS)
        server = make_server(push_app(pushing, credentials, others=reading, answered=answered))
        running = asyncio.create_task(server.run_on(sockets))
        moved = asyncio.create_task(pushing.moved.wait())
        try:
            await asyncio.wait((running, moved), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            server.stop()
            await asyncio.gather(running, moved, return_exceptions=True)
        if pushing.moved.is_set():
            return ""
        failed = running.exception()
        logging.getLogger("reconciler").debug("the push listener ended", exc_info=failed)
        return f"the listener ended: {failed or 'unexpectedly'}"
    except StoreError as error:
        return str(error)
    except (OSError, RuntimeError) as error:  # no more descriptors or threads
        return f"{type(error).__name__}: {error}"
    finally:
        for listening in sockets:
            listening.close()
