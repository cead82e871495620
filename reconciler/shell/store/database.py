"""The file under the store: how it is made, opened, upgraded, checked and, when broken, set aside.

Only the store calls this. A broken file is never deleted and never repaired by guessing: it is renamed, a fresh one takes its
place, and the caller gets a sentence that says so. A fresh file appears under its name only when it is complete.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from reconciler.shell.clock import utc_stamp
from reconciler.shell.store.directory import StoreError, check_state_dir, make_state_dir, open_private, sync_directory
from reconciler.shell.store.schema import MIGRATIONS

FILE = "state.db"
SIDE_FILES = ("-wal", "-shm")
BUSY_SECONDS = 5.0
"""How long to wait for another process that is writing; a write takes milliseconds."""

APPLICATION_ID = 0x7265636F
"""Marks the file as ours ("reco"; the field is SQLite's `application_id`)."""

WAL_BYTES = 4 * 1024 * 1024
"""The write-ahead log is cut back to this size after a checkpoint."""


class Corrupt(StoreError):
    """The file is not the database that was written."""


def open_database(
    state_dir: Path, wall: int, migrations: Sequence[Sequence[str]] = MIGRATIONS, busy: float = BUSY_SECONDS
) -> tuple[sqlite3.Connection, str | None]:
    """Open the file for the one process that holds the lock: create, upgrade or replace it as needed.

    Args:
        state_dir: the instance's directory; created with mode 0700 where it is missing.
        wall: this moment (ns since the epoch), for the name of a file that is set aside.
        migrations: the schema's history.
        busy: how long to wait for another process that is writing, in seconds.

    Returns:
        the connection, and a sentence to show when an earlier file had to be set aside.

    Raises:
        StoreError: directory or file cannot be used and the file is not broken: a link, rights, a full disk, a newer schema,
            somebody else's file.
    """
    make_state_dir(state_dir)
    path = state_dir / FILE
    if not path.exists() and not path.is_symlink():
        told = _set_aside(path, wall, "a log without its database was found") or _told_before(path)
        _create(path, migrations)
        return _open(path, migrations, busy), told
    os.close(open_private(path, os.O_RDWR))
    try:
        return _open(path, migrations, busy), None
    except Corrupt as error:
        told = _set_aside(path, wall, error.cause)
    _create(path, migrations)
    return _open(path, migrations, busy), told


def join_database(
    state_dir: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS, busy: float = BUSY_SECONDS
) -> sqlite3.Connection:
    """Open the file beside the process that holds the lock: nothing is created, upgraded or set aside.

    Raises:
        StoreError: the directory cannot be used, there is no file yet, it is broken, or its schema is not this program's.
    """
    check_state_dir(state_dir)
    path = state_dir / FILE
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise StoreError(path, "it is not a plain file", "move it away")
    if not path.exists():
        raise StoreError(
            state_dir, "nothing has run with this state directory yet", "run reconcile --once or --watch first"
        )
    db = _connect(path, "rw", busy)
    with _closed_on_error(db), explained(path):
        version = _known_version(db, path, migrations)
        if version < len(migrations):
            raise StoreError(
                path,
                f"its schema has version {version} and this program writes version {len(migrations)}",
                "stop the running reconcile and start this version of it, which upgrades the file",
            )
        return db


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises inside into `StoreError` with object, cause and next step."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(path, error) from error


def identity(path: Path) -> tuple[int, int]:
    """Which file the path leads to now: (device, inode). Raises StoreError."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError as error:
        raise _replaced(path) from error
    return found.st_dev, found.st_ino


def check_identity(path: Path, opened: tuple[int, int]) -> None:
    """Refuse to write into a file that was removed or replaced after it was opened: nobody would ever read it again."""
    if identity(path) != opened:
        raise _replaced(path)


def _replaced(path: Path) -> StoreError:
    return StoreError(path, "it was removed or replaced while it was in use", "start reconcile again")


def _connect(path: Path, mode: str, busy: float = BUSY_SECONDS) -> sqlite3.Connection:
    with explained(path):
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=busy,
            isolation_level=None,
            check_same_thread=False,
        )
        with _closed_on_error(db):
            for pragma in (
                "synchronous = FULL",
                "cell_size_check = ON",
                f"journal_size_limit = {WAL_BYTES}",
            ):
                db.execute(f"PRAGMA {pragma}")
            return db


def _open(path: Path, migrations: Sequence[Sequence[str]], busy: float) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise Corrupt(path, "it is empty", "")
    with closing(_connect(path, "ro", busy)) as db, explained(path):
        version = _known_version(db, path, migrations)
    db = _connect(path, "rw", busy)
    with _closed_on_error(db), explained(path):
        found = db.execute("PRAGMA quick_check(1)").fetchone()
        if found != ("ok",):
            raise Corrupt(path, f"it is damaged ({' '.join(str(found[0]).split())})", "")
        _upgrade(db, version, migrations)
        return db


def _known_version(db: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> int:
    if pragma(db, "application_id") != APPLICATION_ID:
        raise StoreError(path, "it is a database of another program", "move it away, or choose another state directory")
    version = pragma(db, "user_version")
    if version > len(migrations):
        raise StoreError(
            path,
            f"its schema has version {version} and this program knows versions up to {len(migrations)}",
            "use the newer reconcile that wrote it, or move the file away to begin without its memory",
        )
    return version


def pragma(db: sqlite3.Connection, name: str) -> int:
    """A number that SQLite keeps for a database."""
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _upgrade(db: sqlite3.Connection, version: int, migrations: Sequence[Sequence[str]]) -> None:
    """Each version in a transaction of its own, its number included: a kill leaves a file of some whole version."""
    for number, statements in enumerate(migrations[version:], start=version + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise


def _create(path: Path, migrations: Sequence[Sequence[str]]) -> None:
    new = path.with_name(f"{FILE}.new")
    try:
        for leftover in (new, *(Path(f"{new}{side}") for side in SIDE_FILES)):
            leftover.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(new, error.strerror or str(error), "remove it by hand") from error
    os.close(open_private(new, os.O_RDWR | os.O_EXCL))
    with closing(_connect(new, "rw")) as db, explained(new):
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _upgrade(db, 0, migrations)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    new.replace(path)
    sync_directory(path.parent)


def _set_aside(path: Path, wall: int, cause: str) -> str | None:
    """Rename the file and what belongs to it. Returns the sentence to show; None when there was nothing to rename."""
    found = [name for name in (path, *(Path(f"{path}{side}") for side in SIDE_FILES)) if name.exists()]
    if not found:
        return None
    base = f"{path}.corrupt-{utc_stamp(wall)}"
    aside, count = base, 1
    while any(Path(f"{aside}{side}").exists() for side in ("", *SIDE_FILES)):
        count += 1
        aside = f"{base}.{count}"
    try:
        for name in found:
            name.replace(f"{aside}{str(name).removeprefix(str(path))}")
    except OSError as error:
        raise StoreError(
            path, f"{cause}, and it cannot be renamed: {error.strerror}", "move it away by hand"
        ) from error
    sync_directory(path.parent)
    return _sentence(path, cause, aside)


def _told_before(path: Path) -> str | None:
    """After a kill between setting the old file aside and making the new one, the sentence is still owed."""
    aside = sorted(path.parent.glob(f"{FILE}.corrupt-*Z"))
    return _sentence(path, "it was found damaged", str(aside[-1])) if aside else None


def _sentence(path: Path, cause: str, aside: str) -> str:
    return (
        f"{path}: {cause}; it was kept as {aside} and a fresh one was begun, so restart counts and back-offs start anew"
    )


def _explain(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Corrupt(
            path, f"it is damaged ({error})", "start reconcile again: it keeps the damaged file and begins a fresh one"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreError(path, f"no space left on its file system{_free(path)}", "make room; nothing was written")
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StoreError(
            path,
            "another process has been writing to it for too long",
            f"try again; if it stays, find who has it open: fuser -v {path}",
        )
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return StoreError(
            path,
            f"it cannot be opened for writing ({error})",
            "check the rights of the file and its directory, and that the file system is not mounted read-only or full",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreError(path, f"a row was refused ({error})", "report this as a bug")
    free = _free(path) if code == sqlite3.SQLITE_IOERR else ""
    return StoreError(path, f"{error} ({name}){free}", "check the file system and the disk, then try again")


def _free(path: Path) -> str:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return ""
    return f" ({room.f_bavail * room.f_frsize // 1024} KiB free)"


@contextmanager
def _closed_on_error(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            db.close()
        raise
