"""A relay between the provider and the real API that spoils chosen calls: other answers, partial ones, none."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

Spoil = Callable[["Handler"], None]


class Relay:
    """Passes calls on to `upstream`, but for those that `spoil` (by method) is there for; counts all calls."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.spoil: dict[str, Spoil] = {}
        self.calls: list[str] = []
        self.released = threading.Event()
        relay = self

        class Bound(Handler):
            owner = relay

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    owner: Relay

    def do_GET(self) -> None:
        self._handle()

    def do_PATCH(self) -> None:
        self._handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name of the base class)
        pass

    def _handle(self) -> None:
        self.owner.calls.append(f"{self.command} {self.path}")
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        spoil = self.owner.spoil.get(self.command, forward)
        spoil(self)

    def upstream(self) -> tuple[int, bytes]:
        headers = {"X-API-Key": self.headers["X-API-Key"], "Content-Type": "application/json"}
        request = urllib.request.Request(
            self.owner.upstream + self.path, method=self.command, headers=headers, data=self.body or None
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def reply(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True


def forward(handler: Handler) -> None:
    handler.reply(*handler.upstream())


def answer(status: int, body: bytes = b'{"error": "on purpose"}', **headers: str) -> Spoil:
    """Answer at once; the real server is not asked."""
    return lambda handler: handler.reply(status, body, **headers)


def cut(handler: Handler) -> None:
    """Half of the real answer, then nothing."""
    status, body = handler.upstream()
    handler.reply(status, body[: len(body) // 2], len(body) + 2)


def lose(handler: Handler) -> None:
    """The real server does it, and the answer is lost."""
    handler.upstream()
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """No answer until the test ends."""
    handler.owner.released.wait(30)
    handler.close_connection = True
