"""The metrics listener, open as the Instance in force declares it. Run by `wire.py` beside the loop."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from manifests.values.desired import MetricsListener
from providers.errors import ProviderError
from providers.lib.secrets import resolve
from reconciler.metrics.monitoring import Monitoring
from reconciler.web.keep_open import keep_open, run_until_moved
from reconciler.web.sockets import open_tcp


async def serve_metrics(monitoring: Monitoring, note: Callable[[str], None]) -> None:
    """Listen until cancelled. `note` reports failures."""
    listen = partial(_listen, monitoring, note)
    await keep_open("metrics are not served", monitoring.moved, lambda: monitoring.listener, listen, note)


async def _listen(monitoring: Monitoring, note: Callable[[str], None], listener: MetricsListener) -> str:
    """Listen until the listener of the Instance changes. Returns and raises as `keep_open` expects."""
    # Imported only here: the server is an extra, and costs memory.
    from reconciler.web.metrics import metrics_app  # noqa: PLC0415
    from reconciler.web.server import make_server  # noqa: PLC0415

    with open_tcp("metrics", *listener.listen) as opened:
        thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        try:
            server = make_server(metrics_app(monitoring, thread, _token(listener, note)))
            return await run_until_moved(server, [opened], monitoring.moved)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def _token(listener: MetricsListener, note: Callable[[str], None]) -> Callable[[], str] | None:
    """Reads the token at each use, so that a changed one counts at once; a problem is reported once, until it changes."""
    if listener.token is None:
        return None
    source = listener.token
    reported: list[str] = []

    def read() -> str:
        try:
            token = resolve(source, "metrics.token of the Instance").reveal()
        except ProviderError as error:
            if reported != [str(error)]:
                reported[:] = [str(error)]
                note(f"metrics are refused: {error}")
            raise
        reported.clear()
        return token

    return read
