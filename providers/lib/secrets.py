"""Secrets as references: a manifest says where a secret is, never what it is. Used by providers that log in somewhere.

A reference is resolved at each use, so that a changed secret counts at once and none is kept. What comes out is a `Secret`,
which has no printed form: a log line, an error or a debugger's view of it shows `***`.
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
"""Secrets above this size are refused: the reference then names a wrong file."""

SHOWN = "***"

_listeners: list[Callable[[str], None]] = []


@contextmanager
def on_resolve(listener: Callable[[str], None]) -> Iterator[None]:
    """Have every secret told to `listener` before anybody else gets it: for the mask over the logs. Any thread may call it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Secret:
    """A secret text. Only `reveal` gives it; every other way to look at it shows `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Give it to nothing that may print it."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")


class SecretRef(Model):
    """Where a secret is: exactly one of `env` and `file`."""

    env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable of the reconciler that holds the secret.",
    )
    file: str | None = Field(
        default=None,
        pattern=r"^/[^\x00]+$",
        description="Absolute path of a file that holds the secret and that not everybody may read.",
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
            target: what needs the secret, for messages.

        Raises:
            Rejected: it is not there, empty, not text, or lies in a file that is no regular file or that everybody may read.
            Unreachable: the file cannot be read just now.
        """
        text = self._from_env(target) if self.env is not None else self._from_file(target)
        text = text.rstrip("\r\n")
        if not text:
            raise Rejected(target, f"the secret in {self} is empty", "put the secret there")
        for listener in tuple(_listeners):
            listener(text)
        return Secret(text)

    def _from_env(self, target: str) -> str:
        text = os.environ.get(self.env or "")
        if text is None:
            raise Rejected(target, f"{self} is not set", "set it where the reconciler is started")
        return text

    def _from_file(self, target: str) -> str:
        try:
            raw = self._read(target)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Rejected(target, f"the secret's {self} does not exist", "create it with mode 0600") from error
        except PermissionError as error:
            raise Rejected(target, f"the secret's {self} may not be read", "make the reconciler its owner") from error
        except OSError as error:
            raise Unreachable(target, f"cannot read the secret's {self}: {error.strerror}") from error
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # Not chained: the error would hold the bytes.
            raise Rejected(target, f"the secret's {self} is not UTF-8 text", "store it as text") from None

    def _read(self, target: str) -> bytes:
        # Links are followed: tools that hand out secrets make them. What counts is the file at their end.
        descriptor = os.open(self.file or "", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise Rejected(target, f"the secret's {self} is not a regular file", "name the file itself")
            if info.st_mode & stat.S_IROTH:
                raise Rejected(target, f"the secret's {self} can be read by everybody", f"chmod o-rwx {self.file}")
            if info.st_size > MAX_BYTES:
                raise Rejected(target, f"the secret's {self} has more than {MAX_BYTES} bytes", "name the right file")
            return os.read(descriptor, MAX_BYTES)
        finally:
            os.close(descriptor)
