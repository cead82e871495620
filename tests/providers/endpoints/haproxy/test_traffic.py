"""Requests follow the weights, and a request in flight outlives weight 0 and the release of its slot."""

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from providers.actions import RemoveEndpoint, SetWeight
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.facts import Endpoint
from providers.testing.checks import perform_one
from tests.providers.endpoints.haproxy.server import HAProxy

pytestmark = pytest.mark.server("haproxy")

Make = Callable[..., HAProxyEndpoints]


class App(ThreadingHTTPServer):
    """Answers with its name; `/slow` waits until the test lets it go on."""

    daemon_threads = True

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name = name
        self.entered, self.leave = threading.Event(), threading.Event()
        self.place = Endpoint("127.0.0.1", self.server_address[1])
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.leave.set()
        self.shutdown()
        self.thread.join(60)
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: App

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.server.entered.set()
            self.server.leave.wait(60)
        body = self.server.name.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class Connection(http.client.HTTPConnection):
    """HTTP over HAProxy's front end on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("front", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def get(haproxy: HAProxy, path: str = "/") -> str:
    connection = Connection(haproxy.front)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()
    finally:
        connection.close()


@pytest.fixture
def apps() -> Iterator[list[App]]:
    started = [App("a"), App("b"), App("c")]
    yield started
    for app in started:
        app.stop()


def put(app: App, weight: int, before: int | None = None) -> SetWeight:
    return SetWeight("edge", "web", app.place, app.name, weight, before)


def test_requests_go_where_the_weights_say_from_the_first_one_on(
    haproxy: HAProxy, provider: Make, apps: list[App]
) -> None:
    endpoints = provider(stateFile=haproxy.state)
    a, b, c = apps
    for app, weight in ((a, 30), (b, 10), (c, 0)):
        perform_one(endpoints, put(app, weight))
    assert Counter(get(haproxy) for _ in range(40)) == {"a": 30, "b": 10}
    perform_one(endpoints, put(c, 20, before=0))
    perform_one(endpoints, put(a, 0, before=30))
    assert set(Counter(get(haproxy) for _ in range(30))) == {"b", "c"}
    haproxy.reload()
    seen = Counter(get(haproxy) for _ in range(30))
    assert set(seen) == {"b", "c"}
    assert abs(seen["c"] - 20) <= 2, seen  # the process before may still take one, and it is at another turn


def test_a_request_in_flight_outlives_weight_0_and_its_slots_release(
    haproxy: HAProxy, provider: Make, apps: list[App]
) -> None:
    endpoints = provider()
    a, b, _ = apps
    perform_one(endpoints, put(a, 10))
    answers: list[str] = []
    client = threading.Thread(target=lambda: answers.append(get(haproxy, "/slow")))
    client.start()
    assert a.entered.wait(60)
    perform_one(endpoints, put(b, 10))
    perform_one(endpoints, put(a, 0, before=10))
    assert {get(haproxy) for _ in range(10)} == {"b"}
    perform_one(endpoints, RemoveEndpoint("edge", "web", a.place, "a"))
    assert haproxy.servers("web")["web1"] == ("127.0.0.1:1", 0, 5)
    a.leave.set()
    client.join(60)
    assert answers == ["a"]
