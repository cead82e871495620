"""How manifests speak of rollouts: strategies, times with their offset, steps of a canary."""

from pathlib import Path

import pytest

from manifests.types.moments import Moment, parse_moment
from manifests.values.desired import SECOND
from manifests.values.rollouts import DEFAULT_ROLLOUT, CanaryStep, Rollout, Strategy, Supersede, format_moment
from tests.manifests.trees import GOOD, WORKLOAD, load_files, problems_of

NOON = 1_893_495_600 * SECOND
"""2030-01-01T11:00:00Z."""


def spec(rollout: str) -> dict[str, str | bytes]:
    return GOOD | {"web.yaml": WORKLOAD.rstrip() + f"\n  rollout: {rollout}\n"}


@pytest.mark.parametrize(
    ("said", "strategy", "times"),
    [
        ("{}", Strategy.ROLLING, DEFAULT_ROLLOUT),
        ("{strategy: activate}", Strategy.ACTIVATE, Rollout(delay=30 * SECOND)),
        ("{activationDelay: 2m}", Strategy.ACTIVATE, Rollout(delay=120 * SECOND)),
        ('{activateAt: "2030-01-01T12:00:00+01:00"}', Strategy.ACTIVATE, Rollout(activate_at=NOON, delay=30 * SECOND)),
        ("{progressDeadline: 2m}", Strategy.ROLLING, Rollout(progress_deadline=120 * SECOND)),
        (
            "{canary: {steps: [{weight: 5%, pause: 1m}, {weight: 50%, pause: 5m}]}}",
            Strategy.CANARY,
            Rollout(steps=(CanaryStep(500, 60 * SECOND), CanaryStep(5000, 300 * SECOND))),
        ),
        (
            "{strategy: activate, precheck: 10s, pendingGrace: 5m, supersede: onActivation, bake: 1m, rollbackWindow: 2m}",
            Strategy.ACTIVATE,
            Rollout(
                delay=30 * SECOND,
                precheck=10 * SECOND,
                pending_grace=300 * SECOND,
                supersede=Supersede.ON_ACTIVATION,
                bake=60 * SECOND,
                window=120 * SECOND,
            ),
        ),
    ],
)
def test_what_is_said_arrives_and_the_strategy_follows_from_it(
    tmp_path: Path, said: str, strategy: Strategy, times: Rollout
) -> None:
    (web,) = load_files(tmp_path, spec(said)).workloads
    assert web.strategy is strategy
    assert web.rollout == times


def test_the_time_of_an_activation_is_no_part_of_the_revision(tmp_path: Path) -> None:
    (one,) = load_files(tmp_path, spec("{activationDelay: 2m}")).workloads
    (two,) = load_files(tmp_path, spec('{activateAt: "2030-01-01T12:00:00Z"}')).workloads
    assert one.template.revision == two.template.revision


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{activateAt: "2030-01-01T12:00:00"}', "no offset"),
        ('{activateAt: "2030-13-01T12:00:00Z"}', "not a valid date and time"),
        ('{activateAt: "tomorrow"}', "not a time of RFC 3339"),
        ('{activateAt: "2030-01-01T12:00:00Z", activationDelay: 30s}', "exclude each other"),
        ("{strategy: rolling, bake: 1m}", "does nothing with strategy rolling"),
        ("{pendingGrace: 5m}", "does nothing with strategy rolling"),
        ("{strategy: activate, progressDeadline: 5m}", "does nothing with this strategy"),
        ("{strategy: canary}", "needs canary.steps"),
        ("{strategy: activate, canary: {steps: [{weight: 5%, pause: 1m}]}}", "has no steps"),
        (
            "{canary: {steps: [{weight: 50%, pause: 1m}, {weight: 5%, pause: 1m}]}}",
            "not more than 50%, the step before",
        ),
        ("{canary: {steps: [{weight: 100%, pause: 1m}]}}", "not between 1% and 99%"),
        ("{strategy: activate, bake: 1h, rollbackWindow: 10m}", "is longer than rollbackWindow"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(tmp_path: Path, said: str, words: str) -> None:
    found = problems_of(tmp_path, spec(said))
    assert any(words in one.message for one in found), [one.message for one in found]
    assert all("spec.rollout" in one.path for one in found)


def test_a_problem_is_at_the_field_as_the_manifest_spells_it(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, spec("{pendingGrace: 5m}"))
    assert problem.path == "spec.rollout.pendingGrace"
    assert problem.message.startswith("workload/web: spec.rollout.pendingGrace: ")
    assert WORKLOAD.count("\n") < problem.line
    assert problem.column == len("  rollout: {pendingGrace: ") + 1


@pytest.mark.parametrize("text", ["2030-01-01T11:00:00Z", "2030-01-01T11:00:00.25Z", "1999-12-31T23:59:59.000000001Z"])
def test_a_moment_prints_as_it_is_read(text: str) -> None:
    moment = parse_moment(text)
    assert str(moment) == text
    assert parse_moment(moment) is moment
    assert format_moment(int(moment)) == text
    assert isinstance(moment, Moment)
