"""Rows of health checks: health, failures and reasons."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.dns import Check, DNSPolicy, HealthCheck, Publish, Target
from providers.facts import ProbeFact, ProbeValue
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.status.names import answer_row, check_rows
from tests.builders import NOW
from tests.sim.manifest import Shop

PASS, FAIL, UNKNOWN, CANNOT_RUN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN
CHECK = Check(host="app.example.com")
PROBE = TargetProbe("203.0.113.1", CHECK)


def fact(value: ProbeValue, last: ProbeValue, streak: int = 1, threshold: int = 5, age: int = SECOND) -> ProbeFact:
    return ProbeFact(value, last, streak, threshold, NOW.steady - age, NOW.steady - age, 93 * SECOND, "HTTP 503")


@pytest.mark.parametrize(
    ("given", "healthy", "failures"),
    [
        (fact(PASS, PASS, 3, 1), True, 0),
        (fact(PASS, FAIL, 4), True, 4),
        (fact(FAIL, FAIL, 7), False, 7),
        (fact(FAIL, UNKNOWN, 5), False, 5),
        (fact(PASS, UNKNOWN, 2), True, 2),
        (fact(PASS, UNKNOWN, 2, 1), True, 0),
        (fact(UNKNOWN, FAIL, 1), None, 1),
        (fact(UNKNOWN, UNKNOWN, 0), None, 0),
        (fact(CANNOT_RUN, CANNOT_RUN, 0), None, 0),
    ],
)
def test_health_and_consecutive_failures_follow_the_last_results(given, healthy, failures) -> None:
    row = answer_row(PROBE, {PROBE: given}, NOW)
    assert (row["healthy"], row["consecutive_failures"], row["failure_threshold"]) == (healthy, failures, 5)
    assert (row["reason"], row["last_check_wall"]) == ("HTTP 503", NOW.wall - SECOND)


def test_a_result_that_is_too_old_does_not_count() -> None:
    row = answer_row(PROBE, {PROBE: fact(FAIL, FAIL, 7, age=100 * SECOND)}, NOW)
    assert row["healthy"] is None
    assert row["reason"] == "the last check is too old to count: HTTP 503"


def test_a_check_without_a_result_is_not_checked_yet() -> None:
    row = answer_row(PROBE, {}, NOW)
    assert (row["healthy"], row["consecutive_failures"], row["failure_threshold"]) == (None, 0, 5)
    assert (row["reason"], row["last_check_wall"]) == ("not checked yet", None)


def test_a_health_check_names_the_targets_it_decides_about() -> None:
    check = HealthCheck("healthcheck/cloud", "cloud", "lb.cloud.example.", CHECK)
    target = Target("eu", Publish.HOSTNAME, hostname="lb.cloud.example.", check=check.key)
    policy = DNSPolicy("dnspolicy/app", "app", "app.example.com.", "dns", "example.com.", (target,))
    desired = replace(Shop(()).desired(), workloads=(), services=(), policies=(policy,), checks=(check,))
    (row,) = check_rows(desired, {TargetProbe(check.address, CHECK): fact(PASS, PASS)}, NOW)
    assert (row["key"], row["address"], row["port"]) == ("healthcheck/cloud", "lb.cloud.example", 443)
    assert (row["healthy"], row["decides_about"]) == (True, ["dnspolicy/app/eu"])
