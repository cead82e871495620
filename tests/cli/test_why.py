"""Why a replica is not restarted, in one sentence of `reconcile explain`."""

import pytest

from reconciler.cli.render.why import why

UNREAD = "'' is not an IP address: the container's address was not observed"


@pytest.mark.parametrize(
    ("verdict", "last", "sentence"),
    [
        (
            "cannot-run",
            "cannot-run",
            f"its liveness is unknown (cannot-run (0/1: {UNREAD})), and only a failing probe",
        ),
        ("cannot-run", "unknown", "its liveness probe has never passed on local"),
        ("pass", "pass", "its liveness probe passes (0/1: "),
        ("unknown", "unknown", "its liveness is unknown ("),
    ],
)
def test_a_probe_that_cannot_run_differs_from_one_that_never_passed(verdict: str, last: str, sentence: str) -> None:
    liveness = {"verdict": verdict, "last": last, "streak": "0/1", "detail": UNREAD}
    replica = {
        "role": "current",
        "state": "Running",
        "runtime": "running",
        "node": "local",
        "probes": {"startup": None, "liveness": liveness},
    }
    assert why(replica, (), 0).startswith(f"not restarted: {sentence}")
