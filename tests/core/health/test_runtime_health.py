"""The verdict from the runtime's own health check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from providers.facts import ProbeFact, ProbeValue, RuntimeHealth
from reconciler.core.health.runtime_health import verdict

PASS, FAIL, UNKNOWN, CANNOT_RUN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN
NOW = 1000 * SECOND
CADENCE = 15 * SECOND


def health(value: ProbeValue = PASS, age: int = 1, streak: int = 0, interval: int = 30) -> RuntimeHealth:
    return RuntimeHealth(value, streak, NOW - age * SECOND, interval * SECOND, "said")


def verdict_on(
    runtime_health: RuntimeHealth | None, before: ProbeFact | None = None, running_since: int = SECOND
) -> ProbeFact:
    return verdict(runtime_health, before, NOW, CADENCE, running_since)


def test_a_container_without_a_health_check_cannot_be_asked() -> None:
    assert verdict_on(None).value is CANNOT_RUN


@pytest.mark.parametrize("value", [PASS, FAIL, UNKNOWN])
def test_a_fresh_result_is_the_verdict(value: ProbeValue) -> None:
    fact = verdict_on(health(value, streak=4))
    assert (fact.value, fact.streak, fact.last_at, fact.detail) == (value, 4, NOW - SECOND, "said")


@pytest.mark.parametrize(("age", "value"), [(90, FAIL), (91, UNKNOWN)])
def test_a_check_that_has_not_run_for_three_intervals_is_unknown(age: int, value: ProbeValue) -> None:
    assert verdict_on(health(FAIL, age)).value is value


def test_a_check_that_never_ran_in_this_generation_is_unknown() -> None:
    assert verdict_on(RuntimeHealth(FAIL, 3, 0, SECOND)).value is UNKNOWN
    assert verdict_on(health(FAIL, age=10), running_since=NOW - 5 * SECOND).value is UNKNOWN


def test_a_check_more_frequent_than_looks_counts_until_the_next_looks() -> None:
    fact = verdict_on(health(age=1, interval=1))
    assert fact.last_at + fact.valid_for == NOW + 3 * CADENCE


def test_since_is_kept_while_the_value_is() -> None:
    first = verdict_on(health(age=20))
    assert verdict_on(health(age=1), first).since == first.since
    assert verdict_on(health(FAIL, age=1), first).since == NOW - SECOND


@given(st.integers(0, 400), st.integers(1, 60), st.sampled_from([PASS, FAIL, UNKNOWN]))
def test_only_a_run_within_three_intervals_is_ever_believed(age: int, interval: int, value: ProbeValue) -> None:
    fact = verdict_on(health(value, age, 1, interval))
    assert fact.value in (value, UNKNOWN)
    if age > 3 * interval:
        assert fact.value is UNKNOWN
