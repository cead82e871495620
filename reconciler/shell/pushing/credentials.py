"""The push credentials of containers, and the key behind them. `wire.py` gives `Credentials` to runtimes and to the listener.

The key is a file of the state directory, mode 0600. The socket has its own directory, which is mounted in containers. Only this
directory is open to every user; the state directory around it keeps other users of the host out.
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
from reconciler.shell.secrets import SECRETS
from reconciler.shell.store.directory import StoreError, explain, open_private, write_private

KEY = "push.key"
READ = "read.token"
"""The file of the token for readers of the listener."""

DIRECTORY = "push"
SOCKET = "push.sock"

MOUNT_PATH = "/run/reconciler"
"""The socket's directory inside containers."""


def load_key(state: Path, name: str = KEY) -> bytes:
    """A key of this instance; created when it does not exist yet.

    A lost push key invalidates the tokens of running containers: their pushes are refused until they are recreated.

    Raises:
        StoreError: the file cannot be read or written, or contains no key.
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
            "it does not contain a key",
            "remove it, and a new one is created; after a new push key, recreate the containers that push with a token",
        )
    return bytes.fromhex(text)


def make_directory(path: Path) -> None:
    """Create the socket's directory. It is never replaced, because containers mount it. Raises StoreError."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o755)
        # Any user inside a container must be able to enter; the state directory around it keeps users of the host out.
        path.chmod(0o755)
    except OSError as error:
        raise explain(path, error) from error


class Credentials:
    """Makes the tokens of one instance."""

    def __init__(self, state: Path, clock: BlockingClock, listener: PushListener | None) -> None:
        """`listener` is the current push listener; `reconciler/web/serving.py` sets it when it changes. Does no I/O."""
        self.state, self.directory = state, state / DIRECTORY
        self.listener = listener
        self._clock = clock
        self._key = b""

    def token(self, generation: str) -> str:
        """The token of a generation. Raises StoreError."""
        self._key = self._key or load_key(self.state)
        return tokens.token(self._key, generation)

    def reader(self) -> str:
        """The token for readers of the listener: 64 hex digits; the file is read each time. Raises StoreError."""
        return load_key(self.state, READ).hex()

    def prepare(self, action: CreateContainer, shares_files: bool) -> CreateContainer:
        """Add environment and mount for pushes to a create action, if there is a listener. Raises Unreachable."""
        listener = self.listener
        if listener is None:
            return action
        generation = tokens.generation(action.name, self._clock.now().wall, secrets.token_bytes(4))
        try:
            secret = self.token(generation)
            make_directory(self.directory)
        except StoreError as error:
            raise Unreachable(
                action.name, f"its push token cannot be created: {error.cause}", error.next_step
            ) from error
        SECRETS.add(secret)
        env = [(PUSH_GENERATION, generation), ("RECONCILER_PUSH_TOKEN", secret)]
        mounts: tuple[Mount, ...] = ()
        if listener.socket:
            directory = str(self.directory) if shares_files else MOUNT_PATH
            env.append(("RECONCILER_PUSH_SOCKET", f"{directory}/{SOCKET}"))
            if not shares_files:
                mounts = (Mount(VolumeKind.BIND, str(self.directory), MOUNT_PATH, read_only=True),)
        if listener.tcp is not None:
            env.append(("RECONCILER_PUSH_URL", url(*listener.tcp)))
        return replace(action, extra_env=tuple(env), extra_mounts=mounts)


def url(address: str, port: int) -> str:
    """The URL of a TCP listener, without a path."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
