"""GET /metrics, /healthz and /readyz: metrics for Prometheus, and whether the daemon works. Served by `metrics_serving.py`.

The text of a scrape is made on a thread from the last tick, so a scrape neither waits for the loop nor holds it up. Scrapes that
come while one is made share its text.
"""

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import Executor

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from providers.errors import ProviderError
from reconciler.metrics.monitoring import Monitoring

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""

SLOW_SECONDS = 1.0
"""Seconds until the answer to an invalid token, so that guessing is slow."""

NO_STORE = {"cache-control": "no-store"}


def metrics_app(
    monitoring: Monitoring, thread: Executor, token: Callable[[], str] | None, slow: float = SLOW_SECONDS
) -> Starlette:
    """The application.

    Args:
        monitoring: of this run.
        thread: makes the text and reads the token; not the event loop's shared threads, which others may fill.
        token: returns the token that a scrape must send; may block, raises ProviderError. None: no token is asked for.
        slow: delay of a refusal in seconds.
    """
    making: list[asyncio.Future[bytes]] = []

    async def text() -> bytes:
        meter = monitoring.meter
        if meter is None:
            return b""
        if not making:
            made = asyncio.get_running_loop().run_in_executor(thread, meter.text)
            making.append(made)
            made.add_done_callback(lambda _: making.clear())
        return await asyncio.shield(making[0])

    async def metrics(request: Request) -> Response:
        if token is not None:
            kind, _, sent = request.headers.get("authorization", "").partition(" ")
            try:
                expected = await asyncio.get_running_loop().run_in_executor(thread, token)
            except ProviderError:
                return _text("the token cannot be read now; the log says why\n", 503)
            if kind.lower() != "bearer" or not hmac.compare_digest(sent.strip().encode(), expected.encode()):
                await asyncio.sleep(slow)
                return _text("refused\n", 401, {"www-authenticate": "Bearer"})
        return Response(await text(), media_type=None, headers={"content-type": CONTENT_TYPE, **NO_STORE})

    async def healthy(_: Request) -> Response:
        return _answer(monitoring.pulse.problem())

    async def ready(_: Request) -> Response:
        return _answer(monitoring.pulse.not_ready() or monitoring.pulse.problem())

    return Starlette(
        routes=[
            Route("/metrics", metrics, methods=["GET"]),
            Route("/healthz", healthy, methods=["GET"]),
            Route("/readyz", ready, methods=["GET"]),
        ]
    )


def _answer(problem: str) -> Response:
    return _text(f"{problem}\n" if problem else "ok\n", 503 if problem else 200)


def _text(body: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(body, status_code=status, headers={**NO_STORE, **(headers or {})})
