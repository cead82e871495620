import json
import os
import threading

from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import apply_commands
from reconciler.core.model.reasons import Rule
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock
from reconciler.shell.store.memory import BlockingMemory
from reconciler.shell.store.state_db import Store


def inbox(state) -> list[tuple[str, dict, str]]:
    with Store.join(state, SystemClock()) as store:
        return [(row.command, json.loads(row.payload), row.who) for row in store.pending()]


def test_a_suspension_waits_in_the_inbox_for_the_next_run(stored, reconcile):
    done = reconcile("suspend", "workload/web/1", "--reason", "debugging", "--for", "30m")
    assert done.code == 0
    assert "the next 'reconcile --once PATH' or" in done.out
    [(verb, word, who)] = inbox(stored)
    left = word["until_wall"] - SystemClock().now().wall
    assert (verb, word["object"], word["reason"], who) == ("suspend", "workload/web/1", "debugging", "ada")
    assert 29 * 60e9 < left <= 30 * 60e9


def test_a_node_and_its_probes_can_be_suspended_and_resumed(stored, reconcile):
    assert reconcile("suspend", "--node", "local", "--probes", "--reason", "kernel update").code == 0
    [(_, word, _)] = inbox(stored)
    assert (word["object"], word["probes"]) == ("node/local", True)
    with Store.open(stored, SystemClock()) as store:
        ledger = apply_commands(
            from_rows(store.load_ledger()), tuple(command for _, command in BlockingMemory(store, "test").commands())
        )
    assert ledger.suspensions["node/local"].probes is True
    assert from_rows(to_rows(ledger)) == ledger
    assert reconcile("resume", "--node", "local").code == 0
    assert reconcile("suspend", "--node", "lokal", "--reason", "x").code == 64
    assert reconcile("suspend", "service/web", "--probes", "--reason", "x").code == 64


def test_the_next_run_obeys_what_is_in_the_inbox(stored, reconcile):
    reconcile("suspend", "--all", "--reason", "maintenance")
    reconcile("resume", "workload/web")
    with Store.open(stored, SystemClock()) as store:
        words = tuple(command for _, command in BlockingMemory(store, "test").commands())
        ledger = apply_commands(from_rows(store.load_ledger()), words)
    assert set(ledger.suspensions) == {"*"}
    assert ledger.suspensions["*"][:2] == ("ada", "maintenance")


def test_a_running_daemon_takes_a_command_at_once(stored, reconcile):
    clock = SystemClock()
    with Lock.acquire(stored, "reconcile --watch", clock), Store.open(stored, clock) as store:
        done = threading.Event()

        def fold() -> None:
            while not done.wait(0.01):
                if pending := store.pending():
                    store.save_ledger(store.load_ledger(), [row.id for row in pending])
                    return

        daemon = threading.Thread(target=fold)
        daemon.start()
        answer = reconcile("suspend", "workload/web", "--reason", "debugging", "-o", "json")
        done.set()
        daemon.join()
    assert answer.document["in_effect"] is True


def test_an_order_that_a_process_without_a_record_does_not_take_fails(stored, reconcile):
    with Lock.acquire(stored, "reconcile --watch", SystemClock()):
        (stored / "lock.owner").unlink()  # as on a full disk: the lock is held, and nothing names its holder
        done = reconcile("resume", "workload/web")
    assert done.code == 1
    assert f"the running reconcile (pid {os.getpid()}) has not recorded the order" in done.err
    assert "no reconcile process" not in done.out + done.err
    assert [verb for verb, _, _ in inbox(stored)] == ["resume"], "it is taken once it can be recorded"


def test_resuming_everything_names_each_suspension_once(stored, tree, reconcile):
    assert reconcile("suspend", "service/web", tree, "--reason", "x").code == 0
    reconcile("suspend", "--all", "--reason", "maintenance")
    done = reconcile("resume", "--all", "-o", "json")
    assert done.code == 0
    assert [row["object"] for row in done.document["words"]] == ["*", "service/web", "workload/web"]


def test_a_service_is_known_from_the_stored_decision(stored, reconcile):
    done = reconcile("suspend", "service/web", "--reason", "x")
    assert done.code == 0
    assert [command for command, _, _ in inbox(stored)] == ["suspend"]


def test_resuming_an_object_that_is_not_suspended_is_refused(stored, reconcile):
    done = reconcile("resume", "workload/web/1")
    assert done.code == 64
    assert "workload/web/1 is not suspended" in done.err
    assert "suspended: workload/web" in done.err
    assert inbox(stored) == []


def test_an_unknown_key_is_refused_with_a_suggestion(stored, reconcile):
    done = reconcile("suspend", "workload/wbe", "--reason", "x")
    assert done.code == 64
    assert "did you mean 'workload/web'?" in done.err
    assert inbox(stored) == []


def test_a_suspension_may_come_before_the_first_run(tree, home, reconcile):
    assert reconcile("suspend", "workload/web", "--reason", "x", "--instance-id", "small").code == 64
    assert not home.exists()
    assert reconcile("suspend", "workload/web", tree, "--reason", "x").code == 0
    assert [word["object"] for _, word, _ in inbox(home / "small")] == ["workload/web"]


def test_a_rolling_rollout_that_is_stuck_can_be_resumed(stored, reconcile):
    with Store.open(stored, SystemClock()) as store:
        last = json.loads(store.last_decision().text)
        last["status"]["suspensions"] = []
        last["holds"].append(last["holds"][0] | {"object": "workload/web", "rule": Rule.PROGRESS.value})
        store.put_decision(last)
        ledger = store.load_ledger()
        store.save_ledger({key: row for key, row in ledger.items() if key[0] != "suspensions"})
    assert reconcile("resume", "workload/web").code == 0
    assert [(command, word["object"]) for command, word, _ in inbox(stored)] == [("resume", "workload/web")]


def folded(stored):
    with Store.open(stored, SystemClock()) as store:
        words = tuple(command for _, command in BlockingMemory(store, "test").commands())
        return apply_commands(from_rows(store.load_ledger()), words)


def test_commits_and_healing_are_suspended_and_resumed_apart(stored, reconcile):
    done = reconcile("suspend", "--commits", "--reason", "freeze", "--for", "1h")
    assert (done.code, done.out.partition(":")[0]) == (0, "new commits")
    assert reconcile("suspend", "workload/web/1", "--healing", "--reason", "debugging").code == 0
    assert reconcile("suspend", "--all", "--healing", "--reason", "tests").code == 0
    scoped = set(folded(stored).suspensions) - {"workload/web"}
    assert scoped == {"commits:*", "healing:workload/web/1", "healing:*"}
    assert from_rows(to_rows(folded(stored))) == folded(stored)
    assert reconcile("resume", "workload/web/1").code == 64, "all actions on it are not suspended"
    assert reconcile("resume", "--commits").code == 0
    assert reconcile("resume", "workload/web/1", "--healing").code == 0
    assert set(folded(stored).suspensions) == {"healing:*", "workload/web"}
    again = reconcile("resume", "--commits")
    assert again.code == 64
    assert "suspended: healing of everything, workload/web" in again.err
    assert reconcile("resume", "--all").code == 0
    assert folded(stored).suspensions == {}


def test_scopes_that_make_no_sense_are_refused(stored, reconcile):
    for words in (
        ("workload/web", "somewhere", "--commits"),
        ("--node", "local", "--commits"),
        ("--all", "--commits", "--healing"),
        ("service/web", "--healing"),
        ("--all", "--healing", "--probes"),
        ("--commits", "--probes"),
        ("--healing",),
    ):
        answer = reconcile("suspend", *words, "--reason", "x")
        assert answer.code == 64, (words, answer.out, answer.err)
        assert "Traceback" not in answer.err
    assert inbox(stored) == []
