"""Rollouts: strategies, times with their offset, steps of a canary."""

from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.types.moments import Moment, parse_moment
from manifests.values.desired import SECOND
from manifests.values.rollouts import DEFAULT_ROLLOUT, CanaryStep, Rollout, Strategy, Supersede, format_moment
from tests.manifests.trees import ENGINE_PROVIDERS, GOOD, WORKLOAD, load_files, problems_of

NOON = 1_893_495_600 * SECOND
"""2030-01-01T11:00:00Z."""


def spec(rollout: str) -> dict[str, str | bytes]:
    return GOOD | {"web.yaml": WORKLOAD.rstrip() + f"\n  rollout: {rollout}\n"}


@pytest.mark.parametrize(
    ("given", "strategy", "times"),
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
def test_all_fields_are_resolved_and_the_strategy_follows_from_them(
    tmp_path: Path, given: str, strategy: Strategy, times: Rollout
) -> None:
    (web,) = load_files(tmp_path, spec(given)).workloads
    assert web.strategy is strategy
    assert web.rollout == times


def test_the_time_of_an_activation_keeps_the_revision(tmp_path: Path) -> None:
    (one,) = load_files(tmp_path, spec("{activationDelay: 2m}")).workloads
    (two,) = load_files(tmp_path, spec('{activateAt: "2030-01-01T12:00:00Z"}')).workloads
    assert one.template.revision == two.template.revision


@pytest.mark.parametrize(
    ("given", "message"),
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
def test_a_bad_rollout_is_refused_with_its_cause(tmp_path: Path, given: str, message: str) -> None:
    problems = problems_of(tmp_path, spec(given))
    assert any(message in problem.message for problem in problems), [problem.message for problem in problems]
    assert all("spec.rollout" in problem.path for problem in problems)


def test_a_problem_is_at_the_field_as_the_manifest_spells_it(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, spec("{pendingGrace: 5m}"))
    assert problem.path == "spec.rollout.pendingGrace"
    assert problem.message.startswith("workload/web: spec.rollout.pendingGrace: ")
    assert WORKLOAD.count("\n") < problem.line
    assert problem.column == len("  rollout: {pendingGrace: ") + 1


@pytest.mark.parametrize("text", ["2030-01-01T11:00:00Z", "2030-01-01T11:00:00.25Z", "1999-12-31T23:59:59.000000001Z"])
def test_a_moment_prints_as_it_is_parsed(text: str) -> None:
    moment = parse_moment(text)
    assert str(moment) == text
    assert parse_moment(moment) is moment
    assert format_moment(int(moment)) == text
    assert isinstance(moment, Moment)


def test_with_a_host_port_the_old_replica_stops_first(tmp_path: Path) -> None:
    engine = {"providers.yaml": ENGINE_PROVIDERS}
    text = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  rollout: ROLLOUT
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: app
          image: registry.example.com/app:1
          ports: [{name: http, containerPort: 8080, hostPort: 80}]
"""
    for given in ("{}", "{strategy: recreate}"):
        (web,) = load_files(tmp_path, GOOD | engine | {"web.yaml": text.replace("ROLLOUT", given)}).workloads
        assert web.strategy is Strategy.RECREATE
    (problem,) = problems_of(tmp_path, GOOD | engine | {"web.yaml": text.replace("ROLLOUT", "{strategy: rolling}")})
    assert problem.code is Code.CONFLICT
    assert "port 80 of the host" in problem.message


VOLUME = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  rollout: ROLLOUT
  replicas: 1
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes: [{name: data, named: web-data, accessMode: ReadWriteOncePod}]
      containers:
        - name: app
          image: registry.example.com/app:1
          ports: [{name: http, containerPort: 8080}]
          volumeMounts: [{name: data, mountPath: /data}]
"""


def test_with_an_exclusive_volume_the_old_replica_stops_first(
    tmp_path: Path,
) -> None:
    tree = GOOD | {"providers.yaml": ENGINE_PROVIDERS}
    for given in ("{}", "{strategy: recreate}"):
        (web,) = load_files(tmp_path, tree | {"web.yaml": VOLUME.replace("ROLLOUT", given)}).workloads
        assert web.strategy is Strategy.RECREATE
        assert [mount.exclusive for mount in web.template.container.engine.mounts] == [True]
    for given in ("{strategy: rolling}", "{activationDelay: 30s}", "{canary: {steps: [{weight: 10%, pause: 5m}]}}"):
        (problem,) = problems_of(tmp_path, tree | {"web.yaml": VOLUME.replace("ROLLOUT", given)})
        assert problem.code is Code.CONFLICT
        assert "only one may have the volume 'data'" in problem.message
        assert problem.line > 0
    shared = VOLUME.replace(", accessMode: ReadWriteOncePod", "")
    (free,) = load_files(tmp_path, tree | {"web.yaml": shared.replace("ROLLOUT", "{}")}).workloads
    assert free.strategy is Strategy.ROLLING
    assert free.template.revision == web.template.revision  # the access mode needs no new container
    (problem,) = problems_of(tmp_path, tree | {"web.yaml": VOLUME.replace("ROLLOUT", "{}").replace("s: 1", "s: 2")})
    assert problem.code is Code.CONFLICT
    assert "cannot each have volume 'data'" in problem.message
