"""What must be remembered over ticks, crashes and restarts of the program: ledger, journal, inbox, last decision, audit, evidence.

The process that holds the lock opens the store and writes; commands in other processes join it, to read and to leave words
in the inbox. The store knows rows, not meanings: values are JSON texts whose shape is the caller's business. Audit and evidence
are in `trail.py`.

Every write is one transaction that is on the disk when the call returns (SQLite: WAL, synchronous = FULL), but for a ledger
that may follow later: it survives a kill at once, and a power cut from the next write or `sync` on, because a sync of the log
takes everything before it along. A call that cannot do its part raises `StoreError`, and then the caller must not act. All
methods may be called from any thread; they block for a disk sync, and at most `busy` seconds when another process is writing.
"""

import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from reconciler.core.model.instant import Now
from reconciler.shell.clock import Waiting
from reconciler.shell.store.audit import PRUNE_EVERY, AuditRow, EvidenceRow, Trail
from reconciler.shell.store.database import (
    BUSY_SECONDS,
    FILE,
    check_identity,
    explained,
    identity,
    join_database,
    open_database,
    pragma,
)
from reconciler.shell.store.directory import StoreError

__all__ = ["AuditRow", "Command", "Entry", "EvidenceRow", "Store", "StoreError", "StoredDecision"]

JOURNAL_KEPT = 10_000
INBOX_LIMIT = 1_000
"""More waiting commands than this mean that nobody reads them."""


class Entry(NamedTuple):
    """One journalled action. `outcome` is empty while it is open: begun, and how it ended is not known."""

    id: int
    step: str
    object: str
    action: str
    generation: str
    cause: str
    begun: Now
    ended_wall: int = 0
    outcome: str = ""
    detail: str = ""


class Command(NamedTuple):
    """One word of a person that waits to be folded into the ledger. `payload` is JSON."""

    id: int
    command: str
    payload: str
    who: str
    at: Now


class StoredDecision(NamedTuple):
    """The last decision as JSON, and since when (wall clock, ns) it has been the last one."""

    wall: int
    text: str


class Store(Trail):
    """The open store. Made by `Store.open` or `Store.join`; a context manager that closes itself.

    Attributes:
        recovered: a sentence for the user when a damaged file was set aside on opening, else None.
    """

    def __init__(self, path: Path, db: sqlite3.Connection, clock: Waiting, recovered: str | None, holder: bool) -> None:
        self.recovered = recovered
        self._path = path
        self._db = db
        self._clock = clock
        self._holder = holder
        self._opened = identity(path)
        self._appended = 0
        self._unsynced = False
        self._empty_at: tuple[int, int] | None = None
        self._mutex = threading.RLock()
        self._ledger: dict[tuple[str, str], str] | None = None
        self._decision: str | None = None

    @classmethod
    def open(cls, state_dir: Path, clock: Waiting, busy: float = BUSY_SECONDS) -> Self:
        """Open the store as the holder of the instance's lock: create, upgrade or replace the file as needed.

        Raises:
            StoreError: directory or file cannot be used: a link, missing rights, a full disk, a file of a newer version or of
                another program.
        """
        db, recovered = open_database(state_dir, clock.now().wall, busy=busy)
        return cls(state_dir / FILE, db, clock, recovered, holder=True)

    @classmethod
    def join(cls, state_dir: Path, clock: Waiting, busy: float = BUSY_SECONDS) -> Self:
        """Open the store beside the lock's holder: to read, and to leave commands in the inbox.

        Raises:
            StoreError: no store there yet, a damaged one, one of another version, or it cannot be opened.
        """
        return cls(state_dir / FILE, join_database(state_dir, busy=busy), clock, None, holder=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called again."""
        with self._mutex, explained(self._path):
            self._db.close()

    # --- ledger ---------------------------------------------------------------------------------------------------

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger: (section, key) -> JSON."""
        rows = {(section, key): value for section, key, value in self._read("SELECT section, key, value FROM ledger")}
        with self._mutex:
            self._ledger = dict(rows) if self._holder else None
        return rows

    def ledger_row(self, section: str, key: str) -> str | None:
        """One row of the ledger as JSON; None when there is none."""
        rows = self._read("SELECT value FROM ledger WHERE section = ? AND key = ?", section, key)
        return str(rows[0][0]) if rows else None

    def save_ledger(
        self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = (), *, later: bool = False
    ) -> int:
        """Make the ledger exactly `rows`, writing only what differs; nothing is written when nothing does.

        Args:
            rows: (section, key) -> JSON.
            acknowledge: ids of inbox commands whose effect is in `rows`; they leave the inbox in the same transaction, so
                that a crash neither loses nor repeats one.
            later: do not wait for the disk; the next other write or `sync` does.

        Returns:
            how many rows were written or deleted.
        """
        with self._mutex:
            stored = self._ledger if self._ledger is not None else self.load_ledger()
            changed = [(*key, value) for key, value in rows.items() if stored.get(key) != value]
            gone = [key for key in stored if key not in rows]
            if not (changed or gone or acknowledge):
                return 0
            self._ledger = None  # a failed commit may have reached the disk all the same
            with self._writing(later=later) as db:
                db.executemany("DELETE FROM ledger WHERE section = ? AND key = ?", gone)
                db.executemany("INSERT OR REPLACE INTO ledger (section, key, value) VALUES (?, ?, ?)", changed)
                _forget(db, acknowledge)
            self._ledger = dict(rows)
        return len(changed) + len(gone)

    def sync(self) -> bool:
        """Wait until everything written is on the disk. False when it was already."""
        with self._mutex:
            if not self._unsynced:
                return False
            with self._writing() as db:
                # A transaction that changes nothing writes nothing, and so syncs nothing.
                db.execute(f"PRAGMA user_version = {pragma(db, 'user_version')}")
        return True

    # --- journal --------------------------------------------------------------------------------------------------

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        """Write down that an action is about to be done; it is on the disk when this returns.

        Returns:
            the entry's id, for `end`.
        """
        with self._writing() as db:
            row = db.execute(
                "INSERT INTO journal (step, object, action, generation, cause, wall, steady, boot)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (step_id, object, action, generation, cause, *now),
            )
            added = row.lastrowid or 0
            if added % PRUNE_EVERY == 0:
                db.execute("DELETE FROM journal WHERE id <= ? AND outcome IS NOT NULL", (added - JOURNAL_KEPT,))
        return added

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Write down how an action ended. Raises StoreError also when there is no open entry of that id."""
        if not outcome:
            raise ValueError(f"journal entry {entry}: an empty outcome would leave it open")
        with self._writing() as db:
            done = db.execute(
                "UPDATE journal SET ended_wall = ?, outcome = ?, detail = ? WHERE id = ? AND outcome IS NULL",
                (self._clock.now().wall, outcome, detail, entry),
            )
            if done.rowcount != 1:
                raise StoreError(self._path, f"the journal has no open entry {entry}", "report this as a bug")

    def open_entries(self) -> tuple[Entry, ...]:
        """Actions that were begun and whose outcome is not known, oldest first: what a crash leaves behind."""
        return tuple(map(_entry, self._read(f"{_JOURNAL} WHERE outcome IS NULL ORDER BY id")))

    def entries(self, limit: int = 100) -> tuple[Entry, ...]:
        """The latest `limit` journal entries, oldest first."""
        return tuple(map(_entry, reversed(self._read(f"{_JOURNAL} ORDER BY id DESC LIMIT ?", limit))))

    # --- inbox ----------------------------------------------------------------------------------------------------

    def append(self, command: str, payload: str, who: str, now: Now) -> int:
        """Leave a person's command for the lock's holder; any process may.

        Args:
            command: its name.
            payload: its arguments as JSON.
            who: the person, as they want to be named.
            now: when they said it.

        Returns:
            the command's id: it is carried out once it is no longer in `pending`.
        """
        with self._writing(anybody=True) as db:
            if db.execute("SELECT count(*) FROM inbox").fetchone()[0] >= INBOX_LIMIT:
                raise StoreError(
                    self._path,
                    f"{INBOX_LIMIT} commands are waiting already",
                    "check that reconcile --watch is running and can write its state",
                )
            row = db.execute(
                "INSERT INTO inbox (command, payload, who, wall, steady, boot) VALUES (?, ?, ?, ?, ?, ?)",
                (command, payload, who, *now),
            )
            self._appended += 1
            return row.lastrowid or 0

    def pending(self) -> tuple[Command, ...]:
        """All commands that wait, oldest first.

        Asked at every tick, so an inbox that was empty is read again only when somebody has written since: this object, or
        another connection (SQLite's `data_version`, https://sqlite.org/pragma.html#pragma_data_version).
        """
        ((version,),) = self._read("PRAGMA data_version")
        if (version, self._appended) == self._empty_at:
            return ()
        seen = version, self._appended
        rows = self._read("SELECT id, command, payload, who, wall, steady, boot FROM inbox ORDER BY id")
        self._empty_at = None if rows else seen
        return tuple(Command(id_, command, payload, who, Now(*at)) for id_, command, payload, who, *at in rows)

    def acknowledge(self, ids: Collection[int]) -> None:
        """Take commands out of the inbox that change nothing in the ledger; see `save_ledger` for those that do."""
        if not ids:
            return
        with self._writing() as db:
            _forget(db, ids)

    # --- decision -------------------------------------------------------------------------------------------------

    def put_decision(self, text: str) -> bool:
        """Keep the last decision (JSON) for other processes to read. Unchanged: nothing is written, and False."""
        with self._mutex:
            if self._decision is None:
                last = self.last_decision()
                self._decision = last.text if last else None
            if self._decision == text:
                return False
            self._decision = None
            with self._writing() as db:
                db.execute(
                    "INSERT OR REPLACE INTO decision (id, wall, value) VALUES (1, ?, ?)", (self._clock.now().wall, text)
                )
            self._decision = text
        return True

    def last_decision(self) -> StoredDecision | None:
        """The last decision; None before the first."""
        rows = self._read("SELECT wall, value FROM decision")
        return StoredDecision(*rows[0]) if rows else None

    # --- below ----------------------------------------------------------------------------------------------------

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._mutex, explained(self._path):
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self, anybody: bool = False, later: bool = False) -> Iterator[sqlite3.Connection]:
        if not (self._holder or anybody):
            raise StoreError(
                self._path, "only the process that holds the instance's lock may write this", "report this as a bug"
            )
        with self._mutex, explained(self._path):
            self._db.execute(f"PRAGMA synchronous = {'NORMAL' if later else 'FULL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                check_identity(self._path, self._opened)
                yield self._db
                self._db.execute("COMMIT")
                self._unsynced = later
            except BaseException:
                # After some errors SQLite has already rolled back by itself.
                if self._db.in_transaction:
                    with suppress(sqlite3.Error):
                        self._db.execute("ROLLBACK")
                raise


_JOURNAL = (
    "SELECT id, step, object, action, generation, cause, wall, steady, boot,"
    " coalesce(ended_wall, 0), coalesce(outcome, ''), coalesce(detail, '') FROM journal"
)


def _entry(row: tuple[Any, ...]) -> Entry:
    id_, step, object_, action, generation, cause, wall, steady, boot, ended_wall, outcome, detail = row
    begun = Now(wall, steady, boot)
    return Entry(id_, step, object_, action, generation, cause, begun, ended_wall, outcome, detail)


def _forget(db: sqlite3.Connection, ids: Collection[int]) -> None:
    db.executemany("DELETE FROM inbox WHERE id = ?", [(id_,) for id_ in ids])
