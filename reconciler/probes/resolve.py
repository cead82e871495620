"""From a host name to addresses, in the child process, without ever holding up its loop.

The system's resolver blocks, so it is asked on a few threads; they sleep in the C library without the interpreter. A name that
is being looked up is not looked up twice. Whoever asks has a deadline of its own and simply stops waiting. Imported with the
first host name.
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
"""Names looked up at a time. A resolver that is gone takes some seconds for each, and what waits is unknown meanwhile."""

MAX_ADDRESSES = 16
"""Addresses of one name that are asked."""

_HOSTS = "/etc/hosts"
_HOSTS_SIZE = 1024 * 1024
_LEAVE = 0.02  # seconds that an idle thread gets to end

T = TypeVar("T")


class Found(NamedTuple):
    """What a name leads to: up to MAX_ADDRESSES addresses, how many more there were, and why there are none."""

    addresses: tuple[str, ...]
    more: int = 0
    problem: str = ""


Lookup = Callable[[str], Found]


def look_up(name: str) -> Found:
    """The addresses of a name, by /etc/hosts, then by the system's resolver. Blocks.

    The name is absolute: no search domain is added, which could lead to another host of the same short name. Addresses of a
    family that this host has no route for are left out, unless there are no others.
    """
    found = _listed(name)
    if not found:
        try:
            answers = socket.getaddrinfo(f"{name}.".encode("ascii"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            return Found((), problem=printable(str(getattr(error, "strerror", "") or error)).lower())
        found = [str(answer[4][0]) for answer in answers]
    distinct = list(dict.fromkeys(found))
    reached = [one for one in distinct if _has_route(one)] or distinct
    return Found(tuple(reached[:MAX_ADDRESSES]), max(0, len(reached) - MAX_ADDRESSES))


def _listed(name: str) -> list[str]:
    """The addresses of a name in /etc/hosts."""
    with suppress(OSError), open(_HOSTS, "rb") as file:
        return listed(file.read(_HOSTS_SIZE).splitlines(), name)
    return []


def listed(lines: Iterable[bytes], name: str) -> list[str]:
    """The addresses that lines of a hosts file give a name."""
    wanted = name.lower().encode()
    found: list[str] = []
    for line in lines:
        words = line.partition(b"#")[0].lower().split()
        if wanted in words[1:]:
            with suppress(OSError, UnicodeError):
                address = words[0].decode()
                socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
                found.append(address)
    return found


def _has_route(address: str) -> bool:
    """Whether this host would know where to send packets for this address. Sends none."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
    except OSError:
        return False
    return True


class Resolver(Generic[T]):
    """Questions and answers. `fd` is readable when `answers` has some. `T` is what the asker wants back with the answer."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._waiting: dict[str, list[T]] = {}
        self._asked: SimpleQueue[str | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[str, Found]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ask(self, name: str, token: T) -> None:
        """Look a name up, unless that is going on already."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(token)
            return
        self._waiting[name] = [token]
        if len(self._threads) < min(THREADS, len(self._waiting)):
            thread = threading.Thread(target=self._work, name=f"resolver-{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._asked.put(name)

    def forget(self, name: str, token: T) -> None:
        """This asker does not wait any more."""
        with suppress(KeyError, ValueError):
            self._waiting[name].remove(token)

    def answers(self) -> list[tuple[T, Found]]:
        """What was found since the last call, for everybody who waits for it."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        found: list[tuple[T, Found]] = []
        while not self._done.empty():
            name, answer = self._done.get()
            found += [(token, answer) for token in self._waiting.pop(name, ())]
        return found

    def close(self) -> None:
        """Let the threads go. One that is in the resolver ends with the process, and `fd` stays open for it until then."""
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join(_LEAVE)
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self.fd)

    def _work(self) -> None:
        while (name := self._asked.get()) is not None:
            try:
                answer = self._lookup(name)
            except Exception as error:  # noqa: BLE001  (whatever it is, somebody waits for an answer)
                answer = Found((), problem=f"{type(error).__name__} in the resolver")
            self._done.put((name, answer))
            os.eventfd_write(self.fd, 1)
