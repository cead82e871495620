"""Good and misbehaving gRPC health servers, built on the HTTP/2 library. Used by the tests of the probe engine."""

import socket
import threading
from collections.abc import Sequence

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError

from tests.probes.servers import Behaviour

SERVING, NOT_SERVING = 1, 2
GRPC_HEADERS = ((":status", "200"), ("content-type", "application/grpc"))
OK_TRAILERS = (("grpc-status", "0"),)

Headers = Sequence[tuple[str, str]]


def message(status: int) -> bytes:
    """A HealthCheckResponse as a gRPC message."""
    body = b"\x08" + bytes((status,)) if status else b""
    return b"\0" + len(body).to_bytes(4, "big") + body


class Call:
    """The one call that a server received on a connection."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""


def health(
    body: bytes | None = None,
    headers: Headers = GRPC_HEADERS,
    trailers: Headers | None = OK_TRAILERS,
    *,
    calls: list[Call] | None = None,
    reset: bool = False,
    goaway: bool = False,
    pings: int = 0,
    hold: bool = False,
) -> Behaviour:
    """Answers the call: headers, `body` (by default SERVING), trailers. The flags make it misbehave instead."""
    answer_body = message(SERVING) if body is None else body

    def behave(conn: socket.socket, stop: threading.Event) -> None:
        http2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        http2.initiate_connection()
        conn.sendall(http2.data_to_send())
        call = Call()
        while not stop.is_set():
            data = conn.recv(65536)
            if not data:
                return
            try:
                events = http2.receive_data(data)
            except ProtocolError:
                return
            for event in events:
                if isinstance(event, RequestReceived):
                    call.headers = dict(event.headers)
                elif isinstance(event, DataReceived):
                    call.body += event.data
                elif isinstance(event, StreamEnded):
                    if calls is not None:
                        calls.append(call)
                    answer(http2)
            conn.sendall(http2.data_to_send())

    def answer(http2: H2Connection) -> None:
        for number in range(pings):
            http2.ping(number.to_bytes(8, "big"))
        if hold:
            return
        if goaway:
            http2.close_connection(11)
            return
        if reset:
            http2.reset_stream(1, 7)
            return
        only_trailers = trailers is None
        http2.send_headers(1, list(headers), end_stream=only_trailers)
        if only_trailers:
            return
        if answer_body:
            http2.send_data(1, answer_body)
        http2.send_headers(1, list(trailers or ()), end_stream=True)

    return behave
