"""The loopback address of a replica: each has its own, so that several can listen on one port without network set-up.

Linux answers on all of 127.0.0.0/8 (RFC 1122 section 3.2.1.3). A replica keeps its address from create to remove. Called by
`runtime.py` and `start.py`.
"""

import errno
import socket
from collections.abc import Collection
from hashlib import sha256
from ipaddress import IPv4Network

from providers.errors import Rejected, Unreachable

TRIES = 256
"""Addresses tried at most. More busy ones in a row mean that a process listens on all addresses at once."""


def choose_address(name: str, addresses: IPv4Network, taken: Collection[str], ports: Collection[int]) -> str:
    """The first free address, counted from the hash of `name`, on which all `ports` can be bound now.

    Raises:
        Rejected: a port needs a privilege that this program lacks, or the range is exhausted.
        Unreachable: a port is in use on all addresses that were tried.
    """
    size = addresses.num_addresses - 2  # neither the network's nor the broadcast address
    first = int.from_bytes(sha256(name.encode()).digest()[:8], "big")
    busy = 0
    tries = 0
    for step in range(size):
        address = str(addresses[1 + (first + step) % size])
        if address in taken:
            continue
        tries += 1
        busy = next((port for port in ports if not can_bind(name, address, port)), 0)
        if not busy:
            return address
        if tries == TRIES:
            break
    if busy:
        cause = f"port {busy} is in use on all {tries} loopback addresses that were tried"
        raise Unreachable(name, cause, f"stop the process that listens on 0.0.0.0:{busy}, or declare another port")
    raise Rejected(name, f"all {size} addresses of {addresses} are in use", "set a larger addressRange on the provider")


def can_bind(name: str, address: str, port: int) -> bool:
    """Whether a TCP port can be bound now. Raises Rejected when it never can, Unreachable when that is unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closing connections do not count
            probe.bind((address, port))
    except PermissionError as error:
        raise Rejected(name, f"cannot bind port {port}: {error.strerror}", "declare a port above 1023") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise Unreachable(name, f"cannot test whether {address}:{port} is free: {error.strerror}") from error
    return True
