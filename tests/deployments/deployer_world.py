"""The service and the listener of deployments, on a real socket and a real repository."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from manifests.source.git_url import parse
from manifests.values.desired import SECOND
from reconciler.deployments.policies import Client, Policies
from reconciler.deployments.records import RecordFile
from reconciler.deployments.service import Deployments, Links
from reconciler.deployments.writer import Writer
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.audit import Event
from reconciler.tree import Location
from reconciler.web.deployments import deployment_routes
from reconciler.web.server import make_server
from reconciler.web.sockets import open_tcp
from tests.deployments.written_world import Repository
from tests.free_ports import free_port

TOKEN = "token-of-the-shop-7f3a9c51"
PATIENCE = 60.0


def wall() -> float:
    return SystemClock().now().wall / SECOND


def no_registry(_: object) -> Client:
    raise AssertionError("no registry is asked here")


class World:
    """A service around a repository; `events`, `notes` and `hurried` are what the daemon would get."""

    def __init__(
        self,
        repository: Repository,
        connect: Callable[..., Client] = no_registry,
        gather: float = 0.0,
        state: str = "state",
        path: str = "prod",
    ) -> None:
        self.repository, self.state = repository, repository.base / state
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.hurried: list[str] = []
        self.url = parse(f"{repository.upstream.url}//{path}?ref=main")
        self.writer = Writer(self.url, repository.local, self.state, None, wall)
        links = Links(self.events.append, self.hurried.append, self.notes.append)
        self.seconds = 0.0
        self.policies = Policies(connect, lambda: self.seconds, self.notes.append, gather)
        self.service = Deployments(
            self.writer.write, RecordFile(self.state, self.notes.append), links, wall, self.policies
        )
        self.reload()

    def reload(self) -> None:
        """Put what the repository has now in force, as the loop does."""
        self.service.in_force(Location(self.url, self.repository.local, self.state).load())

    def later(self, seconds: float = 1_000.0) -> None:
        """Let time pass for the policies, and put what the repository has now in force."""
        self.seconds += seconds
        self.reload()

    def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"{what}: {self.notes} {self.events}"
            time.sleep(0.02)

    @contextmanager
    def listening(self) -> Iterator["Sender"]:
        port = free_port()
        started = threading.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            with open_tcp("push", "127.0.0.1", port) as opened:
                routes = deployment_routes(self.service, time.monotonic_ns, slow=0.05, wait=30.0)
                server = make_server(Starlette(routes=routes))
                self.stop = server.stop
                started.set()
                await server.run_on([opened])

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        assert started.wait(PATIENCE)
        try:
            yield Sender(port)
        finally:
            loop.call_soon_threadsafe(self.stop)
            thread.join(PATIENCE)
            self.service.close()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class Sender:
    """A pipeline."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self, method: str, path: str, body: Any = None, token: str = TOKEN, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, data, {"Authorization": f"Bearer {token}", **given})
        reply = connection.getresponse()
        answer = json.loads(reply.read() or b"{}")
        connection.close()
        return reply.status, answer

    def post(self, body: Any, token: str = TOKEN, **headers: str) -> tuple[int, dict[str, Any]]:
        return self.ask("POST", "/v1/deployments", body, token, **headers)


def token_file(place: Path, text: str = TOKEN, name: str = "token") -> Path:
    file = place / name
    file.write_text(f"{text}\n")
    file.chmod(0o600)
    return file
