"""uvicorn with limits: who may hold how many connections, for how long, and without its own ideas about signals and logs.

A connection that sends no complete request in time is cut, and so is one too many of the same peer, so that nobody can keep
others out. Used by `web/serving.py`.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from reconciler.web.peer import Peer, peer_of

App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]
"""An ASGI application."""

CONNECTIONS = 1_024
"""All connections together: above what a thousand instances use that push now and then."""

PER_CONTAINER = 8
"""Connections of one container over the unix socket: its program, a sidecar and a few calls by hand."""

PER_ADDRESS = 256
"""Connections from one address over TCP, or of one user over the unix socket outside of containers: many instances may share it."""

REQUEST_SECONDS = 5.0
"""How long a request may take to arrive completely, from the connection or from the answer before it."""

HEAD_BYTES = 8 * 1024
"""How long the head of a request may be."""

STOP_SECONDS = 2
"""How long requests under way may take when the server stops."""


class Guarded(H11Protocol):
    """One connection, with its limits."""

    crowd: ClassVar[Counter[str]]
    """Open connections by peer: of a class, because uvicorn makes the objects, which is made for each server."""

    patience: ClassVar[float]
    """Seconds for one request."""

    _peer_key = ""
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Find out who it is, and whether it may be here."""
        connection = transport.get_extra_info("socket")
        peer = peer_of(connection)
        self.app_state = {**self.app_state, "peer": peer}
        super().connection_made(transport)
        key, most = _key(peer, transport)
        if self.crowd[key] >= most or self.crowd.total() >= CONNECTIONS:
            transport.abort()
            return
        self._peer_key = key
        self.crowd[key] += 1
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and keep the deadline of a request that is not complete."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._await_request()

    def on_response_complete(self) -> None:
        """The next request begins."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for others."""
        self._stop_clock()
        if self._peer_key:
            self.crowd[self._peer_key] -= 1
            if not self.crowd[self._peer_key]:
                del self.crowd[self._peer_key]
            self._peer_key = ""
        super().connection_lost(exc)

    def _await_request(self) -> None:
        """While no request is being answered, one must become complete before the clock runs out."""
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._stop_clock()
        elif self._clock is None:
            self._clock = self.loop.call_later(self.patience, self._cut)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _cut(self) -> None:
        self._clock = None
        self.transport.abort()


def _key(peer: Peer | None, transport: asyncio.Transport) -> tuple[str, int]:
    """What connections of one peer are counted under, and how many it may have."""
    if peer is not None and peer.container:
        return f"container {peer.container}", PER_CONTAINER
    if peer is not None:
        return f"user {peer.uid}", PER_ADDRESS
    name = transport.get_extra_info("peername")
    return f"address {name[0] if isinstance(name, tuple) else ''}", PER_ADDRESS


_ACCEPTING = 4
"""Turns of the loop from a connection's acceptance until its protocol knows it."""


class Server(uvicorn.Server):
    """A server inside the loop's process: signals are the loop's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them alone."""
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for `stop`. The library's own loop looks ten times a second whether it is to end, for as long as we run."""
        await self.on_tick(0)
        await self._stopping.wait()
        # No new ones, and those that are being accepted become connections: closed at this moment, they would be lost unclosed.
        loop = asyncio.get_running_loop()
        for listening in (listener for server in self.servers for listener in server.sockets):
            loop.remove_reader(listening.fileno())
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)

    async def run_on(self, sockets: list[socket.socket]) -> None:
        """Serve on these sockets, which are closed at the end, until `stop`."""
        await self.serve(sockets=sockets)

    def stop(self) -> None:
        """End it: no new connections, and what is under way has `STOP_SECONDS`.

        The library's own `should_exit` would not close what is accepted between its start and its first look.
        """
        self._stopping.set()


def make_server(app: App, patience: float = REQUEST_SECONDS) -> Server:
    """A server of an application; nothing listens yet. `patience` is how long a request may take to arrive (s)."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # who sends nonsense must not fill the log
    config = uvicorn.Config(
        app,
        loop="none",
        http=type("GuardedHere", (Guarded,), {"crowd": Counter(), "patience": patience}),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(REQUEST_SECONDS),
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config)
