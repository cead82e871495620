"""The part of the store that tells what happened: the audit (steps, holds, verdicts, requests) and evidence of failed replicas.

A base of `Store`, which has the connection and the transactions; apart from it because these tables are only ever appended to and
read by people (`events`, `explain`).
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

AUDIT_KEPT = 50_000

PRUNE_EVERY = 256
"""Old rows are pruned once per so many new ones: a table holds at most this many more than it keeps."""

EVIDENCE_KEPT = 20
"""Pieces of evidence kept for each replica: more than four times what a replica may be restarted in a row."""

EVIDENCE_ALL = 2_000
"""Pieces of evidence kept in all: with the size of a piece capped, the table stays below some 40 MB."""


class AuditRow(NamedTuple):
    """Who had what done, when and why. `wall` in ns; `plan` is the plan's hash.

    `kind` says what sort of thing it tells: `step`, `held`, `released`, `verdict`, `request`, `evidence`, `adopted` or
    `left` (no replica any more). `object` is the key of what it is about, empty in rows of versions that did not keep it.
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


class EvidenceRow(NamedTuple):
    """What was left of a replica before it was stopped or started again. `value` is JSON, `wall` in ns."""

    id: int
    object: str
    wall: int
    value: str


_AUDIT = "wall, actor, revision, plan, step, cause, outcome, kind, object, message"
_INSERT = f"INSERT INTO audit ({_AUDIT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  (names of columns)


class Trail(ABC):
    """Audit and evidence."""

    @abstractmethod
    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises StoreError."""

    @abstractmethod
    def _writing(self, anybody: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """One transaction. Raises StoreError."""

    def audit(self, rows: Iterable[AuditRow]) -> None:
        """Append to the audit trail, all rows together; the newest 50,000 are kept."""
        added = list(rows)
        if not added:
            return
        with self._writing() as db:
            db.executemany(_INSERT, added)
            newest = int(db.execute("SELECT max(id) FROM audit").fetchone()[0])
            if newest % PRUNE_EVERY < len(added):
                db.execute("DELETE FROM audit WHERE id <= ?", (newest - AUDIT_KEPT,))

    def audit_rows(self, limit: int = 100) -> tuple[AuditRow, ...]:
        """The latest `limit` rows of the audit trail, oldest first."""
        return tuple(row for _, row in self.audit_since(limit=limit))

    def audit_since(
        self, *, after: int = 0, wall: int = 0, limit: int = AUDIT_KEPT
    ) -> tuple[tuple[int, AuditRow], ...]:
        """The latest `limit` rows with a number above `after` and not older than `wall` (ns), oldest first, with their numbers."""
        rows = self._read(
            f"SELECT id, {_AUDIT} FROM audit WHERE id > ? AND wall >= ? ORDER BY id DESC LIMIT ?",  # noqa: S608
            after,
            wall,
            limit,
        )
        return tuple((row[0], AuditRow(*row[1:])) for row in reversed(rows))

    def audit_last(self) -> int:
        """The number of the latest row; 0 before the first."""
        return int(self._read("SELECT coalesce(max(id), 0) FROM audit")[0][0])

    def put_evidence(self, told: AuditRow, value: str) -> int:
        """Keep what was left of a replica; the newest 20 of each replica are kept, and 2,000 in all.

        Args:
            told: its row in the audit, with the replica's key and when it was taken.
            value: JSON.

        Returns:
            its number, for `amend_evidence`.
        """
        with self._writing() as db:
            db.execute(_INSERT, told)
            named = (told.object, told.wall, value)
            row = db.execute("INSERT INTO evidence (object, wall, value) VALUES (?, ?, ?)", named)
            db.execute(
                "DELETE FROM evidence WHERE object = ? AND id NOT IN"
                " (SELECT id FROM evidence WHERE object = ? ORDER BY id DESC LIMIT ?)",
                (told.object, told.object, EVIDENCE_KEPT),
            )
            added = row.lastrowid or 0
            db.execute("DELETE FROM evidence WHERE id <= ?", (added - EVIDENCE_ALL,))
            return added

    def amend_evidence(self, number: int, value: str) -> None:
        """Replace the text of a piece of evidence: how the replica ended is known only after it did."""
        with self._writing() as db:
            db.execute("UPDATE evidence SET value = ? WHERE id = ?", (value, number))

    def evidence(self, object: str, limit: int = EVIDENCE_KEPT) -> tuple[EvidenceRow, ...]:  # noqa: A002
        """The latest `limit` pieces about an object (a replica, or all replicas of a workload), oldest first."""
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
    """One thing that happened. The fields are those of `AuditRow`, whose writer adds who and which revision."""

    wall: int
    kind: str
    object: str
    step: str
    cause: str
    outcome: str
    message: str


class HoldKey(NamedTuple):
    """What makes two holds the same one: not the numbers in its message, which change while it lasts."""

    object: str
    action: str
    rule: str


def known_holds(holds: list[dict[str, str]]) -> dict[HoldKey, str]:
    """The holds of a stored decision, so that a restart of the program does not tell them anew."""
    return {HoldKey(hold["object"], hold["action"], hold["rule"]): hold["message"] for hold in holds}
