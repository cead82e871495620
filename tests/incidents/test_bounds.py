"""A few of the incidents, judged as `make incidents` judges all of them. Each runs the real loop for an hour or more of virtual time."""

import pytest

from tests.incidents.cases import Case, run
from tests.incidents.judge import judge, load_reference

KEPT = ()
BROKEN: dict[Case, str] = {}
"""Cases that break a bound today, and which: a change that mends one removes it from here."""


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
