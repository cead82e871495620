"""Ports for servers of the tests. They must still be free when a server starts, or starts again."""

import secrets
import socket


def free_port() -> int:
    """A free port below the kernel's range for clients (32768 and up), so that no client gets it while its server is down.

    Random, so that concurrent test processes get different ports.
    """
    for _ in range(100):
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as streams, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            try:
                streams.bind(("127.0.0.1", port))
                datagrams.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port on 127.0.0.1")
