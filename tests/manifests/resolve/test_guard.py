"""The Guard: denied objects, limits on restarts, and windows."""

from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.values.desired import SECOND
from manifests.values.limits import Held, MassFailure, Mode, Rate, RestartLimits, Window
from tests.manifests.trees import GOOD, GUARD, load_files, problems_of


def guard(extra: str) -> dict[str, str | bytes]:
    return GOOD | {"guard.yaml": f"apiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: limits}}\nspec:\n{extra}"}


def test_the_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    limits = load_files(tmp_path, GOOD | {"guard.yaml": GUARD}).guard
    assert limits.restarts == RestartLimits(Mode.ACT, 100, Rate(1, 2), Rate(6, 6), Rate(20, 20), 2)
    assert limits.mass_failure == MassFailure(50, 2, 300 * SECOND, 3600 * SECOND)
    assert limits.windows == ()


def test_all_fields_of_the_guard_are_resolved(tmp_path: Path) -> None:
    text = """\
  restarts: {mode: observe, share: 10%, perWorkload: {burst: 5}, perNode: {perMinute: 2}, inFlight: 1}
  massFailure: {share: 40%, minimum: 3, hold: 1m, maxHold: 2m}
  windows:
  - {name: night, holds: [rollout, prune], schedule: "0 22 * * *", duration: 8h, timezone: Europe/Berlin}
  - {name: freeze, holds: [heal], schedule: "0 0 24 12 *", duration: 2d}
"""
    made = load_files(tmp_path, guard(text)).guard
    assert made.restarts == RestartLimits(Mode.OBSERVE, 10, Rate(1, 5), Rate(2, 6), Rate(20, 20), 1)
    assert made.mass_failure == MassFailure(40, 3, 60 * SECOND, 120 * SECOND)
    assert made.windows == (
        Window("freeze", frozenset({Held.HEAL}), "0 0 24 12 *", 48 * 3600 * SECOND, "UTC"),
        Window("night", frozenset({Held.ROLLOUT, Held.PRUNE}), "0 22 * * *", 8 * 3600 * SECOND, "Europe/Berlin"),
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (guard("  massFailure: {hold: 2h}\n"), "shorter"),
        (guard('  windows: [{name: a, holds: [heal], schedule: "0 25 * * *", duration: 1h}]\n'), "cron"),
        (guard('  windows: [{name: a, holds: [heal], schedule: "0 22 * *", duration: 1h}]\n'), "five fields"),
        (guard('  windows: [{name: a, holds: [heal], schedule: "0 0 30 2 *", duration: 1h}]\n'), ""),
        (guard('  windows: [{name: a, holds: [], schedule: "0 0 * * *", duration: 1h}]\n'), ""),
        (
            guard('  windows: [{name: a, holds: [heal], schedule: "0 0 * * *", duration: 1h, timezone: Mars/X}]\n'),
            "Mars",
        ),
        (guard('  windows: [{name: a, holds: [heal], schedule: "0 0 * * *", duration: 1h, timezone: ../x}]\n'), "zone"),
    ],
)
def test_a_bad_value_is_refused_with_its_cause(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    problems = problems_of(tmp_path, files)
    assert len(problems) == 1, problems
    assert message in problems[0].message
    assert problems[0].line > 0


def test_a_denied_object_must_exist(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, GOOD | {"guard.yaml": GUARD.replace("workload/web", "workload/wep")})

    assert [(problem.code, problem.hint) for problem in problems] == [
        (Code.UNKNOWN_REFERENCE, "did you mean 'workload/web'?")
    ]


@pytest.mark.parametrize("key", ["container/local/shop-web", "container/local/Shop_web.1/0"])
def test_the_guard_may_deny_containers_that_no_manifest_declares(tmp_path: Path, key: str):
    guard = GUARD.replace("workload/web", key)
    assert load_files(tmp_path, {**GOOD, "guard.yaml": guard}).guard.deny == {key}


def test_the_key_of_a_container_needs_its_node(tmp_path: Path):
    guard = GUARD.replace("workload/web", "container/Shop_web")
    assert any(
        "is not the key of an object" in problem.message
        for problem in problems_of(tmp_path, {**GOOD, "guard.yaml": guard})
    )
