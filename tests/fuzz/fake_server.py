"""A server of which the test says what it answers. Only loopback or a unix socket; one thread per connection, closed with the server."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

Talk = Callable[[socket.socket], None]
"""Serves one connection until it is closed."""

PATIENCE = 3.0
"""Longest wait of the server for its client, seconds."""


@contextlib.contextmanager
def serving(talk: Talk, path: Path | None = None) -> Iterator[int]:
    """Serve at a unix socket, or at a free port of 127.0.0.1, which is given."""
    listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
    listener.bind(("127.0.0.1", 0) if path is None else str(path))
    listener.listen(64)
    threads: set[threading.Thread] = set()

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(PATIENCE)
            talk(connection)
        threads.discard(threading.current_thread())

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(connection,), daemon=True)
            threads.add(thread)
            thread.start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield 0 if path is not None else listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [accepting, *threads]:
            thread.join(2 * PATIENCE)


def http_requests(connection: socket.socket) -> Iterator[str]:
    """The target of each request of a connection (`/containers/json?all=1`); bodies are read and dropped."""
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            more = connection.recv(65536)
            if not more:
                return
            buffer += more
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        while len(buffer) < length:
            more = connection.recv(65536)
            if not more:
                return
            buffer += more
        buffer = buffer[length:]
        yield head.split(b" ")[1].decode("ascii", "replace")


def http_answer(body: bytes, kind: str = "application/json", status: int = 200, more: str = "") -> bytes:
    """An answer with its length."""
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body
