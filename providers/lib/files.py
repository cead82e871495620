"""Files that other programs read while we write them: one lock, one atomic replacement. Used by the file and zone file providers.

A reader sees the old or the new file, never a part. A kill -9 leaves at most one temporary file per target, which the next
writer removes. The lock is the kernel's (flock), so that it dies with its holder.
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
"""How long a writer waits for another one. Writers hold the lock for one read and one write."""

MAX_BYTES = 256 * 1024 * 1024
"""Files above this size are refused, so that a wrong path cannot fill the memory."""

FILE_MODE = 0o644
"""Mode of new files: they are made for other programs to read, and hold no secrets. Existing files keep mode and owner."""

NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})


def directory_of(target: str, directory: str, state_dir: str) -> Path:
    """The directory a setting names: absolute as it is, relative below the state directory.

    Raises:
        Rejected: a relative one leads out of the state directory, by `..` or by a symbolic link.
    """
    if os.path.isabs(directory):
        return Path(directory)
    root = Path(state_dir).resolve()
    found = root / directory
    if not found.resolve().is_relative_to(root):
        raise Rejected(target, f"the directory {directory!r} leads out of {root}", "name it as an absolute path")
    return found


def read(target: str, path: Path) -> bytes | None:
    """The bytes of a regular file; None when it, or its directory, does not exist.

    Raises:
        Unreachable: it cannot be read. Nothing is known then, so this is never answered with None.
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
                raise Unreachable(target, f"{path} has {info.st_size} bytes, above the limit of {MAX_BYTES}")
            return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise Unreachable(target, f"cannot read {path}: {error.strerror}", _hint(error)) from error


@contextmanager
def locked(target: str, directory: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the directory's lock, creating the directory (0755) and its parents (0700) if needed.

    Raises:
        Unreachable: somebody else held it all the time; nothing was changed.
        Rejected: the directory or its lock file cannot be created.
    """
    descriptor = _open_lock(target, directory)
    try:
        pause = Event()
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                where = directory / LOCK_NAME
                raise Unreachable(target, f"another program has held {where} for {seconds:g} s", "see who writes there")
            pause.wait(0.005)
        yield
    finally:
        os.close(descriptor)


def replace(target: str, path: Path, data: bytes, before: bytes | None) -> None:
    """Put `data` in the place of a file, atomically and durably; call it under the lock of its directory.

    People's editors do not ask for the lock, so the file is compared with `before` (None = it did not exist) once more
    right before it is replaced.

    Raises:
        Conflict: the file is not as `before` any more; nothing was changed.
        Rejected: missing rights, or the path is a link or a directory; nothing was changed.
        Unreachable: the disk is full or broken; nothing was changed.
        OutcomeUnknown: the file is in place, but it is not known to be on disk, or it reads back differently.
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
            raise Conflict(target, f"{path} was changed by somebody else meanwhile", "look again")
        temporary.replace(path)
    except OSError as error:
        raise _failed(target, path, error) from error
    finally:
        # After the replacement there is nothing left to remove.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    try:
        _sync_directory(path.parent)
    except OSError as error:
        raise OutcomeUnknown(target, f"{path} may not be on disk: {error.strerror}", "look at the disk") from error
    if read(target, path) != data:
        raise OutcomeUnknown(target, f"{path} was changed while it was written", "see who else writes to it")


def _hint(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a symbolic link; name the directory of the real file in the settings"
    return "give this user the right to read it" if error.errno in NOT_ALLOWED else ""


def _failed(target: str, path: Path, error: OSError) -> ProviderError:
    cause = f"cannot write {path}: {error.strerror}; nothing was changed"
    if error.errno in NOT_ALLOWED:
        return Rejected(target, cause, "give this user the right to write there")
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
