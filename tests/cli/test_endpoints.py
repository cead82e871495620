import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Push
from providers.facts import Generation
from reconciler.core.decide import decide
from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.override import Force, Override
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.shell.clock import SystemClock
from reconciler.shell.report.summary import decision_document
from reconciler.shell.store.state_db import Store

AGES = re.compile(r"just now|\d+[smhd]+(\d+[smhd]+)? ago|(?<=unchanged for )[\dsmhd]+")
LEFT = re.compile(r"for \d+[smhd]+(\d+[smhd]+)? more")
FIRST, SECOND_ONE = "endpoint/pool/web/127.0.0.10:8080", "endpoint/pool/web/127.0.0.11:8080"


def plain(text: str) -> str:
    return LEFT.sub("for TIME more", AGES.sub("AGE", text))


@pytest.fixture
def drained(stored, decided) -> None:
    """The stored decision, after the operator drained replica 0, which has pushed that it is ready."""
    clock = SystemClock()
    before, now = decided(clock), clock.now()
    status = before.status
    assert status.desired is not None
    push = PushFact(PushEvent.READY, now.steady - 2 * SECOND, now.steady - 60 * SECOND, "boot", 9, inflight=3)
    override = Override(
        Force.DRAIN, Instant(now.wall, now.steady, now.lineage), "ada", "bad disk", now.wall + 600 * SECOND
    )
    ledger = Ledger(source=status.desired.source, overrides={"workload/web/0": override})
    observed = status.observed
    workload = status.desired.workloads[0]
    desired = replace(status.desired, workloads=(replace(workload, push=Push()),))
    observed = replace(observed, ledger=ledger, pushes={Generation("id-0", 5): push})
    decision = decide(desired, observed, now)
    with Store.open(stored, clock) as store:
        store.put_decision(decision_document(decision, desired, now))


def test_endpoints_are_shown_with_what_decided_their_weight(drained, reconcile, golden):
    done = reconcile("get", "endpoints")
    assert (done.code, done.err) == (0, "")
    golden("cli/get-endpoints.txt", re.sub(" {2,}", "  ", plain(done.out)))


def test_an_endpoint_is_explained(drained, reconcile, golden):
    done = reconcile("explain", FIRST)
    assert (done.code, done.err) == (0, "")
    golden("cli/explain-endpoint.txt", plain(done.out))


def test_explaining_a_replica_says_why_its_endpoints_weigh_what_they_do(drained, reconcile):
    out = reconcile("explain", "workload/web/0").out
    assert (
        f"  {FIRST}: draining, weight 100 -> 0: DrainedByOperator (an operator drained it; its probes disagree)" in out
    )


def test_endpoints_as_json_say_who_decided(drained, reconcile: Callable):
    first, other = reconcile("get", "endpoints", "-o", "json").document["endpoints"]
    assert (first["key"], first["state"], first["by"], first["weight"]) == (FIRST, "draining", "override", 100)
    assert (first["wanted"], first["override"]["force"], first["push"]["event"]) == (0, "drain", "ready")
    assert (other["key"], other["state"], other["by"], other["weight"]) == (SECOND_ONE, "pending", "observer", None)
    assert other["observer"]["detail"] == "HTTP 503"


def test_a_drained_replica_is_held_not_awaited_and_has_a_next_step(drained, reconcile):
    document = reconcile("status", "-o", "json").document
    [held] = [hold for hold in document["holds"] if hold["object"] == "workload/web/0"]
    assert (held["rule"], held["next_step"]) == ("Overridden", "reconcile release workload/web/0")
    assert held["message"] == "ada drained workload/web/0: bad disk"
    assert held["until"] is not None
    assert [wait for wait in document["waits"] if wait["object"] == "workload/web/0"] == []


def test_an_unknown_endpoint_is_refused_with_a_suggestion(stored, reconcile):
    done = reconcile("explain", "endpoint/pool/web/127.0.0.10:8081")
    assert done.code == 64
    assert f"did you mean '{FIRST}'?" in done.err


def test_a_decision_of_an_older_version_has_no_endpoints(stored, reconcile):
    with Store.join(stored, SystemClock()) as store:
        text = store.last_decision().text
    with Store.open(stored, SystemClock()) as store:
        store.put_decision(json.loads(text.replace('"endpoints":', '"formerly":')))
    assert reconcile("get", "endpoints").out.startswith("no endpoints")
    assert reconcile("explain", "workload/web/0").code == 0
    assert reconcile("drain", "workload/web/1").code == 0
