"""Files that other programs read while we write them: a lock and an atomic replacement. Used by providers that write files.

A reader sees the old or the new file, never a part. A kill -9 leaves at most one temporary file per target, which the next
writer removes. The kernel holds the lock (flock), so that it ends with the process.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected, Unreachable

LOCK_NAME = ".reconciler.lock"
LOCK_SECONDS = 5.0
"""Longest time that a writer waits for another one. A writer holds the lock for one read and one write."""

MAX_BYTES = 256 * 1024 * 1024
"""Larger files are refused, so that a wrong path cannot fill the memory."""

FILE_MODE = 0o644
"""Mode of new files: other programs read them, and they hold no secrets. Existing files keep mode and owner."""

NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})


def directory_of(target: str, directory: str, state_dir: str) -> Path:
    """The directory that a setting names: an absolute path as it is, a relative one below the state directory.

    Raises:
        Rejected: a relative path leaves the state directory, by `..` or by a symbolic link.
    """
    if os.path.isabs(directory):
        return Path(directory)
    root = Path(state_dir).resolve()
    path = root / directory
    if not path.resolve().is_relative_to(root):
        raise Rejected(target, f"directory {directory!r} is outside {root}", "write it as an absolute path", whole=True)
    return path


def read(target: str, path: Path) -> bytes | None:
    """The bytes of a regular file; None when it, or its directory, does not exist.

    Raises:
        Unreachable: the file cannot be read. That is never answered with None, because its content is unknown.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreachable(target, f"cannot read {path}: {error.strerror}", _hint(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        # `os.fdopen` would raise an error of its own on a directory.
        os.close(descriptor)
        raise Unreachable(target, f"{path} is not a regular file", "move it away")
    with os.fdopen(descriptor, "rb") as file:
        try:
            info = os.fstat(descriptor)
            if info.st_size > MAX_BYTES:
                raise Unreachable(target, f"{path} has {info.st_size} bytes; the limit is {MAX_BYTES}")
            return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise Unreachable(target, f"cannot read {path}: {error.strerror}", _hint(error)) from error


@contextmanager
def locked(target: str, directory: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the directory's lock, creating the directory (0755) and its parents (0700) if needed.

    Raises:
        Unreachable: another program held the lock all the time; nothing was changed.
        Rejected: the directory or its lock file cannot be created.
    """
    descriptor = _open_lock(target, directory)
    try:
        pause = Event()
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                where = directory / LOCK_NAME
                raise Unreachable(
                    target, f"another program has held {where} for {seconds:g} s", "find the program that writes there"
                )
            pause.wait(0.005)
        yield
    finally:
        os.close(descriptor)


def replace(target: str, path: Path, data: bytes, before: bytes | None) -> None:
    """Replace a file with `data`, atomically and durably. Call it under the lock of its directory.

    Editors do not take the lock, so the file is compared with `before` (None = it did not exist) once more right before the
    replacement.

    Raises:
        Conflict: the file differs from `before`; nothing was changed.
        Rejected: missing rights, or the path is a link or a directory; nothing was changed.
        Unreachable: the disk is full or broken; nothing was changed.
        OutcomeUnknown: the file is in place, but may not be on disk, or reads back differently.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        _write_temporary(temporary, path, data)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _failed(target, path, error) from error
    try:
        if read(target, path) != before:
            raise Conflict(target, f"another writer has changed {path}", "retried automatically")
        temporary.replace(path)
    except OSError as error:
        raise _failed(target, path, error) from error
    finally:
        # After the replacement there is no temporary file.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    try:
        _sync_directory(path.parent)
    except OSError as error:
        raise OutcomeUnknown(target, f"{path} may not be on disk: {error.strerror}", "check the disk") from error
    if read(target, path) != data:
        raise OutcomeUnknown(target, f"{path} changed while it was written", "find the other program that writes to it")


def _hint(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a symbolic link: set the directory of the real file in the settings"
    return "give this user read permission" if error.errno in NOT_ALLOWED else ""


def _failed(target: str, path: Path, error: OSError) -> ProviderError:
    cause = f"cannot write {path}: {error.strerror}; nothing was changed"
    if error.errno in NOT_ALLOWED:
        return Rejected(target, cause, "give this user write permission there", whole=True)
    return Unreachable(target, cause, "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "")


def _open_lock(target: str, directory: Path) -> int:
    try:
        for parent in reversed(directory.parents):
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)
        directory.mkdir(mode=0o755, exist_ok=True)
        return os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _failed(target, directory / LOCK_NAME, error) from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_temporary(temporary: Path, path: Path, data: bytes) -> None:
    """Write the new content beside the file, with the mode and owner of the old one."""
    temporary.unlink(missing_ok=True)
    try:
        old = path.lstat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.ELOOP, "it is not a regular file")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) if old is not None else FILE_MODE)
        os.fsync(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
