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
        ("cannot-run", "unknown", "its liveness probe has never passed in this revision"),
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


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("outgoing", "once its successor serves"),
        ("surplus", "no longer wanted"),
        ("kept", "kept, stopped, for a rollback"),
    ],
)
def test_a_replica_with_another_role_says_what_becomes_of_it(role: str, words: str) -> None:
    assert words in why({"role": role, "state": "Ready", "runtime": "running", "node": "local", "probes": {}}, (), 0)


def test_a_waiting_replica_is_judged_by_its_probes() -> None:
    liveness = {"verdict": "pass", "last": "pass", "streak": "3/1", "detail": ""}
    replica = {"role": "waiting", "state": "Ready", "runtime": "running", "node": "local"}
    said = why({**replica, "probes": {"startup": None, "liveness": liveness}}, (), 0)
    assert said.startswith("not restarted: its liveness probe passes")
    assert "removed" not in said


def test_all_rules_that_hold_a_restart_are_named_and_the_last_end_counts() -> None:
    def hold(until: int | None, message: str) -> dict:
        shared = {"act": "restart", "action": "restart web-0", "rule": "Suspended", "next_step": f"end {message}"}
        return {**shared, "message": message, "until_wall": until}

    replica = {"role": "current", "state": "Held", "runtime": "running", "node": "local", "probes": {}}
    said = why(replica, (hold(10**9, "ada"), hold(None, "the manifest")), 0)
    assert "Suspended (ada) and by Suspended (the manifest)" in said
    assert "retried" not in said
    assert "next step: end ada; end the manifest" in said
    assert "retried in 9s" in why(replica, (hold(10**9, "ada"), hold(9 * 10**9, "bob")), 0)
