"""Lists of containers that Podman spoils when another program removes a container meanwhile.

The race is too rare to be caused at will, so an engine here gives the answers that Podman 4.3.1 gave.
"""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from providers.errors import ProviderError
from providers.runtime.docker.client import LIST_TRIES, EngineClient

SPOILED = '{"cause":"no such container","message":"container f138 does not exist in database: no such container"}'


@contextmanager
def answers(path: Path, lists: list[tuple[int, str]]) -> Iterator[EngineClient]:
    """An engine that answers requests for the list with these in turn, and removes each that it gave."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = lists.pop(0) if "/containers/json" in self.path else (200, '{"ApiVersion": "1.41"}')
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

        def address_string(self) -> str:
            return "unix"

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with closing(EngineClient("local", str(path))) as client:
            yield client
        server.shutdown()


def test_a_list_that_a_removal_spoils_is_read_again(tmp_path: Path) -> None:
    lists = [(500, SPOILED)] * (LIST_TRIES - 1) + [(200, "[]")]
    with answers(tmp_path / "engine.sock", lists) as client:
        assert client.containers("local") == []
    assert not lists


def test_a_list_that_stays_spoiled_is_a_failure_after_a_few_reads(tmp_path: Path) -> None:
    lists = [(500, SPOILED)] * 2 * LIST_TRIES
    with answers(tmp_path / "engine.sock", lists) as client, pytest.raises(ProviderError, match="does not exist"):
        client.containers("local")
    assert len(lists) == LIST_TRIES


def test_other_failures_of_the_list_are_not_repeated(tmp_path: Path) -> None:
    lists = [(500, '{"message": "the disk is full"}')] * LIST_TRIES
    with answers(tmp_path / "engine.sock", lists) as client, pytest.raises(ProviderError, match="disk is full"):
        client.containers("local")
    assert len(lists) == LIST_TRIES - 1
