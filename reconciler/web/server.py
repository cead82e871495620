"""uvicorn with limits on the number and time of connections per peer, and without its own handling of signals and logs.

A connection without a complete request in time is closed, and so is one above the limit of its peer, so that no peer can keep
others out. Used by `serving.py`.
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
"""Limit of all connections: more than a thousand instances use at a time."""

PER_CONTAINER = 8
"""Limit of one container over the unix socket: its program, a sidecar and a few manual calls."""

PER_ADDRESS = 256
"""Limit of one address over TCP, or of one user over the unix socket outside of containers: many instances may share it."""

REQUEST_SECONDS = 5.0
"""Seconds for a complete request, from the connection or from the previous answer on."""

HEAD_BYTES = 8 * 1024
"""The size limit of the head of a request."""

STOP_SECONDS = 2
"""Seconds for requests under way when the server stops."""


class Guarded(H11Protocol):
    """One connection, with its limits."""

    open_by_peer: ClassVar[Counter[str]]
    """Open connections by peer. A class attribute, because uvicorn creates the objects; each server has its own class."""

    request_seconds: ClassVar[float]
    """Seconds for one request."""

    _peer_key = ""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Identify the peer, and close the connection above a limit."""
        connection = transport.get_extra_info("socket")
        peer = peer_of(connection)
        self.app_state = {**self.app_state, "peer": peer}
        super().connection_made(transport)
        key, limit = _key(peer, transport)
        if self.open_by_peer[key] >= limit or self.open_by_peer.total() >= CONNECTIONS:
            transport.abort()
            return
        self._peer_key = key
        self.open_by_peer[key] += 1
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and keep the deadline of an incomplete request."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._await_request()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection out."""
        self._clear_deadline()
        if self._peer_key:
            self.open_by_peer[self._peer_key] -= 1
            if not self.open_by_peer[self._peer_key]:
                del self.open_by_peer[self._peer_key]
            self._peer_key = ""
        super().connection_lost(exc)

    def _await_request(self) -> None:
        """Start the deadline of a request, unless a request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._clear_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_seconds, self._close)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        self.transport.abort()


def _key(peer: Peer | None, transport: asyncio.Transport) -> tuple[str, int]:
    """The key under which connections of a peer are counted, and their limit."""
    if peer is not None and peer.container:
        return f"container {peer.container}", PER_CONTAINER
    if peer is not None:
        return f"user {peer.uid}", PER_ADDRESS
    name = transport.get_extra_info("peername")
    return f"address {name[0] if isinstance(name, tuple) else ''}", PER_ADDRESS


_ACCEPTING = 4
"""Turns of the event loop from the accept of a connection until its protocol knows it."""


class Server(uvicorn.Server):
    """A server inside the loop's process; the loop handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do not touch signals."""
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for `stop`. The library's own loop would poll ten times a second."""
        await self.on_tick(0)
        await self._stopping.wait()
        # Accept no new connections, and let accepted ones reach their protocol: otherwise they would never be closed.
        loop = asyncio.get_running_loop()
        for listening in (listener for server in self.servers for listener in server.sockets):
            loop.remove_reader(listening.fileno())
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)

    async def run_on(self, sockets: list[socket.socket]) -> None:
        """Serve on these sockets until `stop`; closes them at the end."""
        await self.serve(sockets=sockets)

    def stop(self) -> None:
        """End the server: no new connections; requests under way have `STOP_SECONDS`.

        The library's own `should_exit` would not close connections accepted between its start and its first poll.
        """
        self._stopping.set()


def make_server(app: App, request_seconds: float = REQUEST_SECONDS) -> Server:
    """A server of an application, not listening yet. `request_seconds` is the time limit for a complete request."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # a peer that sends invalid requests must not fill the log
    config = uvicorn.Config(
        app,
        loop="none",
        http=type("GuardedHere", (Guarded,), {"open_by_peer": Counter(), "request_seconds": request_seconds}),
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
