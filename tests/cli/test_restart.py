import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import instant
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import apply_commands
from reconciler.core.model.restart_request import Fate, Member, Request
from reconciler.shell.clock import SystemClock
from reconciler.shell.looks.wake_pipe import wake_holder
from reconciler.shell.store.lock import Lock
from reconciler.shell.store.memory import BlockingMemory
from reconciler.shell.store.state_db import Store

IDS = re.compile(r"\b[0-9a-f]{8}\b(?!-)")
AGES = re.compile(r"just now|\d+[smhd]+(\d+[smhd])? ago")


def plain(text: str) -> str:
    return AGES.sub("AGE", IDS.sub("REQUEST", text))


def daemon(stored, answer: Callable[[Request], Request]) -> tuple[threading.Thread, threading.Event]:
    """A process that holds the lock, reads commands, and decides every request with `answer`."""
    ready, done = threading.Event(), threading.Event()

    def run() -> None:
        clock = SystemClock()
        with Lock.acquire(stored, "reconcile --watch", clock), Store.open(stored, clock) as store:
            memory = BlockingMemory(store, "test")
            ready.set()
            while not done.wait(0.01):
                commands = memory.commands()
                if not commands:
                    continue
                ledger = apply_commands(from_rows(store.load_ledger()), tuple(command for _, command in commands))
                requests = {name: answer(request) for name, request in ledger.requests.items()}
                store.save_ledger(to_rows(replace(ledger, requests=requests)), [number for number, _ in commands])

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    return thread, done


def decided(*fates: Fate) -> Callable[[Request], Request]:
    def answer(request: Request) -> Request:
        members = tuple(
            Member(f"workload/web/{n}", f"small-web-{n}", (f"id-{n}", 5), fate, "restarted and available")  # type: ignore[arg-type]
            for n, fate in enumerate(fates)
        )
        return request._replace(members=members, finished=instant(SystemClock().now()))

    return answer


def test_without_a_running_process_the_request_is_queued(stored, reconcile, golden):
    done = reconcile("restart", "workload/web", "--reason", "new certificates", "--ordered", "--grace", "5s")
    assert done.code == 0
    golden("cli/restart-queued.txt", plain(done.out))
    with Store.open(stored, SystemClock()) as store:
        [(_, command)] = BlockingMemory(store, "test").commands()
    request = command.request
    assert (request.object, request.who, request.reason) == ("workload/web", "ada", "new certificates")
    assert (request.ordered, request.grace, request.drain, request.deadline) == (True, 5 * SECOND, None, None)


def test_wait_without_a_running_process_ends_at_once_with_a_next_step(stored, reconcile):
    done = reconcile("restart", "workload/web/0", "--wait")
    assert done.code == 6
    assert "reconcile --once PATH" in done.out
    assert "no reconcile process is running" in done.err


@pytest.mark.parametrize(
    ("fates", "code"), [((Fate.DONE, Fate.DONE), 0), ((Fate.DONE, Fate.FAILED), 6), ((Fate.EXPIRED,), 6)]
)
def test_waiting_ends_with_the_fate_of_every_replica_and_an_exit_code(fates, code, stored, reconcile):
    thread, done = daemon(stored, decided(*fates))
    try:
        answer = reconcile("restart", "workload/web", "--wait")
    finally:
        done.set()
        thread.join()
    assert answer.code == code
    for n, fate in enumerate(fates):
        assert f"workload/web/{n}: {fate.value}" in answer.out
    assert answer.out.splitlines()[-1].endswith(f"(exit {code})")


def test_waiting_as_json_is_one_document(stored, reconcile):
    thread, done = daemon(stored, decided(Fate.DONE))
    try:
        answer = reconcile("restart", "workload/web/0", "--wait", "-o", "json")
    finally:
        done.set()
        thread.join()
    assert answer.document["members"][0]["fate"] == "done"
    assert answer.document["exit_code"] == answer.code == 0


def test_a_hold_of_the_operator_is_shown_with_its_next_step(stored, reconcile):
    def expired(request: Request) -> Request:
        members = (Member("workload/web/2", "small-web-2", ("id-2", 5), Fate.EXPIRED, "not begun in time"),)  # type: ignore[arg-type]
        return request._replace(members=members, finished=instant(SystemClock().now()))

    thread, done = daemon(stored, expired)
    try:
        answer = reconcile("restart", "workload/web", "--wait")
    finally:
        done.set()
        thread.join()
    assert answer.code == 7
    assert "next step: reconcile resume workload/web" in answer.out


@pytest.mark.parametrize("key", ["service/web", "workload/wbe", "web"])
def test_a_restart_of_another_object_is_refused(key, stored, reconcile):
    done = reconcile("restart", key)
    assert done.code == 64
    with Store.join(stored, SystemClock()) as store:
        assert store.pending() == ()


def test_one_container_can_be_restarted_by_its_name(stored, reconcile):
    asked = reconcile("restart", "workload/web/0", "--container", "web", "-o", "json").document
    assert (asked["object"], asked["container"]) == ("workload/web/0", "web")
    with Store.open(stored, SystemClock()) as store:
        [(_, command)] = BlockingMemory(store, "test").commands()
    assert command.request.only == "web"


@pytest.mark.parametrize("path", [False, True])
def test_a_container_that_does_not_exist_is_refused_with_those_that_do(path, stored, tree, reconcile):
    # Known from the manifests, and without them from the last decision.
    done = reconcile("restart", "workload/web", *([tree] if path else []), "--container", "wbe")
    assert done.code == 64
    assert "workload/web has no container 'wbe'" in done.err
    assert "its containers: web" in done.err


def test_requests_are_shown_with_their_replicas(stored, reconcile, golden):
    assert "no restart requests" in reconcile("get", "requests").out
    now = instant(SystemClock().now())
    request = decided(Fate.DONE, Fate.SKIPPED)(Request("workload/web", now, "ada", "new certificates"))
    open_ = Request(
        "workload/web/1", now._replace(wall=now.wall - 60 * SECOND), "ci", members=request.members[1:], only="proxy"
    )
    with Store.open(stored, SystemClock()) as store:
        ledger = from_rows(store.load_ledger())
        store.save_ledger(to_rows(replace(ledger, requests={"0a0b0c0d": request, "1a1b1c1d": open_})))
    golden("cli/get-requests.txt", AGES.sub("AGE", reconcile("get", "requests").out))
    document = reconcile("get", "requests", "-o", "json").document
    assert [row["state"] for row in document["requests"]] == ["done", "running"]
    assert [row["container"] for row in document["requests"]] == [None, "proxy"]
    assert "0a0b0c0d" in json.dumps(document)
    explained = reconcile("explain", "workload/web").out
    assert "restart request 0a0b0c0d: done" in explained
    assert "restart request 1a1b1c1d for container proxy: running" in explained


def test_waking_without_a_listener_is_no_error(stored):
    assert wake_holder(stored) is False
