"""`reconcile rollback`: the command that is queued, and what is refused."""

import json
from pathlib import Path

import pytest

from reconciler.core.model.instant import Instant
from reconciler.core.model.revision import Revision, Rollout, Standing
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.state_db import Store

LONG_AGO = Instant(5, 5, "before")

SERVING = Revision("b" * 16, 2, Standing.ACTIVE, LONG_AGO, activated=LONG_AGO)
BEFORE = Revision("a" * 16, 1, Standing.SUPERSEDED, LONG_AGO, activated=LONG_AGO, ended=LONG_AGO)


def store_history(state: Path, *rows: Revision) -> None:
    """Store the rollout history of workload/web, as the last run left it; none without rows."""
    with Store.open(state, SystemClock()) as store:
        ledger = store.load_ledger()
        ledger.pop(("rollouts", "workload/web"), None)
        if rows:
            ledger["rollouts", "workload/web"] = json.dumps(Rollout(SERVING.revision, rows=rows))
        store.save_ledger(ledger)


def queued(state: Path) -> list[tuple[str, str]]:
    with Store.join(state, SystemClock()) as store:
        return [(row.command, row.payload) for row in store.pending()]


@pytest.mark.parametrize("rows", [(BEFORE, SERVING), (SERVING, BEFORE._replace(number=3, standing=Standing.SCHEDULED))])
def test_a_rollback_is_queued_for_the_process_that_holds_the_instance(rows, stored, reconcile):
    store_history(stored, *rows)
    done = reconcile("rollback", "workload/web", "--reason", "checkout fails", "-o", "json")
    assert done.code == 0
    assert (done.document["object"], done.document["who"], done.document["taken"]) == ("workload/web", "ada", False)
    assert queued(stored) == [("rollback", '{"object": "workload/web", "reason": "checkout fails"}')]


@pytest.mark.parametrize("key", ["workload/web/0", "service/web", "workload/wbe"])
def test_a_rollback_of_another_object_is_refused(key, stored, reconcile):
    assert reconcile("rollback", key).code == 64
    assert not queued(stored)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "workload/web has no known revisions"),
        ((SERVING,), "workload/web has no previous revision"),
        ((BEFORE._replace(standing=Standing.FAILED, activated=None), SERVING), "no previous revision"),
    ],
)
def test_a_rollback_without_a_previous_revision_is_refused(rows, message, stored, reconcile):
    store_history(stored, *rows)
    done = reconcile("rollback", "workload/web")
    assert (done.code, message in done.err) == (64, True), done.err
    assert not queued(stored)


def test_a_rollback_is_refused_without_a_run_or_a_kept_revision(tree, stored, reconcile):
    done = reconcile("rollback", "workload/web", tree, "--state-dir", tree / "none")
    assert (done.code, "workload/web has no known revisions" in done.err) == (64, True), done.err
    assert not (tree / "none").exists()
    store_history(stored, BEFORE, SERVING)
    done = reconcile("rollback", "workload/web", tree)
    assert (done.code, "strategy rolling" in done.err) == (64, True), done.err
    assert not queued(stored)
