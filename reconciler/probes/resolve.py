"""Resolves host names in the child process without blocking its loop. `named.py` imports it with the first host name.

The system's resolver blocks, so a few threads call it; they wait in the C library without holding the interpreter lock. Concurrent
questions about one name share one look-up. Each caller has a deadline of its own and stops waiting by `forget`.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from reconciler.probes.slot import printable

THREADS = 8
"""Names looked up at a time. Without a resolver each takes some seconds, and probes that wait are unknown meanwhile."""

MAX_ADDRESSES = 16
"""Most addresses of one name that a probe connects to."""

_HOSTS = "/etc/hosts"
_HOSTS_SIZE = 1024 * 1024
_JOIN_TIMEOUT = 0.02  # seconds in which an idle thread may end

T = TypeVar("T")


class Resolution(NamedTuple):
    """The addresses of a name: up to MAX_ADDRESSES, how many more were left out, and why there are none."""

    addresses: tuple[str, ...]
    unprobed: int = 0
    problem: str = ""


Lookup = Callable[[str], Resolution]


def look_up(name: str) -> Resolution:
    """The addresses of a name from /etc/hosts, else from the system's resolver. Blocks.

    The name is absolute: a search domain could lead to another host of the same short name. Addresses of a family without a route
    from this host are left out, unless there are no others.
    """
    addresses = _from_hosts_file(name)
    if not addresses:
        try:
            answers = socket.getaddrinfo(f"{name}.".encode("ascii"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            return Resolution((), problem=printable(str(getattr(error, "strerror", "") or error)).lower())
        addresses = [str(answer[4][0]) for answer in answers]
    distinct = list(dict.fromkeys(addresses))
    routable = [address for address in distinct if _has_route(address)] or distinct
    return Resolution(tuple(routable[:MAX_ADDRESSES]), max(0, len(routable) - MAX_ADDRESSES))


def _from_hosts_file(name: str) -> list[str]:
    """The addresses of a name in /etc/hosts."""
    with suppress(OSError), open(_HOSTS, "rb") as file:
        return hosts_addresses(file.read(_HOSTS_SIZE).splitlines(), name)
    return []


def hosts_addresses(lines: Iterable[bytes], name: str) -> list[str]:
    """The addresses of a name in the lines of a hosts file."""
    wanted = name.lower().encode()
    addresses: list[str] = []
    for line in lines:
        fields = line.partition(b"#")[0].lower().split()
        if wanted in fields[1:]:
            with suppress(OSError, UnicodeError):
                address = fields[0].decode()
                socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
                addresses.append(address)
    return addresses


def _has_route(address: str) -> bool:
    """Whether this host has a route to this address. Sends no packets."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
    except OSError:
        return False
    return True


class Resolver(Generic[T]):
    """Looks names up on threads. `fd` is readable when `answers` has some. `T` is a token that comes back with the answer."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._waiting: dict[str, list[T]] = {}
        self._questions: SimpleQueue[str | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[str, Resolution]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ask(self, name: str, token: T) -> None:
        """Look a name up, unless a look-up of it is under way."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(token)
            return
        self._waiting[name] = [token]
        if len(self._threads) < min(THREADS, len(self._waiting)):
            thread = threading.Thread(target=self._work, name=f"resolver-{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._questions.put(name)

    def forget(self, name: str, token: T) -> None:
        """Stop waiting for an answer."""
        with suppress(KeyError, ValueError):
            self._waiting[name].remove(token)

    def answers(self) -> list[tuple[T, Resolution]]:
        """The answers since the last call, one for each token that waits for it."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        answers: list[tuple[T, Resolution]] = []
        while not self._done.empty():
            name, resolution = self._done.get()
            answers += [(token, resolution) for token in self._waiting.pop(name, ())]
        return answers

    def close(self) -> None:
        """End the threads. A thread in the resolver ends with the process; `fd` stays open for it until then."""
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT)
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self.fd)

    def _work(self) -> None:
        while (name := self._questions.get()) is not None:
            try:
                resolution = self._lookup(name)
            except Exception as error:  # noqa: BLE001  (a probe waits for an answer, whatever the error is)
                resolution = Resolution((), problem=f"{type(error).__name__} in the resolver")
            self._done.put((name, resolution))
            os.eventfd_write(self.fd, 1)
