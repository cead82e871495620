"""The append-only tables of the store: the audit (steps, holds, verdicts, requests) and evidence of failed replicas.

`Audit` is a base of `Store`, which owns the connection and the transactions. Only operators read these tables, with
`reconcile events` and `reconcile explain`.
"""

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from reconciler.shell.store.retention import Retention, Series

AUDIT_KEPT = 50_000
"""Rows of the audit in total, about 20 MB. `retention.py` says which ones."""

PRUNE_EVERY = 256
"""New rows between two prunings: a table holds at most this many rows more than it keeps."""

EVIDENCE_KEPT = 20
"""Pieces of evidence kept per replica: more than four times the restarts in a row that a replica may have."""

EVIDENCE_ALL = 2_000
"""Pieces of evidence kept in total: the size of a piece is capped, so the table stays below about 40 MB."""


class AuditRow(NamedTuple):
    """Who did what, when and why. `wall` is in ns; `plan` is the plan's hash.

    `kind` is `step`, `held`, `released`, `verdict`, `exit`, `removed`, `command`, `request`, `evidence`, `suspended`, `resumed`, `ordered`, `ended`,
    `adopted`, `left` (no longer a replica) or `webhook`. `actor` is the operation, of a `command` the operator. `object` is the key of the subject; it is empty in rows of schema version 1.
    """

    wall: int
    actor: str
    revision: str
    plan: str
    step: str
    cause: str
    outcome: str
    kind: str = "step"
    object: str = ""
    message: str = ""
    origin: str = ""
    """Where it comes from, as `report/origins` writes it; empty in rows of earlier schema versions."""


class EvidenceRow(NamedTuple):
    """What was saved of a replica at an end of its container, or before a step stopped it. `value` is JSON, `wall` is in ns."""

    id: int
    object: str
    wall: int
    value: str


_AUDIT = "wall, actor, revision, plan, step, cause, outcome, kind, object, message, origin"
_INSERT = f"INSERT INTO audit (id, {_AUDIT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  (names of columns)


class Audit(ABC):
    """Reads and writes audit and evidence."""

    _mutex: "threading.RLock"
    _retention: Retention | None = None
    """The rows of the audit, while this object is the only one that writes them; None = read them first."""

    @abstractmethod
    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises StoreError."""

    @abstractmethod
    def _writing(self, any_process: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """One transaction. Raises StoreError."""

    def audit(self, rows: Iterable[AuditRow]) -> None:
        """Append rows to the audit in one transaction; 50,000 are kept, of every object's actions the newest."""
        added = list(rows)
        if not added:
            return
        with self._appending() as (db, retention):
            self._insert(db, retention, added)

    @contextmanager
    def _appending(self) -> Iterator[tuple[sqlite3.Connection, Retention]]:
        """One transaction that appends to the audit. After one that failed, the rows are read again."""
        with self._mutex:
            retention, self._retention = self._retention, None
            with self._writing() as db:
                if retention is None:
                    rows = db.execute("SELECT id, object, kind, step FROM audit ORDER BY id")
                    retention = Retention(AUDIT_KEPT, PRUNE_EVERY, ((id_, Series(*series)) for id_, *series in rows))
                yield db, retention
            self._retention = retention

    @staticmethod
    def _insert(db: sqlite3.Connection, retention: Retention, rows: Iterable[AuditRow]) -> None:
        numbered = [(retention.add(Series(row.object, row.kind, row.step)), *row) for row in rows]
        db.executemany(_INSERT, numbered)
        dropped = retention.drop()
        if dropped:
            db.executemany("DELETE FROM audit WHERE id = ?", [(number,) for number in dropped])

    def audit_rows(self, limit: int = 100) -> tuple[AuditRow, ...]:
        """The latest `limit` rows of the audit, oldest first."""
        return tuple(row for _, row in self.audit_since(limit=limit))

    def audit_since(
        self, *, after: int = 0, wall: int = 0, limit: int = AUDIT_KEPT
    ) -> tuple[tuple[int, AuditRow], ...]:
        """The latest `limit` rows with an id above `after` that are not older than `wall` (ns), oldest first, as (id, row)."""
        rows = self._read(
            f"SELECT id, {_AUDIT} FROM audit WHERE id > ? AND wall >= ? ORDER BY id DESC LIMIT ?",  # noqa: S608
            after,
            wall,
            limit,
        )
        return tuple((row[0], AuditRow(*row[1:])) for row in reversed(rows))

    def audit_last(self) -> int:
        """The id of the latest row; 0 when there is none."""
        return int(self._read("SELECT coalesce(max(id), 0) FROM audit")[0][0])

    def put_evidence(self, audit_row: AuditRow, value: str) -> int:
        """Keep a piece of evidence; the newest 20 per replica are kept, and 2,000 in total.

        Args:
            audit_row: the evidence's row in the audit, with the replica's key and the time of the evidence.
            value: JSON.

        Returns:
            the id of the evidence, for `amend_evidence`.
        """
        with self._appending() as (db, retention):
            self._insert(db, retention, [audit_row])
            row = db.execute(
                "INSERT INTO evidence (object, wall, value) VALUES (?, ?, ?)",
                (audit_row.object, audit_row.wall, value),
            )
            db.execute(
                "DELETE FROM evidence WHERE object = ? AND id NOT IN"
                " (SELECT id FROM evidence WHERE object = ? ORDER BY id DESC LIMIT ?)",
                (audit_row.object, audit_row.object, EVIDENCE_KEPT),
            )
            added = row.lastrowid or 0
            db.execute("DELETE FROM evidence WHERE id <= ?", (added - EVIDENCE_ALL,))
            return added

    def amend_evidence(self, number: int, value: str) -> None:
        """Replace the text of a piece of evidence: the replica's exit is known only after it ended."""
        with self._writing() as db:
            db.execute("UPDATE evidence SET value = ? WHERE id = ?", (value, number))

    def evidence(self, object: str, limit: int = EVIDENCE_KEPT) -> tuple[EvidenceRow, ...]:  # noqa: A002
        """The latest `limit` pieces about a replica, or about all replicas of a workload, oldest first."""
        rows = self._read(
            "SELECT id, object, wall, value FROM evidence WHERE object = ? OR substr(object, 1, ?) = ?"
            " ORDER BY id DESC LIMIT ?",
            object,
            len(object) + 1,
            f"{object}/",
            limit,
        )
        return tuple(EvidenceRow(*row) for row in reversed(rows))


class Event(NamedTuple):
    """One event, with fields of `AuditRow`. The writer of the row adds the revision, and the operation as actor of an event without one."""

    wall: int
    kind: str
    object: str
    step: str
    cause: str
    outcome: str
    message: str
    actor: str = ""
    """The operator, where it is an order of one."""


class HoldKey(NamedTuple):
    """The identity of a hold. The message is no part of it, because its numbers change while the hold lasts."""

    object: str
    action: str
    rule: str


def stored_holds(holds: list[dict[str, str]]) -> dict[HoldKey, str]:
    """The holds of a stored decision, so that a restarted process does not report them again."""
    held: dict[HoldKey, str] = {}
    for hold in holds:
        key = HoldKey(hold["object"], hold["action"], hold["rule"])
        held[key] = f"{held[key]}; {hold['message']}" if key in held else hold["message"]
    return held
