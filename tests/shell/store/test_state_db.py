import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now
from reconciler.shell.store import audit
from reconciler.shell.store import state_db as store_module
from reconciler.shell.store.state_db import AuditRow, JournalEntry, Store, StoreError
from tests.sim.clock import VirtualClock

NOW = Now(wall=1_800_000_000 * SECOND, steady=77, lineage="boot-1")
AUDIT = AuditRow(NOW.wall, "ada", "r1", "p1", "3", "liveness failed", "done")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(wall=NOW.wall)


def files(state: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in state.iterdir() if not entry.name.endswith("-shm")}


def begin(store: Store, step: str = "1") -> int:
    return store.begin(step, "Workload/web", "stop", "c1@5", "liveness failed", NOW)


# --- ledger ---


def test_a_saved_ledger_is_loaded_unchanged_by_a_later_process(state, clock):
    rows = {("restarts", "Workload/web/0"): '{"at": [1, 2]}', ("grants", "Workload/web/0"): "null"}
    with Store.open(state, clock) as store:
        assert store.load_ledger() == {}
        assert store.save_ledger(rows) == 2
        assert store.load_ledger() == rows
    with Store.open(state, clock) as store:
        assert store.load_ledger() == rows


def test_saving_a_ledger_writes_changed_rows_and_deletes_removed_ones(state, clock):
    with Store.open(state, clock) as store:
        store.save_ledger({("a", "same"): "1", ("a", "changed"): "1", ("a", "gone"): "1"})
        assert store.save_ledger({("a", "same"): "1", ("a", "changed"): "2", ("b", "new"): "3"}) == 3
        assert store.load_ledger() == {("a", "same"): "1", ("a", "changed"): "2", ("b", "new"): "3"}


def test_an_unchanged_ledger_is_not_written(state, clock):
    rows = {("a", str(n)): json.dumps({"n": n}) for n in range(100)}
    with Store.open(state, clock) as store:
        store.save_ledger(rows)
        store.put_decision({"plan": []})
        before = files(state)
        for _ in range(10):
            assert store.save_ledger(dict(rows)) == 0
            assert store.put_decision({"plan": []}) is False
        assert files(state) == before


def test_a_ledger_saved_later_is_synced_with_the_next_write(state, clock):
    with Store.open(state, clock) as store:
        assert store.sync() is False
        store.save_ledger({("a", "x"): "1"}, later=True)
        with Store.join(state, clock) as other:
            assert other.load_ledger() == {("a", "x"): "1"}  # as another process finds it after a kill
        before = files(state)
        assert store.sync() is True
        assert files(state) != before  # only a transaction that writes something waits for the disk
        assert store.sync() is False
        store.save_ledger({("a", "x"): "2"}, later=True)
        store.begin("step", "Workload/web/0", "restart", "g1", "LivenessFailed", NOW)
        assert store.sync() is False
        store.save_ledger({("a", "x"): "3"})
        assert store.sync() is False


def test_a_row_that_is_not_json_is_refused_with_the_whole_save(state, clock):
    with Store.open(state, clock) as store:
        store.save_ledger({("a", "x"): "1"})
        with pytest.raises(StoreError, match="SQLite refused a row"):
            store.save_ledger({("a", "x"): "2", ("a", "y"): "not json"})
        assert store.load_ledger() == {("a", "x"): "1"}
        assert store.save_ledger({("a", "x"): "2"}) == 1


def test_an_acknowledged_command_leaves_the_inbox_with_its_effect(state, clock):
    with Store.open(state, clock) as store:
        first, second = (store.append("suspend", "{}", "ada", NOW) for _ in range(2))
        store.save_ledger({("overrides", "Workload/web"): "{}"}, acknowledge=[first])
        assert [command.id for command in store.pending()] == [second]
        with pytest.raises(StoreError):
            store.save_ledger({("overrides", "Workload/web"): "broken"}, acknowledge=[second])
        assert [command.id for command in store.pending()] == [second]


# --- journal ---


def test_an_action_without_an_end_is_open_for_the_next_process(state, clock):
    with Store.open(state, clock) as store:
        first, second = begin(store, "1"), begin(store, "2")
        store.end(first, "done", "stopped in 2s")
    with Store.open(state, clock) as store:
        assert store.open_entries() == (
            JournalEntry(second, "2", "Workload/web", "stop", "c1@5", "liveness failed", NOW),
        )
        store.end(second, "unknown", "killed")
        assert store.open_entries() == ()
        assert [(e.step, e.outcome, e.detail, e.ended_wall) for e in store.entries()] == [
            ("1", "done", "stopped in 2s", clock.now().wall),
            ("2", "unknown", "killed", clock.now().wall),
        ]


def test_an_entry_is_on_disk_before_begin_returns(state, clock):
    with Store.open(state, clock) as store:
        begin(store)
        with Store.join(state, clock) as other:
            assert len(other.open_entries()) == 1


def test_an_entry_ends_once(state, clock):
    with Store.open(state, clock) as store:
        entry = begin(store)
        store.end(entry, "done")
        with pytest.raises(StoreError, match=f"no open entry {entry}"):
            store.end(entry, "failed")
        assert store.entries()[0].outcome == "done"
        with pytest.raises(ValueError, match="empty outcome"):
            store.end(entry, "")


def test_the_journal_is_bounded_and_never_drops_an_open_entry(state, clock):
    with Store.open(state, clock) as store:
        still_open = begin(store, "open")
        ended = (store_module.JOURNAL_KEPT // audit.PRUNE_EVERY + 2) * audit.PRUNE_EVERY - 2
        with sqlite3.connect(state / "state.db") as db:
            db.executemany(
                "INSERT INTO journal (step, object, action, generation, cause, wall, steady, boot, outcome)"
                " VALUES (?, 'o', 'a', 'g', 'c', 1, 1, 'b', 'done')",
                ((str(n),) for n in range(ended)),
            )
        db.close()
        store.end(begin(store), "done")
        assert [entry.id for entry in store.open_entries()] == [still_open]
        kept = store.entries(limit=10**6)
        assert store_module.JOURNAL_KEPT <= len(kept) <= store_module.JOURNAL_KEPT + audit.PRUNE_EVERY + 1


# --- inbox ---


def test_commands_of_other_processes_arrive_in_order_and_exactly_once(state, clock):
    script = (
        "import sys; from pathlib import Path\n"
        "from reconciler.shell.clock import SystemClock\n"
        "from reconciler.shell.store.state_db import Store\n"
        "clock = SystemClock()\n"
        "with Store.join(Path(sys.argv[1]), clock) as store:\n"
        "    for n in range(10): store.append('suspend', str(n), sys.argv[2], clock.now())\n"
    )
    with Store.open(state, clock) as store:
        processes = [
            subprocess.Popen([sys.executable, "-c", script, str(state), who], env=dict(os.environ, PYTHONPATH="."))
            for who in ("ada", "bob", "cy")
        ]
        for n in range(20):  # the daemon goes on writing meanwhile
            store.end(begin(store, str(n)), "done")
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        commands = store.pending()
        for who in ("ada", "bob", "cy"):
            assert [command.payload for command in commands if command.who == who] == [str(n) for n in range(10)]
        store.acknowledge([command.id for command in commands])
        assert store.pending() == ()


def test_a_command_keeps_payload_and_instant_and_ids_are_never_reused(state, clock):
    with Store.open(state, clock) as store:
        first = store.append("suspend", '{"object": "Workload/web"}', "ada", NOW)
        command = store.pending()[0]
        assert command == (first, "suspend", '{"object": "Workload/web"}', "ada", NOW)
        store.acknowledge([first])
        assert store.append("resume", "{}", "ada", NOW) > first


def test_a_full_inbox_refuses_commands(state, clock):
    with Store.open(state, clock) as store:
        with sqlite3.connect(state / "state.db") as db:
            db.executemany(
                "INSERT INTO inbox (command, payload, who, wall, steady, boot) VALUES ('c', '{}', 'w', 1, 1, 'b')",
                [()] * store_module.INBOX_LIMIT,
            )
        db.close()
        with pytest.raises(StoreError, match="1000 commands are waiting; make sure that reconcile --watch is running"):
            store.append("suspend", "{}", "ada", NOW)


# --- decision and audit ---


def test_another_process_reads_the_last_decision_with_its_instant(state, clock):
    with Store.open(state, clock) as store:
        assert store.last_decision() is None
        assert store.put_decision({"n": 1}) is True
        since = clock.now().wall
        clock.advance(60 * SECOND)
        assert store.put_decision({"n": 1}) is False
        with Store.join(state, clock) as status:
            assert status.last_decision() == (since, '{"n": 1}')
            store.put_decision({"n": 2})
            assert status.last_decision() == (since + 60 * SECOND, '{"n": 2}')


def test_a_decision_equal_to_the_stored_one_is_not_written_again(state, clock):
    with Store.open(state, clock) as store:
        store.put_decision({"n": 1})
    with Store.open(state, clock) as store:
        assert store.put_decision({"n": 1}) is False


def decision(count: int, **first: object) -> dict:
    """A decision about so many replicas; the fields are those of the first one."""
    rows = [{"key": f"web-{n}", "state": "Ready", "detail": "x" * 300} for n in range(count)]
    rows[0].update(first)
    return {"at_wall": 1, "rows": rows}


@pytest.mark.parametrize("count", [10, 1000])
def test_a_change_of_a_decision_writes_a_few_pages_whatever_its_size(state, clock, count):
    with Store.open(state, clock) as store:
        store.put_decision(decision(count))
        before = (state / "state.db-wal").stat().st_size
        for number in range(20):
            clock.advance(SECOND)
            assert store.put_decision(decision(count, state=f"state {number}")) is True
            assert store.put_decision(decision(count, state=f"state {number}")) is False
        assert (state / "state.db-wal").stat().st_size - before < 20 * 4096
        with Store.join(state, clock) as other:
            last = other.last_decision()
        assert last.wall == clock.now().wall
        assert json.loads(last.text) == decision(count, state="state 19")


def test_changes_of_a_decision_are_replaced_by_the_whole_one_in_time(state, clock):
    with Store.open(state, clock) as store, sqlite3.connect(state / "state.db") as db:
        most = 0
        for number in range(100):
            document = decision(10, state=f"{number}" * 3000)
            store.put_decision(document)
            assert json.loads(store.last_decision().text) == document
            ((kept, length),) = db.execute("SELECT count(*), coalesce(sum(length(value)), 0) FROM decision_changes")
            assert length <= store_module.LEAST_CHANGES
            most = max(most, kept)
    db.close()
    assert 10 < most < 60


def test_a_later_process_goes_on_with_the_stored_decision(state, clock):
    with Store.open(state, clock) as store:
        store.put_decision(decision(100))
        store.put_decision(decision(100, state="NotReady"))
    with Store.open(state, clock) as store, sqlite3.connect(state / "state.db") as db:
        assert store.put_decision(decision(100, state="NotReady")) is False
        assert store.put_decision(decision(100, state="Failed")) is True
        assert db.execute("SELECT count(*) FROM decision_changes").fetchone() == (2,)
        assert json.loads(store.last_decision().text) == decision(100, state="Failed")
    db.close()


def test_changes_that_do_not_fit_the_decision_are_reported_and_replaced(state, clock):
    with Store.open(state, clock) as store:
        store.put_decision(decision(3))
    with sqlite3.connect(state / "state.db") as db:
        db.execute('INSERT INTO decision_changes (wall, value) VALUES (1, \'[[["rows", 7], {"a": 1}, []]]\')')
    db.close()
    with Store.open(state, clock) as store:
        with pytest.raises(StoreError, match=r"do not fit it .* run reconcile --once or --watch"):
            store.last_decision()
        assert store.put_decision(decision(3)) is True
        assert json.loads(store.last_decision().text) == decision(3)


def test_what_is_written_together_is_there_whole_or_not_at_all(state, clock):
    with Store.open(state, clock) as store:
        store.put_decision(decision(3))
        store.audit([AUDIT])
        with suppress(RuntimeError), store.together():
            store.audit([AUDIT._replace(step="lost")])
            store.put_decision(decision(3, state="lost"))
            raise RuntimeError
        with store.together():
            store.audit([AUDIT._replace(step="kept")])
            store.put_decision(decision(3, state="kept"))
            with Store.join(state, clock) as other:
                assert json.loads(other.last_decision().text) == decision(3)
        assert [row.step for row in store.audit_rows()] == [AUDIT.step, "kept"]
        assert json.loads(store.last_decision().text) == decision(3, state="kept")
        with sqlite3.connect(state / "state.db") as db:
            assert db.execute("SELECT max(id) FROM audit").fetchone() == (2,)
        db.close()


def test_a_ledger_saved_later_is_not_synced_by_a_write_without_a_change(state, clock):
    with Store.open(state, clock) as store:
        store.put_decision(decision(3))
        store.save_ledger({("a", "b"): "1"}, later=True)
        with store.together():
            store.put_decision(decision(3))
        assert store.sync() is True
        store.save_ledger({("a", "b"): "2"}, later=True)
        with store.together():
            store.put_decision(decision(3, state="other"))
        assert store.sync() is False


def test_a_log_that_was_cut_anywhere_has_an_earlier_decision_complete(state, clock, tmp_path):
    """After a power cut the end of SQLite's log may be missing."""
    states = [decision(50, state=f"state {number}") for number in range(12)]
    with Store.open(state, clock) as store:
        for number, document in enumerate(states):
            with store.together():
                store.audit([AUDIT._replace(step=str(number))])
                store.put_decision(document)
        log = (state / "state.db-wal").read_bytes()
        base = (state / "state.db").read_bytes()
    seen = set()
    for cut in range(0, len(log) + 1, 700):
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir(mode=0o700)
        for name, content in (("state.db", base), ("state.db-wal", log[:cut])):
            (copy / name).touch(mode=0o600)
            (copy / name).write_bytes(content)
        with Store.open(copy, clock) as store:
            last, rows = store.last_decision(), store.audit_rows()
            if last is None:
                assert rows == ()
                continue
            number = states.index(json.loads(last.text))
            assert [row.step for row in rows] == [str(n) for n in range(number + 1)]
            seen.add(number)
            assert store.put_decision(states[-1]) is (number != len(states) - 1)
            assert json.loads(store.last_decision().text) == states[-1]
    assert len(seen) > 8


def test_a_flapping_object_leaves_the_history_of_others_in_the_audit(state, clock):
    with Store.open(state, clock) as store:
        for name in range(20):
            store.audit(AUDIT._replace(object=f"workload/w{name}/0", step=str(n)) for n in range(5))
    for _ in range(3):
        with Store.open(state, clock) as store:
            flaps = [AUDIT._replace(object="workload/flapper/0", kind="verdict", wall=n) for n in range(100)]
            for _ in range(audit.AUDIT_KEPT // 250):
                store.audit(flaps)
    with Store.open(state, clock) as store:
        rows = store.audit_rows(10**6)
        assert len([row for row in rows if row.object != "workload/flapper/0"]) == 100
        assert audit.AUDIT_KEPT <= len(rows) <= audit.AUDIT_KEPT + audit.PRUNE_EVERY
        last = store.audit_last()
        store.audit([AUDIT])
        assert [row for _, row in store.audit_since(after=last)] == [AUDIT]


def test_the_audit_is_appended_in_order_and_bounded(state, clock):
    with Store.open(state, clock) as store:
        store.audit([])
        store.audit(AUDIT._replace(step=str(n)) for n in range(audit.AUDIT_KEPT + 10))
        store.audit([AUDIT._replace(step="one"), AUDIT._replace(step="two")])
        assert [row.step for row in store.audit_rows(2)] == ["one", "two"]
        assert store.audit_rows(1)[0] == AUDIT._replace(step="two")
        assert len(store.audit_rows(10**6)) <= audit.AUDIT_KEPT + audit.PRUNE_EVERY


def test_rows_of_the_audit_can_be_read_by_id_and_by_time(state, clock):
    with Store.open(state, clock) as store:
        store.audit(AUDIT._replace(wall=n, step=str(n)) for n in range(5))
        recent = store.audit_since(wall=3)
        assert [row.step for _, row in recent] == ["3", "4"]
        store.audit([AUDIT._replace(wall=2, step="late", kind="held", object="workload/web/0", message="2 of 3")])
        [(_, row)] = store.audit_since(after=recent[-1][0])
        assert row == AUDIT._replace(wall=2, step="late", kind="held", object="workload/web/0", message="2 of 3")


def test_evidence_is_bounded_per_replica_and_in_total(state, clock):
    with Store.open(state, clock) as store:
        for n in range(audit.EVIDENCE_KEPT + 5):
            store.put_evidence(AUDIT._replace(wall=n, object="workload/web/0", kind="evidence"), json.dumps(n))
        number = store.put_evidence(AUDIT._replace(wall=99, object="workload/web/10"), '"other"')
        store.amend_evidence(number, '"amended"')
        kept = store.evidence("workload/web/0", limit=1000)
        assert [json.loads(row.value) for row in kept] == list(range(5, audit.EVIDENCE_KEPT + 5))
        assert [row.value for row in store.evidence("workload/web/1")] == []
        assert [row.value for row in store.evidence("workload/web")][-1] == '"amended"'
        assert [row.wall for row in store.evidence("workload/web", limit=2)] == [audit.EVIDENCE_KEPT + 4, 99]


def test_an_empty_inbox_shows_later_commands_of_any_process(state, clock):
    with Store.open(state, clock) as store, Store.join(state, clock) as other:
        for writer in (other, store, other):
            assert store.pending() == store.pending() == ()
            number = writer.append("suspend", "{}", "ada", NOW)
            assert [command.id for command in store.pending()] == [number]
            store.acknowledge([number])


# --- access ---


def test_without_the_lock_a_process_may_only_read_and_append_commands(state, clock):
    Store.open(state, clock).close()
    with Store.join(state, clock) as other:
        assert other.load_ledger() == {}
        assert other.append("suspend", "{}", "ada", NOW) == 1
        for write in (
            lambda: other.save_ledger({("a", "b"): "1"}),
            lambda: begin(other),
            lambda: other.put_decision({}),
            lambda: other.acknowledge([1]),
            lambda: other.audit([AUDIT]),
        ):
            with pytest.raises(StoreError, match="only the process that holds the instance's lock"):
                write()
        assert len(other.pending()) == 1


def test_threads_may_share_a_store(state, clock):
    with Store.open(state, clock) as store:
        threads = [
            threading.Thread(target=lambda: [store.end(begin(store), "done") for _ in range(25)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len(store.entries(1000)) == 100
        assert store.open_entries() == ()


def test_the_file_is_private_whatever_the_umask_says(state, clock):
    old = os.umask(0)
    try:
        with Store.open(state, clock) as store:
            begin(store)
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in state.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
