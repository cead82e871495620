import json
import os
import re
import signal
import subprocess
import sys

from manifests.values.desired import SECOND
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.state_db import AuditRow, Store

TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")


def record(stored, **more) -> None:
    now = SystemClock().now().wall
    row = AuditRow(
        now, "reconcile --watch", "f", "", "restart x", "BackOff", "", "held", "workload/web/0", "3 failures"
    )
    with Store.open(stored, SystemClock()) as store:
        store.audit([row._replace(**{"wall": now, **more})])


def test_events_are_shown_oldest_first(stored, reconcile, golden):
    record(stored)
    record(stored, kind="released")
    record(
        stored,
        kind="verdict",
        step="liveness of small-web-01234567-0",
        cause="pass -> fail",
        message="3/3: HTTP 503",
        outcome="acted on: restart granted (LivenessFailed)",
    )
    done = reconcile("events")
    assert done.code == 0
    golden("cli/events.txt", TIMES.sub("TIME", done.out))


def test_events_can_be_asked_for_by_object_and_age(stored, reconcile):
    record(stored, object="workload/web/10")
    record(stored, object="workload/web", step="old", wall=SystemClock().now().wall - 7200 * SECOND)
    assert "workload/web/10" in reconcile("events", "--object", "workload/web").out
    assert "workload/web/10" not in reconcile("events", "--object", "workload/web/1").out
    assert "old" not in reconcile("events").out
    assert "old" in reconcile("events", "--since", "3h").out
    assert reconcile("events", "--object", "workload/none").out.startswith("no events in that time; no object is named")


def test_events_of_an_endpoint_match_a_pool_name_with_capitals(stored, reconcile):
    record(stored, object="endpoint/lb/WEB/127.0.0.10:8080")
    assert "endpoint/lb/WEB" in reconcile("events", "--object", "endpoint/lb/WEB/127.0.0.10:8080").out
    record(stored, object="workload/web/1")
    assert "workload/web/1" in reconcile("events", "--object", "Workload/WEB/1").out


def test_events_as_json_are_one_document(stored, reconcile):
    record(stored)
    events = reconcile("events", "-o", "json").document["events"]
    assert events[-1]["kind"] == "held"
    assert events[-1]["cause"] == "BackOff"


def test_follow_shows_new_events_until_it_is_interrupted(stored):
    words = [sys.executable, "-m", "reconciler", "events", "--state-dir", str(stored), "--follow", "-o", "json"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child, child.stdout as lines:
        first = json.loads(lines.readline())
        record(stored, step="while following")
        for line in lines:
            if json.loads(line)["step"] == "while following":
                break
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(120) == 130
    assert first["kind"] == "evidence"
