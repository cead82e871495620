"""Restarts and budgets of a Workload."""

from pathlib import Path

import pytest

from manifests.values.desired import OnSecretChange, Strategy
from manifests.values.limits import Escalation, Mode
from tests.manifests.trees import GOOD, WORKLOAD, load_files, problems_of


def spec(extra: str) -> dict[str, str | bytes]:
    return GOOD | {"web.yaml": WORKLOAD.rstrip() + "\n" + extra}


def test_all_fields_of_restarts_are_resolved(tmp_path: Path) -> None:
    text = """\
  restarts: {mode: observe, escalation: {recreateAfter: 1, giveUpAfter: 2}}
  rollout: {strategy: recreate}
  onSecretChange: restart
"""
    (web,) = load_files(tmp_path, spec(text)).workloads
    assert (web.restarts.mode, web.restarts.escalation) == (Mode.OBSERVE, Escalation(1, 2))
    assert (web.strategy, web.on_secret_change) == (Strategy.RECREATE, OnSecretChange.RESTART)


@pytest.mark.parametrize(
    ("replicas", "availability", "expected"),
    [
        (3, "{}", 1),
        (3, "{maxUnavailable: 2}", 2),
        (1, "{maxUnavailable: 50%}", 0),
        (2, "{maxUnavailable: 1%}", 1),
        (5, "{maxUnavailable: 50%}", 2),
        (3, "{minAvailable: 2}", 1),
        (3, "{minAvailable: 50%}", 1),
        (3, "{minAvailable: 100%}", 0),
        (2, "{minAvailable: 5}", 0),
    ],
)
def test_a_budget_counts_from_above_or_below(tmp_path: Path, replicas: int, availability: str, expected: int) -> None:
    text = WORKLOAD.rstrip() + f"\n  availability: {availability}\n"
    lines = [line for line in text.splitlines() if not line.startswith("  replicas:")]
    place = next(number for number, line in enumerate(lines) if line == "spec:")
    lines.insert(place + 1, f"  replicas: {replicas}")
    (web,) = load_files(tmp_path, GOOD | {"web.yaml": "\n".join(lines) + "\n"}).workloads
    assert web.max_unavailable == expected


def test_the_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    (web,) = load_files(tmp_path, GOOD).workloads
    assert web.restarts.mode is Mode.ACT
    assert web.restarts.escalation == Escalation(3, 3)
    assert web.strategy is Strategy.ROLLING
    assert web.on_secret_change is OnSecretChange.REPORT


def test_two_budgets_at_once_are_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, spec("  availability: {maxUnavailable: 1, minAvailable: 1}\n"))
    assert "exclude each other" in problem.message
    assert problem.line > 0


@pytest.mark.parametrize(
    ("given_value", "replicas", "count"),
    [
        ("1", 3, 1),
        ("0", 3, 0),
        ("'25%'", 3, 1),
        ("'50%'", 5, 2),
        ("'100%'", 4, 4),
        ("'10%'", 1, 0),
        ("'100%'", 1, 1),
        ("'0%'", 4, 1),
    ],
)
def test_a_percentage_of_unavailable_replicas_rounds_down_to_at_least_one(
    given_value: str, replicas: int, count: int, tmp_path: Path
) -> None:
    text = WORKLOAD.replace("replicas: 3", f"replicas: {replicas}\n  availability: {{maxUnavailable: {given_value}}}")

    assert load_files(tmp_path, GOOD | {"web.yaml": text}).workloads[0].max_unavailable == count
