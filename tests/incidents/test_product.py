"""The program runs on the physics as it would on a host: probes keep their phases, time-outs and drains take their time."""

import pytest

from tests.incidents import product
from tests.incidents.cases import Case, Outcome, everything, run_all
from tests.incidents.traces import TIMEOUT, Answer, HalfHangs, Trace


class Refusing(HalfHangs):
    """One that fails is refused at once."""

    def answer(self, slot, probe, now):
        answer = super().answer(slot, probe, now)
        return Answer.FAIL if answer is Answer.TIMEOUT else answer


def verdict(trace: Trace) -> float:
    """When the third liveness probe after the hang is answered."""
    period, failures = trace.live
    phase = trace.phase(0, "liveness", period)
    first = 60 + (phase - 60) % period
    return first + (failures - 1) * period


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("kind", "late"), [(HalfHangs, TIMEOUT), (Refusing, 0.0)])
def test_a_hung_replica_stops_after_its_verdict_and_its_drain(kind, late, counted, seed):
    trace = kind(1, seed)
    trace.duration = 150.0
    score, _ = product.run(trace, counted)
    (restart,) = score.restarts
    drain = product.DRAIN_MIN if counted else product.DRAIN_MAX
    assert restart.at == pytest.approx(verdict(kind(1, seed)) + late + drain, abs=1.1)
    assert restart.helps


def test_a_quiet_hour_has_no_restart_and_loses_nothing():
    score, _ = product.run(Trace(3))
    row = score.row()
    assert (row.restarts, row.lost, row.recovery, row.emptied, row.law) == (0, 0, 0, 0, "")


def test_a_broken_law_ends_the_incident_and_is_shown():
    class Forbidden(product.Incident):
        def count(self, action):
            raise AssertionError("a law of this test")

    trace = HalfHangs(3)
    score, world = product.run(trace, world=Forbidden)
    assert score.row().law == "a law of this test"
    assert world.seconds() <= 0


def test_the_other_rules_run_once_for_both_kinds_of_drains():
    cases = [Case("5a", 1), Case("5a", 1, counted=False)]
    outcomes = {outcome.case: outcome for outcome in run_all(cases, jobs=1)}
    assert set(outcomes) == set(cases)
    assert all(isinstance(outcome, Outcome) and outcome.rows["reconciler"].lost == 0 for outcome in outcomes.values())


def test_everything_has_each_size_both_drains_seeds_and_other_probes():
    cases = everything()
    assert len(cases) == len(set(cases))
    assert {case.size for case in cases} == {1, 2, 3, 5, 10, 30}
    assert {case.seed for case in cases} == {1, 2, 3}
    assert {case.counted for case in cases} == {True, False}
    assert {case.cadence for case in cases} >= {None, (5, 2), (30, 3)}
