"""Real faults of the disk and of the file."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Now
from reconciler.shell.store.database_file import MIGRATIONS, SIDE_FILES, join_database, open_database
from reconciler.shell.store.state_db import Store, StoreError
from tests.sim.clock import VirtualClock

NOW = Now(wall=1_800_000_000 * SECOND, steady=77, lineage="boot-1")
ROWS = {("restarts", f"Workload/w{n}"): f'{{"n": {n}, "pad": "{"x" * 300}"}}' for n in range(200)}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(wall=NOW.wall)


@pytest.fixture
def state(tmp_path: Path, clock: VirtualClock) -> Path:
    """A state directory with a used and closed store."""
    with Store.open(tmp_path / "state", clock) as store:
        store.save_ledger(ROWS)
    return tmp_path / "state"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 512 KiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "none", mounted], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a full or read-only disk needs the right to mount a tmpfs (root)")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def begin(store: Store, step: str = "1") -> int:
    return store.begin(step, "Workload/web", "stop", "c1@5", "liveness failed", NOW)


def damage(file: Path, offset: int, garbage: bytes) -> bytes:
    with file.open("r+b") as handle:
        handle.seek(offset)
        handle.write(garbage)
    return file.read_bytes()


def damaged_files(state: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in state.glob("state.db.corrupt-*")}


# --- a damaged file ---


@pytest.mark.parametrize(
    ("offset", "garbage"),
    [(0, b"garbage" * 600), (24_576, os.urandom(8192)), (8192, b"\0" * 40_000)],
    ids=["at the start", "in the middle", "zeroed pages"],
)
def test_a_file_with_garbage_is_renamed_and_a_new_one_created(state, clock, offset, garbage):
    broken = damage(state / "state.db", offset, garbage)
    with Store.open(state, clock) as store:
        assert store.load_ledger() == {}
        aside = damaged_files(state)  # SQLite leaves its side files beside a file that it cannot close in order
        assert aside.pop("state.db.corrupt-20270115T080000Z") == broken
        assert set(aside) <= {f"state.db.corrupt-20270115T080000Z{side}" for side in SIDE_FILES}
        assert "damaged" in store.recovered
        assert f"kept as {state}/state.db.corrupt-20270115T080000Z" in store.recovered
        begin(store)
    with Store.open(state, clock) as store:
        assert store.recovered is None
        assert len(store.open_entries()) == 1


@pytest.mark.parametrize("size", [0, 100, 4096, 30_000])
def test_a_truncated_file_is_renamed_and_a_new_one_created(state, clock, size):
    os.truncate(state / "state.db", size)
    with Store.open(state, clock) as store:
        assert store.load_ledger() == {}
        assert len(damaged_files(state)["state.db.corrupt-20270115T080000Z"]) == size
        assert store.recovered


def test_a_value_that_is_no_longer_json_does_not_lose_the_other_rows(state, clock):
    file = state / "state.db"
    content = file.read_bytes()
    damage(file, content.index(b'{"n": 7,'), b"?")
    with Store.open(state, clock) as store:
        assert store.recovered is None
        assert len(store.load_ledger()) == len(ROWS)


def test_a_row_that_is_no_text_is_set_aside_alone_and_kept(state, clock):
    file = state / "state.db"
    content = file.read_bytes()
    damage(file, content.index(b'{"n": 7,') + 1, b"\xb6")
    left = {key: value for key, value in ROWS.items() if key[1] != "Workload/w7"}
    with Store.join(state, clock) as store:
        assert store.load_ledger() == left
    with Store.open(state, clock) as store:
        assert store.load_ledger() == left
        assert store.damaged == [("restarts", "Workload/w7", "it is not UTF-8 text")]
    with Store.open(state, clock) as store:
        assert store.load_ledger() == left
        assert not store.damaged
        kept = store.quarantined()
    assert [(row.section, row.key, row.cause) for row in kept] == [("restarts", "Workload/w7", "it is not UTF-8 text")]
    assert kept[0].value.startswith("{\ufffdn")


def test_a_row_that_the_caller_cannot_decode_is_kept_aside(state, clock):
    with Store.open(state, clock) as store:
        store.load_ledger()
        store.quarantine({("restarts", "Workload/w3"): "no moment"})
        assert ("restarts", "Workload/w3") not in store.load_ledger()
        store.save_ledger({**store.load_ledger(), ("restarts", "Workload/w3"): "{}"})
        (row,) = store.quarantined()
    assert row.value == ROWS["restarts", "Workload/w3"]
    assert row.cause == "no moment"


def test_two_damaged_files_of_one_second_are_both_kept(state, clock):
    for _ in range(3):
        damage(state / "state.db", 0, b"garbage" * 600)
        Store.open(state, clock).close()
    assert sorted(damaged_files(state)) == [
        "state.db.corrupt-20270115T080000Z",
        "state.db.corrupt-20270115T080000Z.2",
        "state.db.corrupt-20270115T080000Z.3",
    ]


def test_the_write_ahead_log_is_renamed_with_its_file(state, clock):
    (state / "state.db-wal").write_bytes(b"log")
    damage(state / "state.db", 0, b"garbage" * 600)
    Store.open(state, clock).close()
    assert damaged_files(state)["state.db.corrupt-20270115T080000Z-wal"] == b"log"


def test_a_log_without_its_database_is_never_played_into_a_new_one(state, clock):
    with Store.open(state, clock) as store:
        store.save_ledger({("a", "b"): "1"})
        log = (state / "state.db-wal").read_bytes()
    (state / "state.db").unlink()
    (state / "state.db-wal").write_bytes(log)
    with Store.open(state, clock) as store:
        assert store.load_ledger() == {}
        assert store.recovered
    assert log in damaged_files(state).values()


def test_a_kill_between_rename_and_creation_does_not_lose_the_message(state, clock):
    (state / "state.db").rename(state / "state.db.corrupt-20270115T075900Z")
    (state / "state.db.new").write_bytes(b"half")
    with Store.open(state, clock) as store:
        assert "state.db.corrupt-20270115T075900Z" in store.recovered


def test_joining_never_renames_a_damaged_file(state, clock):
    broken = damage(state / "state.db", 0, b"garbage" * 600)
    with pytest.raises(StoreError, match=r"damaged.*start reconcile again"):
        Store.join(state, clock)
    assert (state / "state.db").read_bytes() == broken
    assert damaged_files(state) == {}


def test_damage_found_while_reading_is_an_error_with_a_next_step(state, clock):
    with Store.join(state, clock) as store:
        for page in range(2, 15):
            damage(state / "state.db", page * 4096, b"\xff" * 4096)
        with pytest.raises(StoreError, match=r"state\.db: it is damaged .*start reconcile again"):
            store.load_ledger()


# --- versions ---


def test_a_file_of_a_newer_version_is_refused_and_stays_unchanged(state, clock):
    with sqlite3.connect(state / "state.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = (state / "state.db").read_bytes()
    for opened in (Store.open, Store.join):
        with pytest.raises(StoreError, match=f"version is 99, this program knows versions up to {len(MIGRATIONS)}"):
            opened(state, clock)
    assert {entry.name: entry.read_bytes() for entry in state.iterdir()} == {"state.db": before}


def test_the_holder_upgrades_a_file_of_an_older_version_with_its_rows(state):
    newer = (*MIGRATIONS, ("ALTER TABLE inbox ADD COLUMN host TEXT", "CREATE TABLE extra (id INTEGER PRIMARY KEY)"))
    current, next_version = len(MIGRATIONS), len(newer)
    with pytest.raises(
        StoreError, match=f"its schema version is {current}, this program writes version {next_version}"
    ):
        join_database(state, newer)
    db, recovered = open_database(state, NOW.wall, newer)
    assert recovered is None
    assert db.execute("PRAGMA user_version").fetchone() == (next_version,)
    assert db.execute("SELECT count(*), (SELECT count(*) FROM extra) FROM ledger").fetchone() == (len(ROWS), 0)
    db.close()


def test_a_failed_upgrade_leaves_the_file_at_the_earlier_version(state, clock):
    with pytest.raises(StoreError):
        open_database(state, NOW.wall, (*MIGRATIONS, ("CREATE TABLE extra (id)", "no such statement")))
    with Store.open(state, clock) as store:
        assert store.load_ledger() == ROWS


def test_a_database_of_another_program_is_refused_and_stays_unchanged(tmp_path, clock):
    state = tmp_path / "state"
    state.mkdir(0o700)
    with sqlite3.connect(state / "state.db") as db:
        db.execute("CREATE TABLE theirs (id)")
    db.close()
    with pytest.raises(StoreError, match="a database of another program"):
        Store.open(state, clock)
    assert damaged_files(state) == {}


# --- disks ---


def fill(disk: Path) -> Path:
    """Fill the disk."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return disk / "filler"


def test_a_full_disk_is_a_clear_error_and_the_store_recovers_afterwards(small_disk, clock):
    with Store.open(small_disk, clock) as store:
        store.save_ledger({("a", "kept"): "1"})
        filler = fill(small_disk)
        with pytest.raises(
            StoreError, match=r"state\.db: no space left on its file system \(0 KiB free\); free disk space"
        ):
            store.save_ledger({("a", str(n)): f'"{"x" * 3000}"' for n in range(100)})
        assert store.load_ledger() == {("a", "kept"): "1"}
        filler.unlink()
        assert store.save_ledger({("a", "kept"): "2"}) == 1
    with Store.open(small_disk, clock) as store:
        assert store.load_ledger() == {("a", "kept"): "2"}


def test_on_a_full_disk_no_action_can_begin(small_disk, clock):
    with Store.open(small_disk, clock) as store:
        begun = [begin(store)]
        fill(small_disk)
        with pytest.raises(StoreError, match="no space left"):
            begun.extend(begin(store, "x" * 500) for _ in range(1000))
        assert [entry.id for entry in store.open_entries()] == begun


def test_a_store_half_created_on_a_full_disk_is_never_used(small_disk, clock):
    filler = fill(small_disk)
    with pytest.raises(StoreError, match=r"[Nn]o space left"):
        Store.open(small_disk, clock)
    filler.unlink()
    with Store.open(small_disk, clock) as store:
        assert store.recovered is None
        assert begin(store) == 1


def test_a_disk_that_became_read_only_is_a_clear_error(small_disk, clock):
    Store.open(small_disk, clock).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match=r"state\.db: .*[Rr]ead-only"):
        Store.open(small_disk, clock)
    with pytest.raises(StoreError, match="read-only"):
        Store.join(small_disk, clock)


def test_a_file_removed_while_in_use_is_an_error(state, clock):
    with Store.open(state, clock) as store:
        (state / "state.db").unlink()
        with pytest.raises(
            StoreError, match="removed or replaced while reconcile was using it; restore it, or start reconcile again"
        ):
            begin(store)


def test_a_file_locked_by_another_process_is_an_error_after_a_limit(state, clock):
    with Store.open(state, clock, busy=0.05) as store:
        other = sqlite3.connect(state / "state.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process keeps it locked"):
            begin(store)
        other.execute("ROLLBACK")
        other.close()
        assert begin(store) == 1


# --- kill -9 ---

WRITER = """
import sys
from pathlib import Path
from reconciler.core.model.instant import Now
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.state_db import Store
store = Store.open(Path(sys.argv[1]), SystemClock())
rows = store.load_ledger()
n = len(rows)
while True:
    n += 1
    entry = store.begin(str(n), "o", "a", "g", "c", Now(1, 2, "b"))
    rows[("count", str(n))] = str(n)
    store.save_ledger(rows)
    store.end(entry, "done")
    print(n, flush=True)
"""


def test_everything_acknowledged_before_a_kill_survives_it(tmp_path, clock):
    state, acknowledged = tmp_path / "state", 0
    for run in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(state)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONPATH="."),
        )
        killer = threading.Timer(20, process.kill)
        killer.start()
        for count, line in enumerate(process.stdout):
            acknowledged = int(line)
            if count == 5 + 7 * run:
                process.send_signal(signal.SIGKILL)
                break
        acknowledged = int((process.stdout.read().split() or [acknowledged])[-1])
        process.stdout.close()
        process.wait(120)
        killer.cancel()
        with Store.open(state, clock) as store:
            assert store.recovered is None
            counted = {int(value) for value in store.load_ledger().values()}
            assert counted >= set(range(1, acknowledged + 1))
            assert len(counted) <= acknowledged + 1
            assert len(store.open_entries()) <= 1
            for entry in store.open_entries():
                store.end(entry.id, "unknown", "killed")
    assert acknowledged > 40
