import json
import os
import re
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from manifests.values.desired import SECOND
from reconciler.shell.clock import SystemClock, utc
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


def moment(seconds_ago: int) -> str:
    """A time of RFC 3339 so long ago, with an offset that is not UTC's."""
    at = datetime.fromtimestamp(SystemClock().now().wall // SECOND - seconds_ago, timezone(timedelta(hours=2)))
    return at.isoformat()


def steps(done) -> list[str]:
    return [event["step"] for event in done.document["events"]]


def test_events_of_a_span_of_time(stored, reconcile):
    now = SystemClock().now().wall
    for minutes in (50, 40, 30, 20, 10):
        record(stored, step=f"{minutes} min ago", wall=now - minutes * 60 * SECOND)
    shown = ["40 min ago", "30 min ago"]
    ask = ["events", "--object", "workload/web", "-o", "json"]
    assert steps(reconcile(*ask, "--since", "45m", "--until", "25m")) == shown
    assert steps(reconcile(*ask, "--since", moment(45 * 60), "--until", moment(25 * 60))) == shown
    assert steps(reconcile(*ask, "--since", moment(45 * 60), "--until", "25m")) == shown
    assert steps(reconcile(*ask, "--since", "45m", "--until", "25m", "--object", "workload/api")) == []
    assert "30 min ago" in reconcile("events", "--until", "25m").out
    assert "20 min ago" not in reconcile("events", "--until", "25m").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--since", "10m", "--until", "20m"], "--since is later than --until"),
        (["--until", "2h"], "--since is later than --until"),
        (["--since", "yesterday"], "'yesterday' is not a time of RFC 3339: use a time such as 2030-01-31T22:00:00Z"),
        (["--until", "2030-01-31T22:00:00"], "has no offset from UTC"),
        (["--until", "2030-02-31T22:00:00Z"], "is not a valid date and time"),
    ],
)
def test_a_span_of_time_that_is_none_is_a_usage_error(stored, reconcile, words, message):
    done = reconcile("events", *words)
    assert done.code == 64
    assert message in done.err


def test_follow_ends_at_its_time_with_the_events_up_to_then(stored):
    record(stored, object="workload/api/0", step="of another object")
    until = SystemClock().now().wall + 12 * SECOND
    words = [sys.executable, "-m", "reconciler", "events", "--state-dir", str(stored), "--follow", "-o", "json"]
    words += ["--object", "workload/web", "--until", utc(until).isoformat()]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child, child.stdout as lines:
        json.loads(lines.readline())
        record(stored, step="while following", wall=until - SECOND)
        record(stored, step="too late", wall=until + SECOND)
        rest = [json.loads(line)["step"] for line in lines]
        assert child.wait(120) == 0
    assert "while following" in rest
    assert "too late" not in rest
    assert "of another object" not in rest
