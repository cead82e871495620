"""Keeps state over ticks, crashes and restarts of the program: ledger, journal, inbox, last decision, audit, evidence.

The process that holds the lock opens the store and writes. Commands in other processes join it, to read and to append to the
inbox. The store handles rows: the shape of the JSON values is the caller's business. Audit and evidence are in `audit.py`.

Every write is one transaction that is on disk when the call returns (SQLite: WAL, synchronous = FULL). The exception is a ledger
saved with `later`: it survives a kill at once, and a power cut after the next write or `sync`, which syncs everything before it.
A call that fails raises `StoreError`, and then the caller must not act. All methods may be called from any thread. They block
for a disk sync, and at most `busy` seconds when another process is writing.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from reconciler.core.model.instant import Now
from reconciler.shell.clock import HostClock
from reconciler.shell.instance_clock import ClockRecord
from reconciler.shell.store.audit import PRUNE_EVERY, Audit, AuditRow, EvidenceRow
from reconciler.shell.store.database_file import (
    BUSY_SECONDS,
    FILE,
    check_identity,
    explained,
    identity,
    join_database,
    open_database,
    open_without_room,
    pragma,
)
from reconciler.shell.store.directory import StoreError, explain
from reconciler.shell.store.document_changes import apply, changes

__all__ = ["AuditRow", "EvidenceRow", "InboxCommand", "JournalEntry", "Store", "StoreError", "StoredDecision"]

JOURNAL_KEPT = 10_000
QUARANTINE_KEPT = 1_000
LEAST_FREE = 16 * 1024
"""Bytes that must be free before a full disk counts as writable again: about one transaction."""
INBOX_LIMIT = 1_000
"""Commands that may wait: more of them mean that no process reads the inbox."""

LEAST_CHANGES = 128 * 1024
"""Changes of a decision that are kept at least before it is written again as a whole (characters): a small one would be else at
every few changes."""


class JournalEntry(NamedTuple):
    """One journalled action. `outcome` is empty while the entry is open: begun, with an unknown outcome."""

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
    origin: str = ""


class InboxCommand(NamedTuple):
    """One command of an operator that waits to be folded into the ledger. `payload` is JSON."""

    id: int
    command: str
    payload: str
    who: str
    at: Now


class QuarantinedRow(NamedTuple):
    """A row of the ledger that could not be decoded, when it was set aside (wall clock, ns), and why."""

    wall: int
    section: str
    key: str
    value: str
    cause: str


class StoredDecision(NamedTuple):
    """The last decision as JSON, and when its latest change was stored (wall clock, ns)."""

    wall: int
    text: str


class _Stored(NamedTuple):
    """The stored decision as a document, and the lengths of the whole one and of the changes since."""

    document: dict[str, Any]
    bytes: int
    change_bytes: int


class Store(Audit):
    """The open store. Made by `Store.open` or `Store.join`; a context manager.

    Attributes:
        clock: of this host.
        recovered: a message for the operator when a damaged file was renamed on opening, else None.
        damaged: section, key and cause of the rows that this process has set aside.
        reduced: why the file could only be opened to read it; None when it can be written.
    """

    def __init__(
        self, path: Path, db: sqlite3.Connection, clock: HostClock, recovered: str | None, holder: bool
    ) -> None:
        self.recovered = recovered
        self.damaged: list[tuple[str, str, str]] = []
        self.reduced: StoreError | None = None
        self._path = path
        self._db = db
        self.clock = clock
        self._holder = holder
        self._opened = identity(path)
        self._appended = 0
        self._unsynced = False
        self._empty_at: tuple[int, int] | None = None
        self._mutex = threading.RLock()
        self._ledger: dict[tuple[str, str], str] | None = None
        self._stored_decision: _Stored | None = None
        self._joined: sqlite3.Connection | None = None

    @classmethod
    def open(cls, state_dir: Path, clock: HostClock, busy: float = BUSY_SECONDS) -> Self:
        """Open the store as the holder of the lock: create, upgrade or replace the file as needed.

        Raises:
            StoreError: the directory or file cannot be used: a link, missing rights, a full disk, a file of a newer version or of
                another program.
        """
        db, recovered = open_database(state_dir, clock.now().wall, busy=busy)
        return cls(state_dir / FILE, db, clock, recovered, holder=True)

    @classmethod
    def open_or_read(cls, state_dir: Path, clock: HostClock, busy: float = BUSY_SECONDS) -> Self:
        """As `open`. A file that has no room to be written is opened to be read, and `reduced` says why.

        Raises:
            StoreError: as `open`, when the file cannot be read either.
        """
        try:
            return cls.open(state_dir, clock, busy)
        except StoreError as error:
            try:
                db = open_without_room(state_dir, busy=busy)
            except StoreError:
                raise error from None
            store = cls(state_dir / FILE, db, clock, None, holder=True)
            store.reduced = error
            return store

    @classmethod
    def join(cls, state_dir: Path, clock: HostClock, busy: float = BUSY_SECONDS) -> Self:
        """Open the store without the lock: to read, and to append commands to the inbox.

        Raises:
            StoreError: the store does not exist, is damaged, has another version, or cannot be opened.
        """
        return cls(state_dir / FILE, join_database(state_dir, busy=busy), clock, None, holder=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._mutex, explained(self._path):
            self._db.close()

    # --- ledger ---------------------------------------------------------------------------------------------------

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger: (section, key) -> JSON. The holder of the lock sets rows aside that are no text any more."""
        rows: dict[tuple[str, str], str] = {}
        damaged: list[tuple[bytes, bytes, bytes]] = []
        for row in self._read("SELECT CAST(section AS BLOB), CAST(key AS BLOB), CAST(value AS BLOB) FROM ledger"):
            try:
                section, key, value = (part.decode() for part in row)
                rows[section, key] = value
            except UnicodeDecodeError:
                damaged.append(row)
        with self._mutex:
            if damaged and self._holder:
                self._set_aside(damaged, "it is not UTF-8 text")
            self._ledger = dict(rows) if self._holder else None
        return rows

    def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Move rows of the ledger that cannot be decoded to the table `quarantine`; `keys` has the cause of each."""
        with self._mutex:
            stored = self._ledger if self._ledger is not None else self.load_ledger()
            self._ledger = None
            for (section, key), cause in keys.items():
                value = stored.get((section, key), "")
                self._set_aside([(section.encode(), key.encode(), value.encode())], cause)

    def quarantined(self) -> tuple[QuarantinedRow, ...]:
        """The rows of the ledger that were set aside, oldest first; bytes that are no text are replaced."""
        rows = self._read("SELECT wall, section, key, value, cause FROM quarantine ORDER BY id")
        return tuple(
            QuarantinedRow(wall, _text(section), _text(key), _text(value), cause)
            for wall, section, key, value, cause in rows
        )

    def _set_aside(self, rows: list[tuple[bytes, bytes, bytes]], cause: str) -> None:
        wall = self.clock.now().wall
        with self._writing() as db:
            db.executemany(
                "INSERT INTO quarantine (wall, section, key, value, cause) VALUES (?, ?, ?, ?, ?)",
                [(wall, *row, cause) for row in rows],
            )
            db.executemany(
                "DELETE FROM ledger WHERE CAST(section AS BLOB) = ? AND CAST(key AS BLOB) = ?",
                [(section, key) for section, key, _ in rows],
            )
            db.execute("DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", (QUARANTINE_KEPT,))
        self.damaged += [(_text(section), _text(key), cause) for section, key, _ in rows]

    def clock_record(self) -> ClockRecord | None:
        """The clock of the instance as it was saved last; None when no process has saved one, or it is damaged."""
        for record in self._read("SELECT lineage, steady, wall, host_steady, boot, machine FROM clock"):
            if all(isinstance(value, str if place in {0, 4, 5} else int) for place, value in enumerate(record)):
                return ClockRecord(*record)
        return None

    def ledger_row(self, section: str, key: str) -> str | None:
        """One row of the ledger as JSON; None when it does not exist."""
        rows = self._read("SELECT value FROM ledger WHERE section = ? AND key = ?", section, key)
        return str(rows[0][0]) if rows else None

    def save_ledger(
        self,
        rows: Mapping[tuple[str, str], str],
        acknowledge: Collection[int] = (),
        *,
        later: bool = False,
        clock: ClockRecord | None = None,
    ) -> int:
        """Make the ledger equal to `rows`; only differences are written.

        Args:
            rows: (section, key) -> JSON.
            acknowledge: ids of inbox commands whose effect is in `rows`. They are deleted in the same transaction, so that
                a crash neither loses nor repeats one.
            later: do not wait for the disk; the next other write or `sync` does.
            clock: the clock of the instance now, to which the moments in `rows` belong. Kept in the same transaction, and only
                when there is something else to write.

        Returns:
            the number of rows written or deleted.
        """
        with self._mutex:
            stored = self._ledger if self._ledger is not None else self.load_ledger()
            changed = [(*key, value) for key, value in rows.items() if stored.get(key) != value]
            gone = [key for key in stored if key not in rows]
            if not (changed or gone or acknowledge):
                return 0
            self._ledger = None  # a failed commit may still have reached the disk
            with self._writing(later=later) as db:
                db.executemany("DELETE FROM ledger WHERE section = ? AND key = ?", gone)
                db.executemany("INSERT OR REPLACE INTO ledger (section, key, value) VALUES (?, ?, ?)", changed)
                _forget(db, acknowledge)
                if clock is not None:
                    db.execute(
                        "INSERT OR REPLACE INTO clock (id, lineage, steady, wall, host_steady, boot, machine)"
                        " VALUES (1, ?, ?, ?, ?, ?, ?)",
                        clock,
                    )
            self._ledger = dict(rows)
        return len(changed) + len(gone)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def unsynced(self) -> bool:
        """Whether `sync` has something to wait for. Only while no other thread writes."""
        return self._unsynced

    def sync(self) -> bool:
        """Wait until everything written is on disk. False when it already was."""
        with self._mutex:
            if not self._unsynced:
                return False
            with self._writing() as db:
                # A transaction without a change writes nothing, and so syncs nothing.
                db.execute(f"PRAGMA user_version = {pragma(db, 'user_version')}")
            self._unsynced = False
        return True

    def check(self) -> None:
        """Write something and wait until it is on disk.

        Raises:
            Replaced: its file is gone, or is another one.
            StoreError: it cannot be written.
        """
        check_identity(self._path, self._opened)
        try:
            room = os.statvfs(self._path.parent)
        except OSError as error:
            raise explain(self._path, error) from error
        if room.f_bavail * room.f_frsize < LEAST_FREE:
            raise StoreError(
                self._path, "no space left on its file system", "free disk space; it is retried automatically"
            )
        with self._mutex:
            self._unsynced = True
            self.sync()

    # --- journal --------------------------------------------------------------------------------------------------

    def begin(
        self,
        step_id: str,
        object: str,  # noqa: A002
        action: str,
        generation: str,
        cause: str,
        now: Now,
        origin: str = "",
    ) -> int:
        """Record that an action is about to be done; the entry is on disk when this returns.

        Args:
            origin: where the step comes from, see `AuditRow`.

        Returns:
            the id of the entry, for `end`.
        """
        with self._writing() as db:
            row = db.execute(
                "INSERT INTO journal (step, object, action, generation, cause, wall, steady, boot, origin)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (step_id, object, action, generation, cause, *now, origin),
            )
            added = row.lastrowid or 0
            if added % PRUNE_EVERY == 0:
                db.execute("DELETE FROM journal WHERE id <= ? AND outcome IS NOT NULL", (added - JOURNAL_KEPT,))
        return added

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of an action. The same outcome once more changes nothing: the first write may have ended unseen.

        Raises StoreError also when no entry of that id is open or has this outcome.
        """
        if not outcome:
            raise ValueError(f"journal entry {entry}: an empty outcome would leave it open")
        with self._writing() as db:
            done = db.execute(
                "UPDATE journal SET ended_wall = ?, outcome = ?, detail = ? WHERE id = ? AND (outcome IS NULL OR outcome = ?)",
                (self.clock.now().wall, outcome, detail, entry, outcome),
            )
            if done.rowcount != 1:
                raise StoreError(self._path, f"the journal has no open entry {entry}", "report this as a bug")

    def open_entries(self) -> tuple[JournalEntry, ...]:
        """Actions that were begun and have no outcome, oldest first. A crash leaves them behind."""
        return tuple(map(_entry, self._read(f"{_JOURNAL} WHERE outcome IS NULL ORDER BY id")))

    def entries(self, limit: int = 100) -> tuple[JournalEntry, ...]:
        """The latest `limit` journal entries, oldest first."""
        return tuple(map(_entry, reversed(self._read(f"{_JOURNAL} ORDER BY id DESC LIMIT ?", limit))))

    # --- inbox ----------------------------------------------------------------------------------------------------

    def append(self, command: str, payload: str, who: str, now: Now) -> int:
        """Append an operator's command for the holder of the lock; any process may.

        Args:
            command: its name.
            payload: its arguments as JSON.
            who: the operator's name.
            now: when the command was given.

        Returns:
            the id of the command. It has been carried out once it is no longer in `pending`.
        """
        with self._writing(any_process=True) as db:
            if db.execute("SELECT count(*) FROM inbox").fetchone()[0] >= INBOX_LIMIT:
                raise StoreError(
                    self._path,
                    f"the inbox is full: {INBOX_LIMIT} commands are waiting",
                    "make sure that reconcile --watch is running and can write its state directory",
                )
            row = db.execute(
                "INSERT INTO inbox (command, payload, who, wall, steady, boot) VALUES (?, ?, ?, ?, ?, ?)",
                (command, payload, who, *now),
            )
            self._appended += 1
            return row.lastrowid or 0

    def pending(self) -> tuple[InboxCommand, ...]:
        """All commands that wait, oldest first.

        Called at every tick, so an inbox that was empty is read again only after a write: of this object, or of another
        connection (SQLite's `data_version`, https://sqlite.org/pragma.html#pragma_data_version).
        """
        ((version,),) = self._read("PRAGMA data_version")
        if (version, self._appended) == self._empty_at:
            return ()
        read_at = version, self._appended
        rows = self._read("SELECT id, command, payload, who, wall, steady, boot FROM inbox ORDER BY id")
        self._empty_at = None if rows else read_at
        return tuple(InboxCommand(id_, command, payload, who, Now(*at)) for id_, command, payload, who, *at in rows)

    def acknowledge(self, ids: Collection[int]) -> None:
        """Delete commands that change nothing in the ledger from the inbox; see `save_ledger` for the others."""
        if not ids:
            return
        with self._writing() as db:
            _forget(db, ids)

    # --- decision -------------------------------------------------------------------------------------------------

    def put_decision(self, document: Mapping[str, Any], ages: Collection[str] = (), *, all_ages: bool = False) -> bool:
        """Store the last decision (an object that JSON can write) for other processes.

        Only what differs from the stored one is written, as a row of changes. Once these rows together are longer than the whole
        decision, it takes their place.

        Args:
            document: the decision.
            ages: names of fields that change without news; see `document_changes.changes`.
            all_ages: store also what only they say.

        Returns:
            False, and nothing is written, when there is nothing to store.
        """
        with self._mutex:
            stored = self._stored_decision or self._load_decision()
            self._stored_decision = None  # a failed commit may still have reached the disk
            text = ""
            if stored is not None:
                changed = changes(stored.document, document, ages, all_ages=all_ages)
                if not changed:
                    self._stored_decision = stored
                    return False
                text = json.dumps(changed)
                if stored.change_bytes + len(text) <= max(stored.bytes, LEAST_CHANGES):
                    with self._writing() as db:
                        db.execute(
                            "INSERT INTO decision_changes (wall, value) VALUES (?, ?)", (self.clock.now().wall, text)
                        )
                    apply(stored.document, json.loads(text))
                    self._stored_decision = stored._replace(change_bytes=stored.change_bytes + len(text))
                    return True
            text = json.dumps(document, sort_keys=True)
            with self._writing() as db:
                db.execute("DELETE FROM decision_changes")
                db.execute(
                    "INSERT OR REPLACE INTO decision (id, wall, value) VALUES (1, ?, ?)", (self.clock.now().wall, text)
                )
            self._stored_decision = _Stored(json.loads(text), len(text), 0)
        return True

    def last_decision(self) -> StoredDecision | None:
        """The last decision, complete; None before the first one. Raises StoreError also when its changes do not fit it."""
        rows = self._decision_rows()
        if not rows:
            return None
        wall, whole = rows[0]
        if len(rows) == 1:
            return StoredDecision(wall, whole)
        return StoredDecision(rows[-1][0], json.dumps(self._changed(rows), sort_keys=True))

    def _decision_rows(self) -> list[tuple[int, str]]:
        """The whole decision and the changes since, as (wall, JSON). One statement, so that it sees one state of the file."""
        rows = self._read(
            "SELECT 0, wall, value FROM decision UNION ALL SELECT id, wall, value FROM decision_changes ORDER BY 1"
        )
        return [(wall, value) for number, wall, value in rows] if rows and rows[0][0] == 0 else []

    def _changed(self, rows: Sequence[tuple[int, str]]) -> dict[str, Any]:
        """The document of these rows."""
        try:
            document: dict[str, Any] = json.loads(rows[0][1])
            for _, value in rows[1:]:
                apply(document, json.loads(value))
        except (LookupError, TypeError, ValueError) as error:
            raise StoreError(
                self._path,
                f"the changes of the last decision do not fit it ({type(error).__name__}: {error})",
                "run reconcile --once or --watch, which stores a new one",
            ) from error
        return document

    def _load_decision(self) -> "_Stored | None":
        """The stored decision, to compare the next one with; None when there is none that can be read."""
        rows = self._decision_rows()
        if not rows:
            return None
        try:
            document = self._changed(rows)
        except StoreError:
            return None
        return _Stored(document, len(rows[0][1]), sum(len(value) for _, value in rows[1:]))

    # --- below ----------------------------------------------------------------------------------------------------

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._mutex, explained(self._path):
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                if not str(error).startswith("Could not decode"):
                    raise
            # A damaged byte must not hide all other rows.
            self._db.text_factory = partial(str, encoding="utf-8", errors="replace")
            try:
                return self._db.execute(query, values).fetchall()
            finally:
                self._db.text_factory = str

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of all writes in the body: a kill leaves all or none of them, and the disk is waited for once."""
        with self._mutex:
            try:
                with self._writing() as db:
                    self._joined = db
                    try:
                        yield
                    finally:
                        self._joined = None
            except BaseException:
                # What was written since is not in the file.
                self._ledger = self._stored_decision = self._retention = None
                raise

    @contextmanager
    def _writing(self, any_process: bool = False, later: bool = False) -> Iterator[sqlite3.Connection]:
        if not (self._holder or any_process):
            raise StoreError(
                self._path, "only the process that holds the instance's lock may write to it", "report this as a bug"
            )
        with self._mutex, explained(self._path):
            if self._joined is not None:
                yield self._joined
                return
            self._db.execute(f"PRAGMA synchronous = {'NORMAL' if later else 'FULL'}")
            self._db.execute("BEGIN IMMEDIATE")
            before = self._db.total_changes
            try:
                check_identity(self._path, self._opened)
                yield self._db
                self._db.execute("COMMIT")
                if self._db.total_changes != before:  # a commit without a change does not wait for the disk
                    self._unsynced = later
            except BaseException:
                # SQLite rolls back by itself after some errors.
                if self._db.in_transaction:
                    with suppress(sqlite3.Error):
                        self._db.execute("ROLLBACK")
                raise


_JOURNAL = (
    "SELECT id, step, object, action, generation, cause, wall, steady, boot,"
    " coalesce(ended_wall, 0), coalesce(outcome, ''), coalesce(detail, ''), origin FROM journal"
)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _entry(row: tuple[Any, ...]) -> JournalEntry:
    id_, step, object_, action, generation, cause, wall, steady, boot, ended_wall, outcome, detail, origin = row
    begun = Now(wall, steady, boot)
    return JournalEntry(id_, step, object_, action, generation, cause, begun, ended_wall, outcome, detail, origin)


def _forget(db: sqlite3.Connection, ids: Collection[int]) -> None:
    db.executemany("DELETE FROM inbox WHERE id = ?", [(id_,) for id_ in ids])
