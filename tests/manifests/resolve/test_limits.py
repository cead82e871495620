"""What a Workload and the Guard say about restarts, budgets, windows and revisions, and what is wrong in them."""

from pathlib import Path

import pytest

from manifests.problems import Code
from manifests.values.desired import SECOND, OnSecretChange, Strategy
from manifests.values.limits import Escalation, Held, MassFailure, Mode, Rate, RestartLimits, Window
from tests.manifests.trees import GOOD, GUARD, PROVIDERS, WORKLOAD, load_files, problems_of


def spec(extra: str) -> dict[str, str | bytes]:
    return GOOD | {"web.yaml": WORKLOAD.rstrip() + "\n" + extra}


def guard(extra: str) -> dict[str, str | bytes]:
    return GOOD | {"guard.yaml": f"apiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: limits}}\nspec:\n{extra}"}


def test_the_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    value = load_files(tmp_path, GOOD | {"guard.yaml": GUARD})
    (web,) = value.workloads
    assert web.restarts.mode is Mode.ACT
    assert web.restarts.escalation == Escalation(3, 3)
    assert web.strategy is Strategy.ROLLING
    assert web.on_secret_change is OnSecretChange.REPORT
    assert value.guard.restarts == RestartLimits(Mode.ACT, 100, Rate(1, 2), Rate(6, 6), Rate(20, 20), 2)
    assert value.guard.mass_failure == MassFailure(50, 2, 300 * SECOND, 3600 * SECOND)
    assert value.guard.windows == ()


def test_everything_said_about_restarts_arrives(tmp_path: Path) -> None:
    text = """\
  restarts: {mode: observe, escalation: {recreateAfter: 1, giveUpAfter: 2}}
  rollout: {strategy: recreate}
  onSecretChange: restart
"""
    (web,) = load_files(tmp_path, spec(text)).workloads
    assert (web.restarts.mode, web.restarts.escalation) == (Mode.OBSERVE, Escalation(1, 2))
    assert (web.strategy, web.on_secret_change) == (Strategy.RECREATE, OnSecretChange.RESTART)


def test_everything_said_in_the_guard_arrives(tmp_path: Path) -> None:
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
    ("replicas", "said", "expected"),
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
def test_a_budget_counts_from_above_or_below(tmp_path: Path, replicas: int, said: str, expected: int) -> None:
    text = WORKLOAD.rstrip() + f"\n  availability: {said}\n"
    lines = [line for line in text.splitlines() if not line.startswith("  replicas:")]
    place = next(number for number, line in enumerate(lines) if line == "spec:")
    lines.insert(place + 1, f"  replicas: {replicas}")
    (web,) = load_files(tmp_path, GOOD | {"web.yaml": "\n".join(lines) + "\n"}).workloads
    assert web.max_unavailable == expected


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (spec("  availability: {maxUnavailable: 1, minAvailable: 1}\n"), "exclude each other"),
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
def test_what_makes_no_sense_is_said(tmp_path: Path, files: dict[str, str | bytes], word: str) -> None:
    problems = problems_of(tmp_path, files)
    assert len(problems) == 1, problems
    assert word in problems[0].message
    assert problems[0].line > 0


def test_a_port_of_the_host_makes_the_old_replica_go_first_and_forbids_the_other_order(tmp_path: Path) -> None:
    engine = {"providers.yaml": PROVIDERS.replace("type: process", "type: engine")}
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
    for said in ("{}", "{strategy: recreate}"):
        (web,) = load_files(tmp_path, GOOD | engine | {"web.yaml": text.replace("ROLLOUT", said)}).workloads
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


def test_a_volume_that_only_one_may_have_makes_the_old_replica_go_first_and_forbids_the_other_order(
    tmp_path: Path,
) -> None:
    tree = GOOD | {"providers.yaml": PROVIDERS.replace("type: process", "type: engine")}
    for said in ("{}", "{strategy: recreate}"):
        (web,) = load_files(tmp_path, tree | {"web.yaml": VOLUME.replace("ROLLOUT", said)}).workloads
        assert web.strategy is Strategy.RECREATE
        assert [mount.exclusive for mount in web.template.container.engine.mounts] == [True]
    for said in ("{strategy: rolling}", "{activationDelay: 30s}", "{canary: {steps: [{weight: 10%, pause: 5m}]}}"):
        (problem,) = problems_of(tmp_path, tree | {"web.yaml": VOLUME.replace("ROLLOUT", said)})
        assert problem.code is Code.CONFLICT
        assert "only one may have the volume 'data'" in problem.message
        assert problem.line > 0
    shared = VOLUME.replace(", accessMode: ReadWriteOncePod", "")
    (free,) = load_files(tmp_path, tree | {"web.yaml": shared.replace("ROLLOUT", "{}")}).workloads
    assert free.strategy is Strategy.ROLLING
    assert free.template.revision == web.template.revision  # saying so makes no new container
    (problem,) = problems_of(tmp_path, tree | {"web.yaml": VOLUME.replace("ROLLOUT", "{}").replace("s: 1", "s: 2")})
    assert problem.code is Code.CONFLICT
    assert "cannot each have volume 'data'" in problem.message
