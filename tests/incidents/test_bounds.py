"""A few of the incidents, judged as `make incidents` judges all of them. Each runs the real loop for an hour or more of virtual time."""

import pytest

from tests.incidents.cases import Case, run
from tests.incidents.judge import judge, load_reference

KEPT = (
    Case("2", 1),
    Case("2", 3),
    Case("2", 3, counted=False),
    Case("3c", 1),
    Case("4b", 10),
    Case("5a", 3),
    Case("5b", 1),
    Case("8a", 3),
    Case("8a", 10),
    Case("8b", 3),
    Case("9", 1),
    Case("9", 10),
    Case("10a", 3),
    Case("11a", 10),
    Case("11b", 10),
    Case("12", 3),
)
BROKEN = {
    Case("1", 1): "the pool is empty while readiness passes and liveness fails",
    Case("1", 3): "a canary of each outbreak, and stragglers, are restarted in vain",
    Case("2", 10): "the rate of the workload holds restarts that a canary has proven",
    Case("3a", 3): "one canary after the other, and a straggler on a verdict from before the end",
    Case("3b", 3): "the pool is empty while all fail readiness and one of them is restarted",
    Case("3c", 10): "the pause after a failed canary outlasts the cause",
    Case("4a", 10): "probes that all time out restart one canary after the other",
    Case("5b", 10): "hung members keep their weight while the runtime does not answer",
    Case("6", 3): "a replica that flaps is restarted for as long as it flaps",
    Case("6b", 3, counted=False): "restarts that were called off spend back-off",
    Case("8c", 3): "each restart takes capacity, and others time out",
}
"""Cases that break a bound today, and why. A change that mends one removes it from here."""


def findings(case: Case) -> list[str]:
    """The bounds that a case breaks."""
    return [str(finding) for finding in judge(run(case), load_reference().get(str(case))) if not finding.holds]


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in KEPT])
def test_an_incident_keeps_all_bounds(case):
    assert findings(case) == []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=pytest.mark.xfail(strict=True, reason=why))
        for case, why in BROKEN.items()
    ],
)
def test_an_incident_will_keep_all_bounds(case):
    assert findings(case) == []
