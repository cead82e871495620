"""Ledgers of versions that stored boot ids keep the meaning of their moments: the upgrade refills no limit, also in another boot.

`states/0.1.0.sql` has a moment in every section that had one; files of the schema before the clock are made by its migrations.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import Instant, elapsed
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.shell.instance_clock import ClockRecord, InstanceClock
from reconciler.shell.store.database_file import open_database
from reconciler.shell.store.memory import BlockingMemory
from reconciler.shell.store.schema import MIGRATIONS
from reconciler.shell.store.state_db import Store, StoreError
from tests.sim.clock import VirtualClock

STATES = Path(__file__).parent / "states"
BOOT = "6f1d3c1e-0000-4000-8000-00000000b007"
BEGUN, STEADY = 1_790_000_000 * SECOND, 5_000 * SECOND
"""The first moment in the stored state, by both clocks."""

LATER = 90 * SECOND
WITHOUT_CLOCK = MIGRATIONS[:5]


def opened(directory: Path, fill: str = "") -> Path:
    """A state directory with this file in it."""
    directory.mkdir(mode=0o700)
    path = directory / "state.db"
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(fill)
    return directory


@pytest.fixture(params=["0.1.0", "before the clock"])
def state(request, tmp_path: Path) -> Path:
    script = (STATES / "0.1.0.sql").read_text()
    first = opened(tmp_path / "first", script)
    if request.param == "0.1.0":
        return first
    open_database(first, BEGUN, WITHOUT_CLOCK)[0].close()
    with closing(sqlite3.connect(first / "state.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (5,)
        assert not db.execute("SELECT name FROM sqlite_schema WHERE name = 'clock'").fetchall()
        assert BOOT in "".join(value for (value,) in db.execute("SELECT value FROM ledger"))
    return first


def moments(value: object) -> Iterator[Instant]:
    """All moments in a ledger."""
    if isinstance(value, Instant):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from moments(item)
    elif isinstance(value, tuple | frozenset):
        for item in value:
            yield from moments(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from moments(getattr(value, field.name))


def host(boot: str, passed: int, step: int = 0) -> VirtualClock:
    """The clocks `passed` ns after the first moment, in that boot or in one of a host that has been up for a year."""
    steady = STEADY + passed if boot == BOOT else 366 * 86_400 * SECOND
    return VirtualClock(wall=BEGUN + passed + step, steady=steady, boot=boot)


@pytest.mark.parametrize(("boot", "step"), [(BOOT, 0), (BOOT, 7200 * SECOND), (BOOT, -7200 * SECOND), ("another", 0)])
def test_moments_of_an_earlier_version_are_as_long_ago_as_before(state, boot, step):
    with Store.open(state, host(boot, LATER, step)) as store:
        before = sorted(moments(from_rows(store.load_ledger())))
        memory = BlockingMemory(store, "a test")
        now = memory.clock.now()
        after = sorted(moments(from_rows(memory.load_ledger())))
    assert len(after) == len(before) > 100
    real = [(old, new) for old, new in zip(before, after, strict=True) if old.lineage]
    assert {new.lineage for _, new in real} == {now.lineage}
    assert [elapsed(new, now) for _, new in real] == [STEADY + LATER - old.steady for old, _ in real]
    assert [new.wall for _, new in real] == [old.wall for old, _ in real]


def test_a_clock_that_is_behind_makes_no_moment_older(state):
    with Store.open(state, host("another", LATER, -7200 * SECOND)) as store:
        memory = BlockingMemory(store, "a test")
        now = memory.clock.now()
        assert {elapsed(at, now) for at in moments(from_rows(memory.load_ledger())) if at.lineage} == {0}


def test_the_upgrade_is_saved_once_and_continued_in_any_boot(state):
    clock = host(BOOT, LATER)
    with Store.open(state, clock) as store:
        memory = BlockingMemory(store, "a test")
        assert store.clock_record() is None, "a start writes nothing by itself"
        ledger = from_rows(memory.load_ledger())
        memory.save_ledger(to_rows(ledger))
        saved = store.clock_record()
        lineage, ages = memory.clock.now().lineage, [elapsed(at, memory.clock.now()) for at in moments(ledger)]
    assert saved is not None
    clock.advance(10 * SECOND)
    clock.move("another boot", "another machine", 3 * SECOND)
    with Store.open(state, clock) as store:
        memory = BlockingMemory(store, "a test")
        rows = store.load_ledger()
        assert memory.load_ledger() == rows
        assert not any(BOOT in text for text in rows.values())
        now, again = memory.clock.now(), from_rows(rows)
        assert now.lineage == lineage
        assert [elapsed(at, now) for at in moments(again) if at.lineage] == [
            age + 10 * SECOND for at, age in zip(moments(ledger), ages, strict=True) if at.lineage
        ]
        # Nothing to write: the clock alone is no reason.
        assert memory.save_ledger(rows) == 0
        assert store.clock_record() == saved


def test_an_order_that_waits_over_the_upgrade_keeps_its_moment(state):
    with Store.open(state, host(BOOT, LATER)) as store:
        memory = BlockingMemory(store, "a test")
        [(_, command)], [row] = memory.commands(), store.pending()
        assert row.at.lineage == BOOT
        assert elapsed(command.at, memory.clock.now()) == STEADY + LATER - row.at.steady


def test_a_damaged_clock_begins_again_and_moments_go_by_the_wall_clock(tmp_path):
    clock = VirtualClock()
    with Store.open(tmp_path / "state", clock) as store:
        memory = BlockingMemory(store, "a test")
        at = memory.clock.now()
        memory.save_ledger({("wanted", "a thing"): json.dumps(at)})
    with closing(sqlite3.connect(tmp_path / "state" / "state.db")) as db:
        db.execute("UPDATE clock SET steady = 'x'")
        db.commit()
    clock.advance(7 * SECOND)
    with Store.open(tmp_path / "state", clock) as store:
        memory = BlockingMemory(store, "a test")
        [moment] = moments(from_rows(memory.load_ledger()))
        assert moment.lineage == memory.clock.now().lineage != at.lineage
        assert elapsed(moment, memory.clock.now()) == 7 * SECOND


def test_the_record_of_the_clock_is_saved_with_the_ledger_only(tmp_path):
    clock = VirtualClock()
    with Store.open(tmp_path / "state", clock) as store:
        assert store.clock_record() is None
        instance = InstanceClock(clock, None)
        rows = {("wanted", "a thing"): "1"}
        store.save_ledger(rows, clock=instance.record())
        first = store.clock_record()
        assert first == instance.record()
        clock.advance(SECOND)
        store.save_ledger(rows, clock=instance.record())
        store.put_decision({"a": 1})
        assert store.clock_record() == first
        store.save_ledger({}, clock=instance.record())
        assert store.clock_record() == ClockRecord(*instance.record())


def test_an_earlier_version_refuses_the_file(tmp_path):
    Store.open(tmp_path / "state", VirtualClock()).close()
    with pytest.raises(StoreError, match="knows versions up to 5"):
        open_database(tmp_path / "state", BEGUN, WITHOUT_CLOCK)
