"""Opens the file `state.db`: creates it, upgrades it, checks it, and renames it when it is damaged.

Called only by `state_db.py`. A damaged file is never deleted and never repaired: it is renamed, a new file takes its place, and
the caller gets a message about it. A new file appears under its name only when it is complete.
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
ROLLBACK_FILE = "-journal"
SIDE_FILES = ("-wal", "-shm", ROLLBACK_FILE)
BUSY_SECONDS = 5.0
"""Seconds to wait for another process that is writing; a write takes milliseconds."""

APPLICATION_ID = 0x7265636F
"""SQLite's `application_id` of the file: "reco"."""

_ROW_DAMAGED = "CHECK constraint failed"
"""SQLite's message for a row whose text is damaged in a file that is sound otherwise: the row is set aside alone."""

PAGE_BYTES = 1024
"""SQLite writes whole pages, and most writes here change a few hundred bytes on each of a few pages. Measured by
`bench/state_writes.py`: pages of 4096 bytes, SQLite's default, cost three times as much."""

WAL_BYTES = 4 * 1024 * 1024
"""The write-ahead log is written back to the file when it has this size, and cut back to it."""


class Corrupt(StoreError):
    """The file is damaged: it is not the database that was written."""


class Replaced(StoreError):
    """The file was removed or replaced while it was open: nothing would ever read what is written to it."""


def open_database(
    state_dir: Path, wall: int, migrations: Sequence[Sequence[str]] = MIGRATIONS, busy: float = BUSY_SECONDS
) -> tuple[sqlite3.Connection, str | None]:
    """Open the file for the process that holds the lock: create, upgrade or replace the file as needed.

    Args:
        state_dir: the instance's directory; created with mode 0700 when it is missing.
        wall: the time now (ns since the epoch), for the new name of a damaged file.
        migrations: the schema's history.
        busy: seconds to wait for another process that is writing.

    Returns:
        the connection, and a message for the operator when a damaged file was renamed.

    Raises:
        StoreError: the directory or file cannot be used although the file is not damaged: a link, missing rights, a full disk,
            a newer schema, another program's file.
    """
    make_state_dir(state_dir)
    path = state_dir / FILE
    if not path.exists() and not path.is_symlink():
        message = _set_aside(path, wall, "its log exists without the database") or _unreported(path)
        _create(path, migrations)
        return _open(path, migrations, busy), message
    os.close(open_private(path, os.O_RDWR))
    try:
        return _open(path, migrations, busy), None
    except Corrupt as error:
        message = _set_aside(path, wall, error.cause)
    _create(path, migrations)
    return _open(path, migrations, busy), message


def open_without_room(
    state_dir: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS, busy: float = BUSY_SECONDS
) -> sqlite3.Connection:
    """Open an existing file for the process that holds the lock, on a file system without room for SQLite's shared memory.

    The index of the log is in this process's memory instead, so no other process can open the file meanwhile.

    Raises:
        StoreError: it cannot be read either, or its schema has another version.
    """
    path = state_dir / FILE
    os.close(open_private(path, os.O_RDWR))
    db = _connect(path, "rw", busy, alone=True)
    with _closed_on_error(db), explained(path):
        if _known_version(db, path, migrations) < len(migrations):
            raise StoreError(path, "it has no room for its upgrade", "free disk space")
        return db


def join_database(
    state_dir: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS, busy: float = BUSY_SECONDS
) -> sqlite3.Connection:
    """Open the file while another process may hold the lock: never creates, upgrades or renames it.

    Raises:
        StoreError: the directory cannot be used, the file does not exist or is damaged, or its schema has another version.
    """
    check_state_dir(state_dir)
    path = state_dir / FILE
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise StoreError(path, "it is not a regular file", "move it away")
    if not path.exists():
        raise StoreError(
            state_dir, "reconcile has never run with this state directory", "run reconcile --once or --watch first"
        )
    db = _connect(path, "rw", busy)
    with _closed_on_error(db), explained(path):
        version = _known_version(db, path, migrations)
        if version < len(migrations):
            raise StoreError(
                path,
                f"its schema version is {version}, this program writes version {len(migrations)}",
                "stop the running reconcile and start this version; it upgrades the file",
            )
        return db


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite in the body into `StoreError` with target, cause and next step."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(path, error) from error


def identity(path: Path) -> tuple[int, int]:
    """The file that the path leads to now: (device, inode). Raises Replaced."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError as error:
        raise _replaced(path) from error
    return status.st_dev, status.st_ino


def check_identity(path: Path, opened: tuple[int, int]) -> None:
    """Raise Replaced when the file was removed or replaced after it was opened: nothing would ever read it again."""
    if identity(path) != opened:
        raise _replaced(path)


def _replaced(path: Path) -> Replaced:
    return Replaced(
        path, "it was removed or replaced while reconcile was using it", "restore it, or start reconcile again"
    )


def _connect(path: Path, mode: str, busy: float = BUSY_SECONDS, *, alone: bool = False) -> sqlite3.Connection:
    """A connection. `alone`: without shared memory, before the first read would need it."""
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
                *(["locking_mode = EXCLUSIVE"] if alone else []),
                "synchronous = FULL",
                "cell_size_check = ON",
                f"journal_size_limit = {WAL_BYTES}",
            ):
                db.execute(f"PRAGMA {pragma}")
            return db


def _open(path: Path, migrations: Sequence[Sequence[str]], busy: float) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise Corrupt(path, "it is empty", "")
    # What a killed `_resize_pages` left can be undone only by a connection that may write.
    unfinished = Path(f"{path}{ROLLBACK_FILE}").exists()
    with closing(_connect(path, "rw" if unfinished else "ro", busy)) as db, explained(path):
        version = _known_version(db, path, migrations)
    db = _connect(path, "rw", busy)
    with _closed_on_error(db), explained(path):
        results = [str(row[0]) for row in db.execute("PRAGMA quick_check")]
        broken = next((text for text in results if text != "ok" and not text.startswith(_ROW_DAMAGED)), "")
        if broken:
            raise Corrupt(path, f"it is damaged ({' '.join(broken.split())})", "")
        _upgrade(db, version, migrations)
        _resize_pages(db)
        return db


def _resize_pages(db: sqlite3.Connection) -> None:
    """Give a file of an earlier version the page size of a new one. That only saves writes: where it fails, the file stays as it is.

    The page size changes only outside of WAL mode (https://sqlite.org/pragma.html#pragma_page_size). VACUUM is one transaction.
    """
    if pragma(db, "page_size") != PAGE_BYTES:
        with suppress(sqlite3.Error):
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            db.execute("VACUUM")
    with suppress(sqlite3.Error):
        db.execute("PRAGMA journal_mode = WAL")  # also after a kill in between
    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // pragma(db, 'page_size')}")


def _known_version(db: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> int:
    if pragma(db, "application_id") != APPLICATION_ID:
        raise StoreError(path, "it is a database of another program", "move it away, or choose another state directory")
    version = pragma(db, "user_version")
    if version > len(migrations):
        raise StoreError(
            path,
            f"its schema version is {version}, this program knows versions up to {len(migrations)}",
            "use the newer reconcile that wrote it, or move the file away to start with an empty ledger",
        )
    return version


def pragma(db: sqlite3.Connection, name: str) -> int:
    """The value of one of SQLite's integer pragmas."""
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _upgrade(db: sqlite3.Connection, version: int, migrations: Sequence[Sequence[str]]) -> None:
    """Run each migration in its own transaction, with the version number: after a kill the file has one complete version."""
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
        raise StoreError(new, error.strerror or str(error), "remove it") from error
    os.close(open_private(new, os.O_RDWR | os.O_EXCL))
    with closing(_connect(new, "rw")) as db, explained(new):
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _upgrade(db, 0, migrations)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    new.replace(path)
    sync_directory(path.parent)


def _set_aside(path: Path, wall: int, cause: str) -> str | None:
    """Rename the file and its side files. Returns the message for the operator; None when there is nothing to rename."""
    existing = [file for file in (path, *(Path(f"{path}{side}") for side in SIDE_FILES)) if file.exists()]
    if not existing:
        return None
    base = f"{path}.corrupt-{utc_stamp(wall)}"
    aside, count = base, 1
    while any(Path(f"{aside}{side}").exists() for side in ("", *SIDE_FILES)):
        count += 1
        aside = f"{base}.{count}"
    try:
        for file in existing:
            file.replace(f"{aside}{str(file).removeprefix(str(path))}")
    except OSError as error:
        raise StoreError(path, f"{cause}, and it cannot be renamed: {error.strerror}", "move it away") from error
    sync_directory(path.parent)
    return _message(path, cause, aside)


def _unreported(path: Path) -> str | None:
    """The message about a file that was renamed right before a kill, when there was no time to create the new one."""
    aside = sorted(path.parent.glob(f"{FILE}.corrupt-*Z"))
    return _message(path, "it was damaged", str(aside[-1])) if aside else None


def _message(path: Path, cause: str, aside: str) -> str:
    return (
        f"{path}: {cause}; kept as {aside}, and replaced by an empty file: restart counts and back-offs start at zero"
    )


def _explain(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Corrupt(
            path, f"it is damaged ({error})", "start reconcile again: it renames the damaged file and creates a new one"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreError(
            path, f"no space left on its file system{_free(path)}", "free disk space; nothing was written"
        )
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StoreError(
            path,
            "another process keeps it locked",
            f"try again; if that fails, find the process that has it open: fuser -v {path}",
        )
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return StoreError(
            path,
            f"it cannot be opened for writing ({error})",
            "check the permissions of the file and its directory, and that the file system is neither read-only nor full",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreError(path, f"SQLite refused a row ({error})", "report this as a bug")
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
