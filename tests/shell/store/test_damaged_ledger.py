"""A ledger with rows that cannot be decoded: each is set aside alone, and what it may have limited is on the side that holds."""

import asyncio
import json
from dataclasses import replace

import pytest

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger, Suspension
from reconciler.core.model.ledger_codec import to_rows
from reconciler.shell.store.ledger_store import LedgerStore
from tests.sim.memory import SimMemory
from tests.sim.world import Tape

NOW = Now(1_800_000_000, 77, "boot")
AT = (1, 2, "boot")
LEDGER = Ledger(
    wanted={"create a": AT, "create b": AT},  # type: ignore[dict-item]
    attempts={"workload/web/0": (AT,), "workload/web/1": (AT,)},  # type: ignore[dict-item]
    suspensions={"workload/db": Suspension("ann", "a test", 0), "workload/web": Suspension("ann", "another", 0)},
)


def load(damage: dict[tuple[str, str], str]) -> tuple[Ledger, SimMemory, Tape]:
    memory, tape = SimMemory(), Tape()
    memory.rows = to_rows(LEDGER) | damage
    return asyncio.run(LedgerStore(memory.handle(lambda _: None), tape).load(NOW)), memory, tape


@pytest.mark.parametrize("text", ['"x"', "{", "[1]", '["a", "b", "c"]', "null", '[1, 2, "b", 4]', "3"])
def test_one_row_that_cannot_be_decoded_loses_no_other(text):
    ledger, memory, tape = load({("wanted", "create a"): text})
    assert ledger == replace(load({})[0], wanted={"create b": LEDGER.wanted["create b"]})
    assert memory.quarantined == [("wanted", "create a", text)]
    assert ("wanted", "create a") not in memory.rows
    assert any("create a" in note for _, note in tape.notes)


def test_without_a_row_that_limits_restarts_the_history_is_incomplete():
    ledger, _, _ = load({("attempts", "workload/web/0"): "[[1]]"})
    assert ledger.history_lost == (NOW.wall, NOW.steady, NOW.lineage)
    assert set(ledger.attempts) == {"workload/web/1"}
    assert load({("wanted", "create a"): "3"})[0].history_lost is None


def test_a_damaged_suspension_stays_until_the_operator_resumes_it():
    ledger, _, tape = load({("suspensions", "workload/db"): json.dumps({"who": "?"})})
    assert set(ledger.suspensions) == {"workload/db", "workload/web"}
    assert ledger.suspensions["workload/db"].until_wall == 0
    assert any("reconcile resume workload/db" in note for _, note in tape.notes)
