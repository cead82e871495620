"""The tables of the state file: the statements that upgrade each schema version to the next. Used by `database_file.py`."""

from collections.abc import Mapping

RULES = {
    "Ordered": "Overridden",
    "Amnesic": "LedgerLost",
    "InFlight": "RestartInProgress",
    "RestartsInFlight": "NodeRestartLimit",
    "AttemptsSpent": "RestartLimit",
    "WeightLossRate": "WeightRemovalLimit",
    "RevisionOver": "RevisionNotEligible",
}
"""Rules of holds: the names before schema 3 -> the names now."""

REASONS = {"DrainedByHand": "DrainedByOperator"}
"""Reasons: the names before schema 3 -> the names now."""

SECTIONS = {"taken": "taken_over", "leaving": "exit_times"}
"""Sections of the ledger: the names before schema 3 -> the names now."""


WAITS = {
    "ready": "readiness",
    "probe verdict": "probe result",
    "name withdrawn": "DNS withdrawal",
    "weight 0 read back": "weight 0 in the balancer",
    "dead endpoint at weight 0": "stale endpoint at weight 0",
    "replacement available": "available replacement",
    "node readable": "readable node",
    "call under way": "call in progress",
    "revision verified": "revision verification",
    "weight read back": "weight in the balancer",
    "the balancer's own checks": "balancer health checks",
}
"""Waits of the stored decision: the names before schema 3 -> the names now."""


def _renamed(
    rules: Mapping[str, str], reasons: Mapping[str, str], sections: Mapping[str, str], waits: Mapping[str, str]
) -> tuple[str, ...]:
    """Statements that rename rules, reasons, sections and waits in the rows of schema 2. Names contain no double quotes.

    The stored decision and grants are JSON as `json.dumps` writes it. Quotes inside its strings are escaped, so a quoted name
    never matches inside a message.
    """
    words = {**rules, **reasons}
    statements = [f"UPDATE audit SET cause = '{new}' WHERE cause = '{old}'" for old, new in words.items()]  # noqa: S608
    statements += [f"UPDATE journal SET cause = '{new}' WHERE cause = '{old}'" for old, new in reasons.items()]  # noqa: S608
    for old, new in words.items():
        statements += [
            f"""UPDATE {table} SET value = replace(value, '"{old}"', '"{new}"')"""  # noqa: S608
            for table in ("decision", "ledger", "evidence")
        ]
    for old, new in waits.items():
        before, after = (f'"waiting": "{wait}"'.replace("'", "''") for wait in (old, new))
        statements.append(f"UPDATE decision SET value = replace(value, '{before}', '{after}')")  # noqa: S608
    statements += ["""UPDATE decision SET value = replace(value, '"person": ', '"next_step": ')"""]
    statements += [f"UPDATE ledger SET section = '{new}' WHERE section = '{old}'" for old, new in sections.items()]  # noqa: S608
    statements += ["UPDATE ledger SET key = 'history_lost' WHERE section = 'ledger' AND key = 'amnesic'"]
    return tuple(statements)


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE ledger (
            section TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL CHECK (json_valid(value)),
            PRIMARY KEY (section, key)) WITHOUT ROWID""",
        """CREATE TABLE journal (
            id INTEGER PRIMARY KEY AUTOINCREMENT, step TEXT NOT NULL, object TEXT NOT NULL, action TEXT NOT NULL,
            generation TEXT NOT NULL, cause TEXT NOT NULL, wall INTEGER NOT NULL, steady INTEGER NOT NULL,
            boot TEXT NOT NULL, ended_wall INTEGER, outcome TEXT, detail TEXT)""",
        "CREATE INDEX journal_open ON journal (id) WHERE outcome IS NULL",
        """CREATE TABLE inbox (
            id INTEGER PRIMARY KEY AUTOINCREMENT, command TEXT NOT NULL, payload TEXT NOT NULL CHECK (json_valid(payload)),
            who TEXT NOT NULL, wall INTEGER NOT NULL, steady INTEGER NOT NULL, boot TEXT NOT NULL)""",
        """CREATE TABLE decision (
            id INTEGER PRIMARY KEY CHECK (id = 1), wall INTEGER NOT NULL, value TEXT NOT NULL CHECK (json_valid(value)))""",
        """CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT, wall INTEGER NOT NULL, actor TEXT NOT NULL, revision TEXT NOT NULL,
            plan TEXT NOT NULL, step TEXT NOT NULL, cause TEXT NOT NULL, outcome TEXT NOT NULL)""",
    ),
    (
        "ALTER TABLE audit ADD COLUMN kind TEXT NOT NULL DEFAULT 'step'",
        "ALTER TABLE audit ADD COLUMN object TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE audit ADD COLUMN message TEXT NOT NULL DEFAULT ''",
        """CREATE TABLE evidence (
            id INTEGER PRIMARY KEY AUTOINCREMENT, object TEXT NOT NULL, wall INTEGER NOT NULL,
            value TEXT NOT NULL CHECK (json_valid(value)))""",
        "CREATE INDEX evidence_object ON evidence (object, id)",
    ),
    _renamed(RULES, REASONS, SECTIONS, WAITS),
    (
        """CREATE TABLE quarantine (
            id INTEGER PRIMARY KEY AUTOINCREMENT, wall INTEGER NOT NULL, section BLOB NOT NULL, key BLOB NOT NULL,
            value BLOB NOT NULL, cause TEXT NOT NULL)""",
    ),
    (
        """CREATE TABLE decision_changes (
            id INTEGER PRIMARY KEY, wall INTEGER NOT NULL, value TEXT NOT NULL CHECK (json_valid(value)))""",
        # The audit without AUTOINCREMENT, which writes a page of its own at every insert.
        """CREATE TABLE new_audit (
            id INTEGER PRIMARY KEY, wall INTEGER NOT NULL, actor TEXT NOT NULL, revision TEXT NOT NULL,
            plan TEXT NOT NULL, step TEXT NOT NULL, cause TEXT NOT NULL, outcome TEXT NOT NULL,
            kind TEXT NOT NULL, object TEXT NOT NULL, message TEXT NOT NULL)""",
        """INSERT INTO new_audit
            SELECT id, wall, actor, revision, plan, step, cause, outcome, kind, object, message FROM audit""",
        "DROP TABLE audit",
        "ALTER TABLE new_audit RENAME TO audit",
    ),
    (
        # An earlier version would take the lineage of moments for the boot id of another boot, and so must not open the file.
        """CREATE TABLE clock (
            id INTEGER PRIMARY KEY CHECK (id = 1), lineage TEXT NOT NULL, steady INTEGER NOT NULL, wall INTEGER NOT NULL,
            host_steady INTEGER NOT NULL, boot TEXT NOT NULL, machine TEXT NOT NULL)""",
    ),
    (
        "ALTER TABLE audit ADD COLUMN origin TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE journal ADD COLUMN origin TEXT NOT NULL DEFAULT ''",
    ),
)
"""Entry n brings a file from schema version n to n + 1 (SQLite's `user_version`). Only ever append."""
