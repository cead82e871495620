"""Keeps a listener open for as long as the Instance wants one, wherever it wants it. Run by `wire.py` beside the loop.

That it cannot listen is told and tried again: containers, weights and names are taken care of all the same.
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

AGAIN_FIRST, AGAIN_LONGEST = 1.0, 30.0
"""Seconds until a listener that failed is tried again; doubled each time."""


async def serve(pushing: Pushing, credentials: Credentials, note: Callable[[str], None]) -> None:
    """Listen until cancelled. `note` takes what went wrong."""
    pause, told = AGAIN_FIRST, ""
    while True:
        pushing.moved.clear()
        listener = pushing.listener
        credentials.listener = listener
        if listener is None:
            await pushing.moved.wait()
            continue
        began = asyncio.get_running_loop().time()
        problem = await _listen(listener, pushing, credentials)
        if not problem:
            pause, told = AGAIN_FIRST, ""
            continue
        if problem != told:
            note(f"pushes are not taken: {problem}; trying again")
        if asyncio.get_running_loop().time() - began > AGAIN_LONGEST:
            pause = AGAIN_FIRST
        told = problem
        with suppress(TimeoutError):
            await asyncio.wait_for(pushing.moved.wait(), pause)
        pause = min(2 * pause, AGAIN_LONGEST)


async def _listen(listener: PushListener, pushing: Pushing, credentials: Credentials) -> str:
    """Listen until the Instance wants something else. Returns what went wrong, empty when nothing did."""
    try:
        # Only who listens pays for the server, and may lack it.
        from reconciler.web.push import SLOW_SECONDS, push_app  # noqa: PLC0415
        from reconciler.web.reading import read_routes  # noqa: PLC0415
        from reconciler.web.server import make_server  # noqa: PLC0415
    except ImportError as error:
        return f"{error.name or error} is not installed; install it: pip install 'reconciler[serve]'"
    sockets: list[socket.socket] = []
    try:
        credentials.token("")  # makes the key, so that a state directory that cannot hold it is told now
        sockets = open_sockets(listener, credentials.directory)
        credentials.reader()
        reading = read_routes(partial(last_decision, credentials.state), credentials.reader, SLOW_SECONDS)
        server = make_server(push_app(pushing, credentials, others=reading))
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
        return f"the listener ended: {failed or 'nobody asked it to'}"
    except StoreError as error:
        return str(error)
    finally:
        for one in sockets:
            one.close()
