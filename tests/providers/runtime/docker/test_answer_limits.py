"""An engine whose answers never end, are compressed, or are not complete in time: the provider says so and holds little memory."""

import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from providers.errors import ProviderError, Unreachable
from providers.runtime.docker import client
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.logs import read_lines

HEAD = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n"
Answer = Callable[[socket.socket, bytes], None]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[[Answer], EngineClient]]:
    """An engine that answers the question for its version, and everything else as the test says."""
    made: list[tuple[socket.socket, EngineClient]] = []

    def start(answer: Answer) -> EngineClient:
        path = tmp_path / "engine.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(8)

        def serve(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                while question := connection.recv(65536):
                    if b"/version" in question:
                        connection.sendall(HEAD + b'Content-Length: 22\r\n\r\n{"ApiVersion": "1.41"}')
                    else:
                        answer(connection, question)
                        return

        def listen() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        made.append((listener, EngineClient("node", str(path), read_seconds=2.0)))
        return made[-1][1]

    yield start
    for listener, link in made:
        link.close()
        listener.close()


def endless(connection: socket.socket, question: bytes) -> None:
    connection.sendall(HEAD + b"\r\n[")
    while True:
        connection.sendall(b'{"a":"aaaaaaaaaaaaaaa"},' * 5000)


def test_an_answer_without_end_is_unreachable(engine):
    link = engine(endless)
    with pytest.raises(Unreachable, match=f"more than {client.MAX_ANSWER} octets|not complete in time"):
        link.containers("node")


def test_a_refusal_without_end_still_refuses(engine):
    def refuse(connection: socket.socket, question: bytes) -> None:
        connection.sendall(b"HTTP/1.1 500 Broken\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with pytest.raises(ProviderError, match="Broken"):
        engine(refuse).get("/containers/json", "node")


def test_an_answer_that_trickles_ends_with_the_whole_time(engine):
    def trickle(connection: socket.socket, question: bytes) -> None:
        connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.05)

    began = time.monotonic()
    with pytest.raises(Unreachable):
        engine(trickle).containers("node")
    assert time.monotonic() - began < 20


def test_a_compressed_answer_is_not_expanded(engine):
    asked: list[bytes] = []

    def compressed(connection: socket.socket, question: bytes) -> None:
        asked.append(question)
        body = zlib.compress(b" " * (64 * 1024 * 1024))
        connection.sendall(HEAD + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with pytest.raises(Unreachable, match="compressed"):
        engine(compressed).containers("node")
    assert b"Accept-Encoding: identity" in asked[0]


def test_a_log_without_end_is_cut(engine):
    assert read_lines(engine(endless), "web-0", 5) is not None
