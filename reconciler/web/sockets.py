"""Opens the listening sockets for `serving.py` and `metrics_serving.py`: a unix socket for containers of this host, and TCP."""

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manifests.values.desired import PushListener
from reconciler.shell.pushing.credentials import SOCKET, make_directory
from reconciler.shell.store.directory import StoreError, explain

BACKLOG = 512


def open_sockets(listener: PushListener, directory: Path) -> list[socket.socket]:
    """All sockets of a listener, bound and listening.

    Args:
        listener: the addresses.
        directory: the unix socket's own directory, below the state directory. It is created when missing and never replaced,
            because containers mount it.

    Raises:
        StoreError: a socket cannot be opened; the others are closed again.
    """
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        if listener.socket:
            sockets.append(undo.enter_context(_unix(directory)))
        if listener.tcp is not None:
            sockets.append(undo.enter_context(open_tcp("push", *listener.tcp)))
        undo.pop_all()
    return sockets


@contextmanager
def at_directory(directory: Path) -> Iterator[str]:
    """A short path of a directory: a socket path has at most 107 bytes (unix(7)), and state directories may be deep."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _unix(directory: Path) -> socket.socket:
    path = directory / SOCKET
    make_directory(directory)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with at_directory(directory) as short:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{short}/{SOCKET}")  # left by a killed process: this process has the lock now
            made.bind(f"{short}/{SOCKET}")
            # Connecting needs write permission, and containers have their own users; see `make_directory`.
            os.chmod(f"{short}/{SOCKET}", 0o666)  # noqa: S103
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise explain(path, error) from error
    return made


def open_tcp(listener: str, address: str, port: int) -> socket.socket:
    """A listening TCP socket for the `push` or `metrics` of an Instance. Raises StoreError."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        where = f"{listener} listener {address}:{port}"
        field = "push.tcp.listen" if listener == "push" else f"{listener}.listen"
        advice = f"change {field} in the Instance to a free port and an address of this host"
        raise StoreError(where, error.strerror or str(error), advice) from error
    return made
