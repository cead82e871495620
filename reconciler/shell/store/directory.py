"""The state directory: creates it and its files so that no other user can read or redirect them.

Called by the store, the lock, the push credentials and the push listener before they open a file. Modes are set through
descriptors, so neither the umask nor a concurrent change of the path matters.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATE_FILES = ("state.db", "lock")
"""A directory that holds one of these files is a state directory."""


class StoreError(Exception):
    """The state directory or a file in it cannot be used. The caller must not act, because it could not remember the act.

    Args:
        target: the file or directory.
        cause: what is wrong with it.
        next_step: what the operator can do about it.
    """

    def __init__(self, target: str | Path, cause: str, next_step: str) -> None:
        super().__init__(str(target), cause, next_step)
        self.target = str(target)
        self.cause = cause
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.target}: {self.cause}; {self.next_step}"


def make_state_dir(path: Path) -> None:
    """Make sure that `path` is a directory of mode 0700 that belongs to this user; create it when it is missing.

    A directory that other users may read gets mode 0700 when it is empty or already a state directory. Any other is refused,
    because it may be shared on purpose (`/tmp`, a home directory).

    Raises:
        StoreError: a link, not a directory, another user's, shared, or it cannot be created.
    """
    with _explained(path):
        for missing in reversed([p for p in (path, *path.parents) if not p.exists() and not p.is_symlink()]):
            missing.mkdir(mode=0o700, exist_ok=True)
            with _opened(missing) as fd:
                os.fchmod(fd, 0o700)
    with _opened(path) as fd:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode == 0o700:
            return
        entries = os.listdir(fd)
        if mode & 0o077 and entries and not any(name in entries for name in STATE_FILES):
            raise StoreError(
                path,
                f"other users may enter it (mode {mode:04o}) and it holds files that are not of reconcile",
                f"choose another state directory, or make it private: chmod 700 {path}",
            )
        with _explained(path):
            os.fchmod(fd, 0o700)


def check_state_dir(path: Path) -> None:
    """Make sure that `path` is this user's directory, without creating or changing anything. Raises StoreError."""
    with _opened(path):
        return


def open_private(path: Path, flags: int) -> int:
    """Open a file of the state directory; create it with mode 0600 when it is missing. Close-on-exec; links are refused.

    Args:
        path: the file; its directory was checked before.
        flags: as for `os.open`; create, no-follow and close-on-exec are added.

    Returns:
        the descriptor, which the caller closes.

    Raises:
        StoreError: a link, not a regular file, or it cannot be opened.
    """
    with _explained(path):
        fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        _make_private(path, fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_private(path: Path, fd: int) -> None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(path, "it is not a regular file", "move it away")
    if stat.S_IMODE(status.st_mode) != 0o600:
        with _explained(path):
            os.fchmod(fd, 0o600)


def write_private(path: Path, text: str) -> None:
    """Replace a small file of the state directory atomically: readers see the old text or the new one.

    Raises:
        StoreError: it cannot be written.
    """
    _replace(path, text.encode(), sync=False)


def write_durable(path: Path, data: bytes) -> None:
    """As `write_private`, and on the disk when it returns: after a power cut too, the file has the old content or the new one.

    Raises:
        StoreError: it cannot be written.
    """
    _replace(path, data, sync=True)
    sync_directory(path.parent)


def _replace(path: Path, data: bytes, *, sync: bool) -> None:
    new = path.with_name(f"{path.name}.new")
    fd = open_private(new, os.O_WRONLY | os.O_TRUNC)
    with _explained(path):
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(fd)
        new.replace(path)


def sync_directory(path: Path) -> None:
    """Make files that were created or renamed in a directory survive a power cut. Raises StoreError."""
    with _opened(path) as fd, _explained(path):
        os.fsync(fd)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    with _explained(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(fd).st_uid
        if owner != os.geteuid():
            raise StoreError(
                path,
                f"it belongs to user {owner}, and reconcile runs as user {os.geteuid()}",
                "run reconcile as that user, or choose another state directory",
            )
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(path, error) from error


def explain(path: Path, error: OSError) -> StoreError:
    """The StoreError for an error of the operating system on a file or directory of the state directory."""
    if path.is_symlink():
        return StoreError(path, "it is a symbolic link, which could lead anywhere", "use the real path")
    advice = {
        PermissionError: "give this user access to it, or choose another state directory",
        FileNotFoundError: "run reconcile --once or --watch first, or check the path of the state directory",
        NotADirectoryError: "a part of the path is a file: choose another state directory",
        FileExistsError: "move the file that is in the way, or choose another state directory",
    }.get(type(error), "free disk space or repair the file system, then try again")
    return StoreError(path, error.strerror or str(error), advice)
