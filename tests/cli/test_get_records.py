"""`reconcile get records` and `get healthchecks`: the text and the JSON for DNS names and the health behind them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifests.values.desired import SECOND, Desired, Guard, Instance, Provider, Role
from manifests.values.dns import (
    AllUnhealthy,
    Check,
    DNSPolicy,
    HealthCheck,
    Publish,
    Record,
    RecordList,
    Routing,
    Target,
)
from providers.facts import Known, ProbeFact, ProbeValue, RecordKey, RecordSet, Unknown, ZoneFact
from reconciler.core.decide import decide
from reconciler.core.model.observed import Observed
from reconciler.core.model.target_probe import TargetProbe
from reconciler.shell.clock import SystemClock
from reconciler.shell.report.summary import decision_document
from reconciler.shell.store.state_db import Store

ZONE = "example.test."
CHECK = Check(host="app.example.test", port=8443, path="/up")
CLOUD = HealthCheck("healthcheck/cloud", "cloud", "lb.cloud.example.", replace(CHECK, host="lb.cloud.example"))
PASS, FAIL, UNKNOWN, CANNOT_RUN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN
AGES = re.compile(r"(just now|\d+[smhd]+(\d+[smhd])? ago) *")


def desired(*policies: DNSPolicy) -> Desired:
    return Desired(
        source="/srv/manifests",
        revision="f" * 64,
        root="/srv/manifests",
        complete=True,
        instance=Instance("small"),
        guard=Guard(),
        providers=(Provider("provider/zone", "zone", "zonefile", Role.DNS, {}),),
        workloads=(),
        services=(),
        policies=policies,
        checks=(CLOUD,),
        records=(
            Record("record/mail", "mail", ZONE, "zone", ZONE, "MX", 300, ("10 mail.example.test.",)),
            Record("record/txt", "txt", f"note.{ZONE}", "zone", ZONE, "TXT", 60, ('"hello"',)),
        ),
    )


APP = DNSPolicy(
    "dnspolicy/app",
    "app",
    f"app.{ZONE}",
    "zone",
    ZONE,
    (Target("all", Publish.ADDRESSES, addresses=("203.0.113.1", "203.0.113.2", "203.0.113.3")),),
    check=CHECK,
    all_unhealthy=AllUnhealthy.PUBLISH_ALL,
)
PLAIN = replace(
    APP,
    key="dnspolicy/plain",
    name="plain",
    host=f"plain.{ZONE}",
    check=None,
    all_unhealthy=AllUnhealthy.FREEZE,
    routing=Routing.SIMPLE,
    targets=(Target("cloud", Publish.HOSTNAME, hostname="lb.cloud.example.", check="healthcheck/cloud"),),
)


def probe_fact(
    value: ProbeValue, last: ProbeValue, streak: int, detail: str, now: int, threshold: int = 5
) -> ProbeFact:
    return ProbeFact(value, last, streak, threshold, now - 9 * SECOND, now - 3 * SECOND, 93 * SECOND, detail)


@pytest.fixture
def keep(home: Path) -> Callable[..., None]:
    """Stores the decision over this zone, as the last run would have left it."""

    def store(wanted: Desired, zone: ZoneFact | None) -> None:
        clock = SystemClock()
        now = clock.now()
        facts = {
            TargetProbe("203.0.113.1", CHECK): probe_fact(PASS, PASS, 40, "HTTP 200", now.steady, 1),
            TargetProbe("203.0.113.2", CHECK): probe_fact(FAIL, FAIL, 6, "HTTP 503", now.steady),
            TargetProbe("203.0.113.3", CHECK): probe_fact(
                CANNOT_RUN, CANNOT_RUN, 0, "the secret is missing", now.steady
            ),
            TargetProbe(CLOUD.address, CLOUD.check): probe_fact(PASS, FAIL, 2, "203.0.113.80: HTTP 500", now.steady),
        }
        known = Unknown("no answer", "zone", now.steady) if zone is None else Known(zone, "zone", now.steady)
        observed = Observed(zones={("zone", ZONE): known}, target_answers=facts, source_read_at=now.steady)
        with Store.open(home / "small", clock) as kept:
            kept.put_decision(decision_document(decide(wanted, observed, now), wanted, now))

    return store


def zone(app: tuple[str, ...] = ()) -> ZoneFact:
    """What is published: these addresses of `app`, and the rest of the zone."""
    mail, name = RecordKey(ZONE, "MX"), RecordKey(f"app.{ZONE}", "A")
    sets = {mail: RecordSet(300, ("10 mail.example.test.",))} | ({name: RecordSet(60, app)} if app else {})
    return ZoneFact(ZONE, 1, sets, {mail: "small/record/mail", name: "small/dnspolicy/app"})


def plain(text: str) -> str:
    return AGES.sub("AGE  ", text)


def leaf(document: dict[str, Any], address: str) -> dict[str, Any]:
    return next(leaf_row for name in document["names"] for leaf_row in name["leaves"] if leaf_row["address"] == address)


def test_each_address_is_shown_with_its_health_and_why_it_is_published(keep, reconcile, golden) -> None:
    keep(desired(APP, PLAIN), zone(app=("203.0.113.1", "203.0.113.2", "203.0.113.3")))
    done = reconcile("get", "records", "--instance-id", "small")
    assert (done.code, done.err) == (0, "")
    golden("cli/get-records.txt", plain(done.out))


def test_a_script_gets_the_same_with_instants(keep, reconcile) -> None:
    keep(desired(APP), zone(app=("203.0.113.1", "203.0.113.3")))
    document = reconcile("get", "records", "--instance-id", "small", "-o", "json").document
    bad = leaf(document, "203.0.113.2")
    assert (bad["healthy"], bad["published"]) == (False, False)
    assert (bad["check"]["consecutive_failures"], bad["check"]["failure_threshold"]) == (6, 5)
    assert bad["check"]["reason"] == "HTTP 503"
    assert bad["check"]["last_check"].endswith("Z")
    good, unsure = leaf(document, "203.0.113.1"), leaf(document, "203.0.113.3")
    assert (good["healthy"], good["published"], good["check"]["consecutive_failures"]) == (True, True, 0)
    assert (unsure["healthy"], unsure["published"]) == (None, True)
    assert [row["type"] for row in document["records"]] == ["MX", "TXT"]
    assert [record["published"] for record in document["records"]] == [["10 mail.example.test."], []]


def test_a_zone_that_cannot_be_read_leaves_published_unknown(keep, reconcile) -> None:
    keep(desired(APP), None)
    document = reconcile("get", "records", "--instance-id", "small", "-o", "json").document
    assert document["names"][0]["published"] is None
    assert {leaf["published"] for leaf in document["names"][0]["leaves"]} == {None}
    assert "cannot be read" in reconcile("get", "records").out


def test_health_checks_say_what_they_ask_and_what_they_decide(keep, reconcile, golden) -> None:
    keep(desired(APP, PLAIN), zone(app=("203.0.113.1",)))
    done = reconcile("get", "healthchecks")
    assert (done.code, done.err) == (0, "")
    golden("cli/get-healthchecks.txt", plain(done.out))
    (row,) = reconcile("get", "healthchecks", "-o", "json").document["healthchecks"]
    assert (row["healthy"], row["consecutive_failures"]) == (True, 2)
    assert row["decides_about"] == ["dnspolicy/plain/cloud"]
    assert row["last_check"].endswith("Z")


def test_an_empty_result_is_stated(keep, reconcile) -> None:
    keep(replace(desired(), checks=(), records=()), zone())
    assert reconcile("get", "records").out.startswith("no DNS records in the manifests")
    assert reconcile("get", "healthchecks").out.startswith("no HealthCheck in the manifests")


@pytest.mark.parametrize("what", ["records", "healthchecks"])
def test_an_instance_that_never_ran_is_reported(what, tree, reconcile) -> None:
    done = reconcile("get", what, tree)
    assert done.code == 6
    assert "has never run" in done.err


def test_states_are_coloured_by_their_meaning(keep, reconcile) -> None:
    keep(desired(APP), zone(app=("203.0.113.1",)))
    out = reconcile("get", "records", "--color", "always").out
    assert "\x1b[31munhealthy" in out
    assert "\x1b[32mhealthy" in out


def test_a_record_list_shows_how_many_of_its_sets_are_published(keep, reconcile) -> None:
    sets = {(f"n{index}.{ZONE}", "A", ""): (300, ("192.0.2.1",), None, "", False) for index in range(3)}
    wanted = replace(desired(), records=(), record_lists=(RecordList("recordlist/all", "all", "zone", ZONE, sets),))
    first = RecordKey(f"n0.{ZONE}", "A")
    zone = ZoneFact(ZONE, 1, {first: RecordSet(300, ("192.0.2.1",))}, {first: "small/recordlist/all"})
    keep(wanted, zone)
    done = reconcile("get", "records", "--instance-id", "small")
    assert [line.split() for line in done.out.splitlines()[:2]] == [
        ["RECORD", "LIST", "ZONE", "RECORD", "SETS", "PUBLISHED"],
        ["all", "example.test", "3", "1"],
    ]
    keep(wanted, None)
    document = reconcile("get", "records", "--instance-id", "small", "-o", "json").document
    assert document["lists"] == [{"key": "recordlist/all", "zone": ZONE, "wanted": 3, "published": None}]
