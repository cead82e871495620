"""What a container gets to push with, and the key behind it. `wire.py` makes one and hands it to runtimes and to the listener.

The key is a file of the state directory, mode 0600. The socket lies in a directory of its own, which is mounted in containers:
it alone is open to every user, and the state directory around it keeps it from other users of this host.
"""

import os
import secrets
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from manifests.values.desired import PushListener
from manifests.values.pod import Mount, VolumeKind
from providers.actions import PUSH_GENERATION, CreateContainer
from providers.errors import Unreachable
from reconciler.push import tokens
from reconciler.shell.clock import BlockingClock
from reconciler.shell.logs import SECRETS
from reconciler.shell.store.directory import StoreError, explain, open_private, write_private

KEY = "push.key"
READ = "read.token"
"""What readers of the listener must show."""

DIRECTORY = "push"
SOCKET = "push.sock"

INSIDE = "/run/reconciler"
"""Where containers find the socket's directory."""


def load_key(state: Path, name: str = KEY) -> bytes:
    """A key of this instance, made when there is none yet.

    A lost push key makes the tokens of running containers worthless: they are refused until they are created anew.

    Raises:
        StoreError: it cannot be read or written, or does not hold a key.
    """
    path = state / name
    fd = open_private(path, os.O_RDWR)
    with os.fdopen(fd, "r", encoding="ascii", errors="replace") as file:
        text = file.read(128).strip()
    if not text:
        text = secrets.token_hex(32)
        write_private(path, text + "\n")
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise StoreError(
            path,
            "it does not hold a key",
            "remove it: a new one is made; with a new push key, containers that push by token need to be created anew",
        )
    return bytes.fromhex(text)


def make_directory(path: Path) -> None:
    """The socket's directory. It is never replaced, because containers have it mounted. Raises StoreError."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o755)
        # Any user inside a container must get through; the state directory around it is closed to those of this host.
        path.chmod(0o755)
    except OSError as error:
        raise explain(path, error) from error


class Credentials:
    """Makes and checks the tokens of one instance."""

    def __init__(self, state: Path, clock: BlockingClock, listener: PushListener | None) -> None:
        """`listener` is where pushes are taken now; whoever listens says so when it moves. Does no I/O yet."""
        self.state, self.directory = state, state / DIRECTORY
        self.listener = listener
        self._clock = clock
        self._key = b""

    def token(self, generation: str) -> str:
        """The token of a generation. Raises StoreError."""
        self._key = self._key or load_key(self.state)
        return tokens.token(self._key, generation)

    def reader(self) -> str:
        """The token of those who read the listener: 64 hex digits, from a file that is read each time. Raises StoreError."""
        return load_key(self.state, READ).hex()

    def prepare(self, action: CreateContainer, shares_files: bool) -> CreateContainer:
        """The action with what the new container needs to push. Without a listener it gets nothing. Raises Unreachable."""
        listener = self.listener
        if listener is None:
            return action
        generation = tokens.generation(action.name, self._clock.now().wall, secrets.token_bytes(4))
        try:
            secret = self.token(generation)
            make_directory(self.directory)
        except StoreError as error:
            raise Unreachable(action.name, f"cannot make its push token: {error.cause}", error.next_step) from error
        SECRETS.add(secret)
        env = [(PUSH_GENERATION, generation), ("RECONCILER_PUSH_TOKEN", secret)]
        mounts: tuple[Mount, ...] = ()
        if listener.socket:
            where = str(self.directory) if shares_files else INSIDE
            env.append(("RECONCILER_PUSH_SOCKET", f"{where}/{SOCKET}"))
            if not shares_files:
                mounts = (Mount(VolumeKind.BIND, str(self.directory), INSIDE, read_only=True),)
        if listener.tcp is not None:
            env.append(("RECONCILER_PUSH_URL", url(*listener.tcp)))
        return replace(action, extra_env=tuple(env), extra_mounts=mounts)


def url(address: str, port: int) -> str:
    """The URL of a TCP listener, without a path."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
