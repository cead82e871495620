"""Keeps the metrics listener open as the Instance in force declares it. Run by `wire.py` beside the loop.

When listening fails, it reports that and tries again; the loop goes on without metrics.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from manifests.values.desired import MetricsListener
from providers.errors import ProviderError
from providers.lib.secrets import SecretRef
from reconciler.metrics.monitoring import Monitoring
from reconciler.shell.store.directory import StoreError
from reconciler.web.serving import RETRY_FIRST, RETRY_LONGEST
from reconciler.web.sockets import open_tcp


async def serve_metrics(monitoring: Monitoring, note: Callable[[str], None]) -> None:
    """Listen until cancelled. `note` reports failures."""
    pause, reported = RETRY_FIRST, ""
    while True:
        monitoring.moved.clear()
        listener = monitoring.listener
        if listener is None:
            await monitoring.moved.wait()
            continue
        problem = await _listen(listener, monitoring, note)
        if not problem:
            pause, reported = RETRY_FIRST, ""
            continue
        if problem != reported:
            note(f"metrics are not served: {problem}; retried automatically")
        reported = problem
        with suppress(TimeoutError):
            await asyncio.wait_for(monitoring.moved.wait(), pause)
        pause = min(2 * pause, RETRY_LONGEST)


async def _listen(listener: MetricsListener, monitoring: Monitoring, note: Callable[[str], None]) -> str:
    """Listen until the listener of the Instance changes. Returns the problem; empty when there was none."""
    try:
        # Imported only here: the server is an extra, and costs memory.
        from reconciler.web.metrics import metrics_app  # noqa: PLC0415
        from reconciler.web.server import make_server  # noqa: PLC0415
    except ImportError as error:
        return f"{error.name or error} is not installed; run: pip install 'reconciler-gitops[serve]'"
    try:
        opened = open_tcp("metrics", *listener.listen)
    except StoreError as error:
        return str(error)
    with opened:
        thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        server = make_server(metrics_app(monitoring, thread, _token(listener, note)))
        running = asyncio.create_task(server.run_on([opened]))
        moved = asyncio.create_task(monitoring.moved.wait())
        try:
            await asyncio.wait((running, moved), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            server.stop()
            await asyncio.gather(running, moved, return_exceptions=True)
            thread.shutdown(wait=False, cancel_futures=True)
    if monitoring.moved.is_set():
        return ""
    failed = running.exception()
    logging.getLogger("reconciler").debug("the metrics listener ended", exc_info=failed)
    return f"the listener ended: {failed or 'unexpectedly'}"


def _token(listener: MetricsListener, note: Callable[[str], None]) -> Callable[[], str] | None:
    """Reads the token at each use, so that a changed one counts at once; a problem is reported once, until it changes."""
    if listener.token is None:
        return None
    reference = SecretRef(env=listener.token.env or None, file=listener.token.file or None)
    reported: list[str] = []

    def read() -> str:
        try:
            token = reference.resolve("metrics.token of the Instance").reveal()
        except ProviderError as error:
            if reported != [str(error)]:
                reported[:] = [str(error)]
                note(f"metrics are refused: {error}")
            raise
        reported.clear()
        return token

    return read
