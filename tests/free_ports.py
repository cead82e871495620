"""Ports for servers of the tests. In one place because a port that is free now must still be free when its server starts, or starts again."""

import secrets
import socket


def free_port() -> int:
    """A free port below those that the kernel gives to clients (32768 and up), so that nobody takes it while its server is down.

    Chosen by chance, so that test processes that ask at the same time get different ones.
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
