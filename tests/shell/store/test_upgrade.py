"""State directories of earlier versions open without loss.

`states/VERSION.sql` was written by the store of that version: every section of its ledger, every rule, reason and wait.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.ledger_codec import from_rows
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.shell.store.state_db import Store
from tests.sim.clock import VirtualClock

STATES = Path(__file__).parent / "states"
AT = 1_790_000_000 * SECOND

NEW_SECTIONS = {
    "specs",
    "proven",
    "accepted",
    "owned",
    "by_runtime",
    "checks",
    "flaps",
    "held_ttls",
    "written",
    "pointers_known",
    "nodes",
    "placed",
    "unread",
    "applied",
    "moving",
    "applied_of",
    "reverts",
    "privileges",
}
NEW_RULES = {
    Rule.DRAIN_DEADLINE,
    Rule.FIXED_WEIGHTS,
    Rule.PROBE_UNPROVEN,
    Rule.SECRET_UNKNOWN,
    Rule.SECRET_UNUSABLE,
    Rule.SOURCE_INVALID,
    Rule.LEDGER_UNWRITABLE,
    Rule.SOURCE_UNREADABLE,
    Rule.SOURCE_UNVERIFIED,
    Rule.PROBE_ENGINE,
    Rule.DECISION_FAILED,
    Rule.POLICY_VIOLATION,
    Rule.NO_NODE,
    Rule.VOLUME_IN_USE,
    Rule.FILES_KEPT,
    Rule.DRIFT,
    Rule.APPROVAL_REQUIRED,
    Rule.NOT_IN_PLAN,
}
NEW_REASONS = {
    Reason.IMAGE_REPLACED,
    Reason.DRAIN_DEADLINE,
    Reason.MOVED,
    Reason.NODE_CHANGED,
    Reason.POLICY_LOST,
    Reason.SPEC_LOST,
    Reason.VOLUME_IN_USE,
    Reason.FILES_CHANGED,
}
NEW_WAITING = {Waiting.PUBLISHED, Waiting.STEADY, Waiting.COMMIT}
"""What later versions have added."""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    path = directory / "state.db"
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as db:
        db.executescript((STATES / "0.1.0.sql").read_text())
    return directory


def test_the_ledger_of_an_earlier_version_is_read_completely(state):
    with Store.open(state, VirtualClock(wall=AT)) as store:
        ledger = from_rows(store.load_ledger())
        assert store.recovered is None
    assert {grant.cause for grant in ledger.grants.values()} == set(Reason) - NEW_REASONS
    assert ledger.overrides
    assert not any(override.waits or override.forced for override in ledger.overrides.values())
    assert ledger.ready
    assert not any(row.full for row in ledger.ready.values())
    # Hashes of that version have another meaning now: they approve nothing, and nothing is lost but a second approval.
    assert ledger.approvals == {}
    missing = [
        name for name in ledger.__slots__ if not getattr(ledger, name) and name not in {*NEW_SECTIONS, "approvals"}
    ]
    assert missing == []
    assert ledger.rollouts["workload/web"].rows[1].revision == "0123456789abcdef"
    assert ledger.requests["r-1"].members[0].object == "workload/web/0"


def test_audit_and_decision_of_an_earlier_version_get_the_new_rule_names(state):
    with Store.open(state, VirtualClock(wall=AT)) as store:
        rows = store.audit_rows(1_000)
        last = store.last_decision()
        assert [entry.id for entry in store.open_entries()] == [2]
        assert [command.command for command in store.pending()] == ["suspend"]
    held = [row.cause for row in rows if row.kind == "held"]
    assert held == [rule.value for rule in Rule if rule not in NEW_RULES]
    assert [row.cause for row in rows if row.kind == "step"] == [
        reason.value for reason in Reason if reason not in NEW_REASONS
    ]
    assert [row.cause for row in rows if row.kind == "released"] == [Rule.RESTART_IN_PROGRESS.value]
    first = next(row.message for row in rows if row.kind == "held")
    assert first.endswith("look at InFlight")  # messages stay as they were
    document = json.loads(last.text)
    assert {hold["next_step"] for hold in document["holds"]} == {"look at it"}
    assert [hold["message"] for hold in document["holds"]][4] == 'it says "person": InFlight'
    assert [hold["rule"] for hold in document["holds"]] == [rule.value for rule in Rule if rule not in NEW_RULES]
    assert [wait["waiting"] for wait in document["waits"]] == [
        waiting.value for waiting in Waiting if waiting not in NEW_WAITING
    ]


def test_decision_and_audit_of_an_earlier_version_are_continued(state):
    with Store.open(state, VirtualClock(wall=AT)) as store:
        before = store.audit_since()
        document = json.loads(store.last_decision().text)
        first = document["holds"][0]
        assert store.put_decision(document) is False
        document["holds"] = [{**first, "message": "still"}, *document["holds"][1:]]
        assert store.put_decision(document) is True
        store.audit([before[0][1]._replace(step="the next one")])
    with Store.open(state, VirtualClock(wall=AT)) as store:
        assert json.loads(store.last_decision().text) == document
        after = store.audit_since()
        assert after[:-1] == before
        assert after[-1][0] == before[-1][0] + 1


def padded(state: Path) -> dict[tuple[str, str], str]:
    """A large ledger in a file of an earlier version, and its rows."""
    rows = {("passed", f"path {number}"): json.dumps("x" * 400) for number in range(5_000)}
    with closing(sqlite3.connect(state / "state.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executemany("INSERT INTO ledger VALUES (?, ?, ?)", [(*key, value) for key, value in rows.items()])
        db.commit()
    return rows


def page_size(state: Path) -> int:
    with closing(sqlite3.connect(state / "state.db")) as db:
        return int(db.execute("PRAGMA page_size").fetchone()[0])


OPEN = """
import sys
from pathlib import Path
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.state_db import Store
print("opening", flush=True)
Store.open(Path(sys.argv[1]), SystemClock()).close()
print("open", flush=True)
"""


def test_an_upgrade_that_is_killed_anywhere_is_done_by_the_next_start(state):
    rows = padded(state)
    assert page_size(state) == 4096
    killed = 0
    for wait in (0.01, 0.03, 0.05, 0.07, 0.09, 0.12, 0.15, 0.2, 0.3):
        command = [sys.executable, "-c", OPEN, str(state)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=".")) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(wait)
            child.kill()
            killed += child.stdout.read() == b""
    with Store.open(state, VirtualClock(wall=AT)) as store:
        assert store.recovered is None
        assert rows.items() <= store.load_ledger().items()
        assert store.save_ledger({**store.load_ledger(), ("passed", "new"): "true"}) == 1
    assert killed
    assert page_size(state) == 1024
    with closing(sqlite3.connect(state / "state.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_another_process_reads_keeps_its_page_size(state):
    padded(state)
    with closing(sqlite3.connect(state / "state.db", isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT * FROM ledger").fetchone()
        with Store.open(state, VirtualClock(wall=AT), busy=0.2) as store:
            assert store.save_ledger({**store.load_ledger(), ("passed", "new"): "true"}) == 1
    assert page_size(state) == 4096
    with Store.open(state, VirtualClock(wall=AT)) as store:
        assert ("passed", "new") in store.load_ledger()
    assert page_size(state) == 1024
