"""Secrets: a manifest says where one is, never its text. Used by all that logs in to a server, creates a container or sends a header.

A reference is resolved at each use, so that a changed secret counts at once. A value that costs more than a look at a file is kept in memory with
what it was made from: a file that did not change is not read again, a decrypted one not decrypted again, a command not run again within its
time. The result is a `Secret`, which has no printed form: log lines, errors and debuggers show `***`.

Variables of the environment are those with which this process was started: they never change while it runs.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from pydantic import Field

from manifests.kinds.secret_ref import SecretReference
from manifests.source.encrypted_file import MAX_BYTES as MAX_ENCRYPTED
from manifests.source.files_below import open_below
from manifests.values import ciphertext
from manifests.values.desired import SECOND
from manifests.values.secret_sources import NO_PROGRAMS, SecretCommand, SecretPrograms, SecretSource
from providers.errors import ProviderError, Rejected, Unreachable
from providers.lib import secret_programs
from providers.lib.secret_programs import Decrypted, Sops

MAX_BYTES = 64 * 1024
"""Larger secrets are refused: the reference names a wrong file."""

SHOWN = "***"

RACY = 2 * SECOND
"""Age (ns) of a file's last change below which it is read again at the next use: within one tick of the file system's clock, another change
leaves no trace."""

RETRY = 10 * SECOND
"""Time (ns) before a program that gave no secret is run again on the same input."""

MOST_KEPT = 10_000
"""Most files and programs whose answers are kept: more than the references of any instance."""

_T = TypeVar("_T", bytes, Decrypted)

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


class SecretRef(SecretReference):
    """Where a secret is: exactly one of `env`, `file`, `command`, `credential`, `sops` and `age`."""

    env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable of the `reconcile` process, read once when it starts.",
    )
    file: str | None = Field(
        default=None,
        pattern=r"^/[^\x00]+$",
        description="Absolute path of a file that holds the secret. It must not be world-readable.",
    )

    def __str__(self) -> str:
        return str(self.source())

    def resolve(self, target: str) -> Secret:
        """As `resolve`."""
        return resolve(self.source(), target)


@dataclass(slots=True)
class _Kept:
    """What a file or program gave, and what it was made from.

    Attributes:
        made_from: identity, size and times of the files, and the settings; None = not kept.
        at: instant (ns of the host's clock that goes on in sleep) at which it was made.
        failure: why there is none.
    """

    made_from: object
    at: int
    value: bytes | Decrypted | None = None
    failure: ProviderError | None = None

    def __repr__(self) -> str:
        return "_Kept(***)"


class _Store:
    """The secrets of this process, and how it gets at them. Used from several threads."""

    def __init__(self) -> None:
        self.programs, self.root = NO_PROGRAMS, ""
        self._sops = Sops()
        self._kept: dict[tuple[str, ...], _Kept] = {}
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._guard = threading.Lock()

    # --- one secret -------------------------------------------------------------------------------------------------

    def value(self, source: SecretSource, target: str) -> bytes:
        """The bytes of a secret as they are now. Raises Rejected, Unreachable."""
        if source.env:
            return _from_env(source, target)
        if source.command:
            return self._from_command(source, target)
        if source.encrypted_file:
            return self._decrypted(source, target)
        return self._from_file(source, target)

    def present(self, source: SecretSource) -> bytes | None:
        """As `value`, but no program runs: of a program its last answer. None without one, or when a file cannot be read."""
        if not source.runs_program:
            try:
                return self.value(source, "secret")
            except ProviderError:
                return None
        kept = self._kept.get(_key(source))
        if kept is None or kept.value is None:
            return None
        if isinstance(kept.value, bytes):
            return kept.value
        try:
            return kept.value.value(source, "secret") if kept.value.serves(source) else None
        except ProviderError:
            return None

    # --- files ------------------------------------------------------------------------------------------------------

    def _from_file(self, source: SecretSource, target: str) -> bytes:
        descriptor = _opened(source, target)
        try:
            info = os.fstat(descriptor)
            _check_file(source, info, target)
            key, made_from = _key(source), _identity(info)
            kept = self._kept.get(key)
            if kept is not None and kept.made_from == made_from and isinstance(kept.value, bytes):
                return kept.value
            data = _read_all(descriptor, MAX_BYTES)
            same = _identity(os.fstat(descriptor)) == made_from
        except OSError as error:
            raise Unreachable(target, f"cannot read the secret's {source}: {error.strerror}") from None
        finally:
            os.close(descriptor)
        if same and not _racy(info):
            self._keep(key, _Kept(made_from, _now(), data))
        else:
            self._kept.pop(key, None)
        return data

    # --- programs ---------------------------------------------------------------------------------------------------

    def _from_command(self, source: SecretSource, target: str) -> bytes:
        command = next((known for known in self.programs.commands if known.name == source.command), None)
        if command is None:
            next_step = "define it in secretCommands of the Instance in a local document (--instance)"
            raise Rejected(target, f"there is no {source}", next_step, whole=True)
        with self._alone(_key(source)):
            kept = self._kept.get(_key(source))
            if kept is not None and kept.made_from == command:
                if kept.failure is not None and _now() - kept.at < RETRY:
                    raise _for(kept.failure, target)
                if isinstance(kept.value, bytes) and _now() - kept.at < command.refresh:
                    return kept.value
            return self._made(source, command, lambda: _printed(command, source, target))

    def _decrypted(self, source: SecretSource, target: str) -> bytes:
        key = _key(source)
        settings = self.programs.decryption
        with self._alone(key):
            data, info = self._encrypted(source, target)
            made_from: object = (
                _identity(info),
                settings,
                self.root,
                _identities(settings.sops_identity, settings.identities),
            )
            kept = self._kept.get(key)
            if kept is not None and kept.made_from == made_from:
                if kept.failure is not None and _now() - kept.at < RETRY:
                    raise _for(kept.failure, target)
                if isinstance(kept.value, bytes):
                    return kept.value
                if kept.value is not None and kept.value.serves(source):
                    return kept.value.value(source, target)
            if _racy(info):
                made_from = None
            if source.age_file:
                return self._made(
                    source, made_from, lambda: secret_programs.decrypt_age(source, target, data, settings)
                )
            decrypted = self._made(source, made_from, lambda: self._sops.decrypt(source, target, data, settings))
            return decrypted.value(source, target)

    def _made(self, source: SecretSource, made_from: object, make: Callable[[], _T]) -> _T:
        """What a program gives now, kept with what it was made from; so is its failure."""
        try:
            value = make()
        except ProviderError as error:
            self._keep(_key(source), _Kept(made_from, _now(), failure=error))
            raise
        self._keep(_key(source), _Kept(made_from, _now(), value))
        return value

    def _keep(self, key: tuple[str, ...], kept: _Kept) -> None:
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = kept

    @contextmanager
    def _alone(self, key: tuple[str, ...]) -> Iterator[None]:
        """One program at a time for one secret: threads that need it too get the same answer."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield

    def _encrypted(self, source: SecretSource, target: str) -> tuple[bytes, os.stat_result]:
        """The encrypted file: below the manifests' directory, or at an absolute path. Raises Rejected, Unreachable."""
        path = source.encrypted_file
        try:
            with open(os.open(path, _READ), "rb") if os.path.isabs(path) else open_below(self.root, path) as file:
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode):
                    raise _refused(source, target, "is not a regular file", "set the path of the file itself")
                data = file.read(MAX_ENCRYPTED + 1)
        except (FileNotFoundError, NotADirectoryError):
            where = "" if os.path.isabs(path) else " in the manifests' directory"
            raise _refused(source, target, f"does not exist{where}", "add the encrypted file") from None
        except OSError as error:
            raise Unreachable(target, f"cannot read the secret's {source}: {error.strerror}") from None
        if len(data) > MAX_ENCRYPTED:
            raise _refused(source, target, f"has more than {MAX_ENCRYPTED} bytes", "set the path of the right file")
        return data, info


_store = _Store()


def define(programs: SecretPrograms, root: str | None = None) -> None:
    """Say how this process gets secrets, from now on.

    Args:
        programs: commands and identities of the Instance in force.
        root: the directory of the manifests in force, where encrypted files of the tree are; None = as before.
    """
    _store.programs = programs
    if root is not None:
        _store.root = root


def resolve(source: SecretSource, target: str) -> Secret:
    """The secret as it is now, without line ends at its end.

    Args:
        source: where it is.
        target: the object that needs the secret, for messages.

    Raises:
        Rejected: it does not exist, is empty, no text, ciphertext or a placeholder; or its file is not a regular file or is world-readable.
        Unreachable: the file cannot be read now, or the program gave no answer.
    """
    text = _text(_store.value(source, target), source, target)
    for listener in tuple(_listeners):
        listener(text)
    return Secret(text)


def present(source: SecretSource) -> Secret | None:
    """The secret as far as it is known without running a program; None where it is not, or cannot be used."""
    data = _store.present(source)
    if data is None:
        return None
    try:
        text = _text(data, source, "secret")
    except ProviderError:
        return None
    for listener in tuple(_listeners):
        listener(text)
    return Secret(text)


def _text(data: bytes, source: SecretSource, target: str) -> str:
    """A secret as text, if it can be one. Raises Rejected."""
    marker = ciphertext.marker_of_bytes(data)
    if marker is not None:
        cause = f"the secret in {source} is not usable: it is {marker.name}"
        raise Rejected(target, cause, marker.next_step, whole=True)
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        # Not chained: the error would hold the bytes.
        raise _refused(source, target, "is not UTF-8 text", "store it as UTF-8 text") from None
    if "\0" in text:
        raise _refused(source, target, "has a NUL character, which no variable or header can hold", "store it as text")
    if not text:
        raise Rejected(target, f"the secret in {source} is empty", "write the secret there", whole=True)
    return text


def _key(source: SecretSource) -> tuple[str, ...]:
    """What a source shares with others: all values of a SOPS file are decrypted together."""
    if source.sops_file:
        return ("sops", source.sops_file)
    return tuple(f"{name}:{value}" for name, value in source.fields().items())


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _racy(info: os.stat_result) -> bool:
    """Whether the file changed so shortly ago, or in the future of a clock that was set back, that another change may leave no trace."""
    return time.time_ns() - info.st_ctime_ns < RACY


def _identity(info: os.stat_result) -> tuple[int, ...]:
    """What changes with a file: another one at its place (a rename, another link), or other content in it. Never its times alone."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode


def _identities(sops: str, identities: tuple[tuple[str, str], ...]) -> tuple[object, ...]:
    """The state of the files of identities: another key may decrypt what the one before did not."""
    states: list[object] = []
    for path in sorted({sops, *(path for _, path in identities)} - {""}):
        try:
            states.append((path, _identity(os.stat(path))))
        except OSError:
            states.append((path, None))
    return tuple(states)


def _for(error: ProviderError, target: str) -> ProviderError:
    """The same error for another object."""
    if isinstance(error, Rejected):
        return Rejected(target, error.cause, error.next_step, whole=error.whole)
    return type(error)(target, error.cause, error.next_step)


def _refused(source: SecretSource, target: str, cause: str, next_step: str) -> Rejected:
    return Rejected(target, f"the secret's {source} {cause}", next_step, whole=True)


def _from_env(source: SecretSource, target: str) -> bytes:
    value = os.environb.get(source.env.encode())
    if value is None:
        next_step = "set it in the environment of the reconcile process, and start the process again"
        raise Rejected(target, f"{source} is not set", next_step, whole=True)
    return value


def _opened(source: SecretSource, target: str) -> int:
    """A descriptor of a secret's file, or of a credential. Raises Rejected, Unreachable."""
    try:
        # Links are followed, because secret managers make them. The checks are of the file that they lead to.
        return _credential(source, target) if source.credential else os.open(source.file, _READ)
    except (FileNotFoundError, NotADirectoryError):
        next_step = "add it to LoadCredential= of the unit" if source.credential else "create it with mode 0600"
        raise _refused(source, target, "does not exist", next_step) from None
    except PermissionError:
        cause = f"no permission to read the secret's {source}"
        raise Rejected(target, cause, "make the user of the reconcile process its owner", whole=True) from None
    except OSError as error:
        raise Unreachable(target, f"cannot read the secret's {source}: {error.strerror}") from None


_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def _credential(source: SecretSource, target: str) -> int:
    """A credential is a plain file in the directory that systemd names: neither a path nor a link is followed."""
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")
    if not directory:
        next_step = f"add LoadCredential={source.credential}:/path to the unit, and start it again"
        raise _refused(source, target, "is not here: CREDENTIALS_DIRECTORY is not set", next_step)
    name = source.credential
    if not os.path.isabs(directory) or "/" in name or not name.strip("."):
        raise _refused(source, target, "is no name in an absolute directory", "correct the name")
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.open(name, _READ | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)


def _check_file(source: SecretSource, info: os.stat_result, target: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise _refused(source, target, "is not a regular file", "set the path of the file itself")
    if info.st_mode & stat.S_IROTH:
        next_step = f"run chmod o-rwx {source.file}" if source.file else "let systemd make it: LoadCredential="
        raise _refused(source, target, "is world-readable", next_step)
    if info.st_size > MAX_BYTES:
        raise _refused(source, target, f"has more than {MAX_BYTES} bytes", "set the path of the right file")


def _read_all(descriptor: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(descriptor, limit)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _printed(command: SecretCommand, source: SecretSource, target: str) -> bytes:
    return secret_programs.run_command(command, source, target)
