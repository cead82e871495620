"""A relay in front of a name server that sees every message, and can act between two of them or break the connection."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

UPDATE = 5
IXFR = 251
AXFR = 252


def opcode(message: bytes) -> int:
    return message[2] >> 3 & 15


def question_type(message: bytes) -> int:
    at = 12
    while message[at]:
        at += message[at] + 1
    return int.from_bytes(message[at + 1 : at + 3], "big")


class Relay:
    """Forwards messages to `port`.

    `before` is called with each message of the client, before the server gets it. `answers` gets each answer of the server
    with its length before it and returns what the client receives; None breaks the connection. Without a port no server is
    asked, and `answers` gets the client's message instead.
    """

    def __init__(
        self,
        port: int | None,
        before: Callable[[bytes], None] = lambda message: None,
        answers: Callable[[bytes], bytes | None] = lambda framed: framed,
    ) -> None:
        self._server = port
        self._before = before
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.types: list[int] = []
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(60)
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        self._open.append(client)
        with client, suppress(OSError, EOFError):
            if self._server is None:
                self._alone(client)
                return
            with socket.create_connection(("127.0.0.1", self._server), 60) as server:
                self._open.append(server)
                back = threading.Thread(target=self._back, args=(client, server))
                back.start()
                try:
                    while True:
                        message = frame(client)
                        self.types.append(question_type(message[2:]))
                        self._before(message[2:])
                        server.sendall(message)
                finally:
                    with suppress(OSError):
                        server.shutdown(socket.SHUT_RDWR)
                    back.join(60)

    def _alone(self, client: socket.socket) -> None:
        while True:
            answer = self._answers(frame(client))
            if answer is None:
                return
            client.sendall(answer)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                answer = self._answers(frame(server))
                if answer is None:
                    break
                client.sendall(answer)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def frame(connection: socket.socket) -> bytes:
    """One message with its length before it."""
    head = _exactly(connection, 2)
    return head + _exactly(connection, int.from_bytes(head, "big"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found
