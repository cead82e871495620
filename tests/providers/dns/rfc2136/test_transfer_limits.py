"""A name server whose transfer never ends: the zone is unknown, and little memory is held."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from providers.dns.rfc2136 import transfer
from providers.dns.rfc2136.connection import Clocks
from providers.dns.rfc2136.read import Server
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.errors import Unreachable

ZONE = "example.test."
SOA = struct.pack("!HHIH", 6, 1, 300, 22) + bytes(2) + struct.pack("!5I", 1, 2, 3, 4, 5)
Message = Callable[[int], tuple[int, bytes]]


def name(text: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in text.rstrip(".").split(".")) + b"\0"


@pytest.fixture
def endless() -> Iterator[Callable[[Message], Server]]:
    """A server that sends a SOA, then the (record count, records) of `message(0)`, `message(1)` and so on, without end."""
    listeners = []

    def start(message: Message) -> Server:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            with suppress(OSError):
                client, _ = listener.accept()
                with client:
                    size = int.from_bytes(client.recv(2, socket.MSG_WAITALL))
                    identity = client.recv(size, socket.MSG_WAITALL)[:2]
                    number = 0
                    while True:
                        count, records = (1, name(ZONE) + SOA) if number == 0 else message(number)
                        body = identity + struct.pack("!5H", 0x8400, 0, count, 0, 0) + records
                        client.sendall(len(body).to_bytes(2) + body)
                        number += 1

        threading.Thread(target=serve, daemon=True).start()
        settings = {"server": "127.0.0.1", "port": listener.getsockname()[1], "timeout": "60s"}
        return Server(RFC2136Settings.model_validate(settings), Clocks(time.monotonic_ns))

    yield start
    for listener in listeners:
        listener.close()


def read(server: Server, bounds: transfer.Bounds) -> None:
    with server.connection() as connection:
        transfer.transfer(server, connection, None, ZONE, bounds)


def texts(number: int) -> tuple[int, bytes]:
    """200 TXT records of 255 octets that are written as four characters each, all of one set."""
    text = bytes([255]) + b"\1" * 251 + number.to_bytes(4)
    return 200, (name(f"a.{ZONE}") + struct.pack("!HHIH", 16, 1, 60, 256) + text) * 200


def test_a_transfer_of_too_many_octets_is_not_used(endless):
    with pytest.raises(Unreachable, match=f"more than {4 << 20} octets"):
        read(endless(texts), transfer.Bounds(octets=4 << 20))


def test_names_and_values_that_are_long_only_here_are_counted(endless):
    with pytest.raises(Unreachable, match=f"more than {4 << 20} characters"):
        read(endless(texts), transfer.Bounds(text=4 << 20))


def test_too_many_records_are_not_used(endless):
    with pytest.raises(Unreachable, match="more than 10000 records"):
        read(endless(texts), transfer.Bounds(records=10_000))
