"""Rows of an earlier version that say on which nodes a probe has passed: they become rows of the revision in force, once."""

from dataclasses import replace

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import to_rows
from reconciler.core.model.passed_probe import probe_key
from reconciler.core.model.revision import RevisionMark
from reconciler.shell.store.ledger_store import LedgerStore
from tests.sim.memory import SimMemory
from tests.sim.world import Tape

NOW = Now(1_800_000_000, 77, "boot")
WEB = "workload/web"
PASSED = probe_key(WEB, "aaaa", "liveness")


async def opened(memory: SimMemory) -> tuple[LedgerStore, Ledger]:
    """The store of the next process, and what it reads."""
    store = LedgerStore(memory.handle(lambda _: None), Tape())
    return store, await store.load(NOW)


async def test_rows_with_a_node_are_replaced_and_never_count_later():
    memory = SimMemory()
    memory.rows = to_rows(Ledger(revisions={WEB: RevisionMark(1, "aaaa")}))
    memory.rows |= {("passed", f"{WEB}|liveness|{node}"): "true" for node in ("node-a", "node-b")}
    before = dict(memory.rows)

    store, ledger = await opened(memory)
    assert ledger.passed == {PASSED}
    await store.save(ledger, ())
    assert memory.rows == before, "nothing has changed, so nothing is written"

    await store.save(replace(ledger, revisions={WEB: RevisionMark(2, "bbbb")}), ())
    assert {key for section, key in memory.rows if section == "passed"} == {PASSED}
    assert (await opened(memory))[1].passed == {PASSED}


async def test_a_killed_process_leaves_the_rows_to_the_next_one():
    memory = SimMemory()
    memory.rows = to_rows(Ledger(revisions={WEB: RevisionMark(1, "aaaa")}))
    memory.rows["passed", f"{WEB}|liveness|node-a"] = "true"
    await opened(memory)
    assert (await opened(memory))[1].passed == {PASSED}
