"""References to secrets: a manifest says where a secret is, never its text. Used by providers that log in to a server.

A reference is resolved at each use, so that a changed secret counts at once and none is kept. The result is a `Secret`, which
has no printed form: log lines, errors and debuggers show `***`.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Self

from pydantic import Field, model_validator

from manifests.kinds.base import Model
from manifests.types.errors import bad_value
from providers.errors import Rejected, Unreachable

MAX_BYTES = 64 * 1024
"""Larger secrets are refused: the reference names a wrong file."""

SHOWN = "***"

_listeners: list[Callable[[str], None]] = []


@contextmanager
def on_resolve(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with every resolved secret before its user gets it: for masking logs. It is called from any thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Secret:
    """A secret text. Only `reveal` returns it; every other form shows `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Do not pass it to code that may print it."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be serialized")


class SecretRef(Model):
    """Where a secret is: exactly one of `env` and `file`."""

    env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable of the `reconcile` process that holds the secret.",
    )
    file: str | None = Field(
        default=None,
        pattern=r"^/[^\x00]+$",
        description="Absolute path of a file that holds the secret. It must not be world-readable.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise bad_value("a secret needs exactly one of env and file", "write {env: NAME} or {file: /path}")
        return self

    def __str__(self) -> str:
        return f"environment variable {self.env}" if self.env is not None else f"file {self.file}"

    def resolve(self, target: str) -> Secret:
        """The secret as it is now, without line ends at its end.

        Args:
            target: the object that needs the secret, for messages.

        Raises:
            Rejected: it does not exist, is empty or not text, or its file is not a regular file or is world-readable.
            Unreachable: the file cannot be read now.
        """
        text = self._from_env(target) if self.env is not None else self._from_file(target)
        text = text.rstrip("\r\n")
        if not text:
            raise Rejected(target, f"the secret in {self} is empty", "write the secret there", whole=True)
        for listener in tuple(_listeners):
            listener(text)
        return Secret(text)

    def _from_env(self, target: str) -> str:
        text = os.environ.get(self.env or "")
        if text is None:
            next_step = "set it in the environment of the reconcile process"
            raise Rejected(target, f"{self} is not set", next_step, whole=True)
        return text

    def _from_file(self, target: str) -> str:
        try:
            raw = self._read(target)
        except (FileNotFoundError, NotADirectoryError) as error:
            cause = f"the secret's {self} does not exist"
            raise Rejected(target, cause, "create it with mode 0600", whole=True) from error
        except PermissionError as error:
            cause, next_step = (
                f"no permission to read the secret's {self}",
                "make the user of the reconcile process its owner",
            )
            raise Rejected(target, cause, next_step, whole=True) from error
        except OSError as error:
            raise Unreachable(target, f"cannot read the secret's {self}: {error.strerror}") from error
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # Not chained: the error would hold the bytes.
            cause = f"the secret's {self} is not UTF-8 text"
            raise Rejected(target, cause, "store it as UTF-8 text", whole=True) from None

    def _read(self, target: str) -> bytes:
        # Links are followed, because secret managers make them. The checks are of the file that they lead to.
        descriptor = os.open(self.file or "", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                cause = f"the secret's {self} is not a regular file"
                raise Rejected(target, cause, "set the path of the file itself", whole=True)
            if info.st_mode & stat.S_IROTH:
                cause = f"the secret's {self} is world-readable"
                raise Rejected(target, cause, f"run chmod o-rwx {self.file}", whole=True)
            if info.st_size > MAX_BYTES:
                cause = f"the secret's {self} has more than {MAX_BYTES} bytes"
                raise Rejected(target, cause, "set the path of the right file", whole=True)
            return os.read(descriptor, MAX_BYTES)
        finally:
            os.close(descriptor)
