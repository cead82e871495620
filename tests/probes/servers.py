"""Good and misbehaving servers on loopback. Used by the tests of the probe engine."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("self_signed.pem")
NAMED = Path(__file__).with_name("named.pem")
"""Issued by its own authority, valid for web.internal and 127.0.0.1."""

HOLD = 60.0
"""Longest time that a stalling server holds its connection, seconds; it ends with the test."""

Behaviour = Callable[[socket.socket, threading.Event], None]


class Server:
    """Accepts on a port of its own and lets a behaviour handle each connection in a thread."""

    def __init__(self, behaviour: Behaviour, family: int = socket.AF_INET) -> None:
        self.stop = threading.Event()
        self.accepted = 0
        self._behaviour = behaviour
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(64)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self.stop.is_set():
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._handle, args=(conn,))
            self._threads.append(thread)
            thread.start()

    def _handle(self, conn: socket.socket) -> None:
        with conn, suppress(OSError):
            conn.settimeout(HOLD)
            self._behaviour(conn, self.stop)

    def close(self) -> None:
        self.stop.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(HOLD)


@contextmanager
def serving(*behaviours: Behaviour) -> Iterator[list[Server]]:
    """A server for each behaviour, closed afterwards."""
    with ExitStack() as stack:
        servers = [Server(behaviour) for behaviour in behaviours]
        for server in servers:
            stack.callback(server.close)
        yield servers


def read_request(conn: socket.socket) -> bytes:
    """The header of a request."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = conn.recv(4096)
        if not more:
            break
        data += more
    return data


def answers(*parts: bytes, hold: bool = False) -> Behaviour:
    """Reads the request, sends the parts one by one, and closes, or keeps the connection open."""

    def behave(conn: socket.socket, stop: threading.Event) -> None:
        read_request(conn)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            conn.sendall(part)
            stop.wait(0.005)
        if hold:
            stop.wait(HOLD)

    return behave


def closes_at_once(conn: socket.socket, stop: threading.Event) -> None:
    """Accepts, reads and closes."""
    conn.recv(65536)


def never_answers(conn: socket.socket, stop: threading.Event) -> None:
    """Accepts and sends nothing."""
    stop.wait(HOLD)


def answers_without_reading(conn: socket.socket, stop: threading.Event) -> None:
    """Answers and closes without reading, so that the kernel resets the connection."""
    conn.sendall(b"HTTP/1.0 200 OK\r\n\r\nfine")


def endless_body(conn: socket.socket, stop: threading.Event) -> None:
    """A valid header, and then bytes for ever."""
    read_request(conn)
    conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not stop.is_set():
        conn.sendall(b"x" * 4096)


def drips(conn: socket.socket, stop: threading.Event) -> None:
    """A valid header, and a body that continues byte by byte for ever."""
    read_request(conn)
    conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not stop.wait(0.002):
        conn.sendall(b"1\r\nx\r\n")


def hangs_up(conn: socket.socket, stop: threading.Event) -> None:
    """Accepts and closes, like a published port without a listener."""


def resets(conn: socket.socket, stop: threading.Event) -> None:
    """Accepts and resets."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def site(pages: dict[str, bytes]) -> Behaviour:
    """Answers each path with its own page, others with 404."""

    def behave(conn: socket.socket, stop: threading.Event) -> None:
        path = read_request(conn).split(b" ")[1].decode()
        conn.sendall(pages.get(path, b"HTTP/1.1 404 Not Found\r\n\r\n"))

    return behave


def moved(place: str, status: int = 302) -> bytes:
    """A redirect."""
    return f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()


def over_tls(behaviour: Behaviour, certificate: Path = CERTIFICATE, protocol: str = "") -> Behaviour:
    """The same behaviour inside TLS, with a self-signed certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if protocol:
        context.set_alpn_protocols([protocol])

    def behave(conn: socket.socket, stop: threading.Event) -> None:
        with context.wrap_socket(conn, server_side=True) as inner:
            behaviour(inner, stop)

    return behave


def refused_port() -> int:
    """A port of 127.0.0.1 on which nothing listens and that no other process can get meanwhile."""
    return 1


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose connection queue is full, like that of a server that has stopped accepting: connecting hangs."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
