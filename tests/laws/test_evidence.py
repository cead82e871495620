"""Evidence is kept before a restart destroys it, and each event is reported once."""

from collections import Counter

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from reconciler.shell.apply.evidence import LOG_LIMIT
from reconciler.shell.logs import SECRETS
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import shop
from tests.sim.world import World


@pytest.fixture
def world():
    made = World(shop())
    ready(made)
    made.memory.events.clear()
    yield made
    made.close()


def sicken(world: World, ordinal: int, *lines: str) -> None:
    name = WEB.format(ordinal)
    world.containers()[name].log.extend(lines)
    world.apps.sick.add(world.generation(name))


def test_a_health_restart_keeps_probe_results_log_and_exit(world):
    sicken(world, 0, "out of file descriptors", "giving up")
    world.run(120 * SECOND)
    [(obj, kept)] = world.memory.evidence
    assert obj == "workload/web/0"
    assert kept["cause"] == "LivenessFailed"
    assert kept["probes"]["liveness"]["verdict"] == "fail"
    assert kept["log"][-2:] == ["out of file descriptors", "giving up"]
    assert kept["end"]["cause"] == "stopped-by-us"


def test_a_crash_keeps_its_exit_code_and_log(world):
    world.containers()[WEB.format(1)].log.append("segmentation fault")
    world.runtime.exit(WEB.format(1))
    world.run(60 * SECOND)
    [(obj, kept)] = world.memory.evidence
    assert (obj, kept["cause"], kept["log"][-1]) == ("workload/web/1", "Crashed", "segmentation fault")
    assert kept["end"]["exit_code"] is not None


def test_evidence_contains_no_secrets_and_has_a_bounded_size(world):
    SECRETS.add("sentinel-of-the-log")
    sicken(world, 0, *("x" * 1_000 for _ in range(45)), "token=sentinel-of-the-log")
    world.run(120 * SECOND)
    [(_, kept)] = world.memory.evidence
    assert "sentinel" not in str(kept)
    assert kept["log"][-1] == "token=***"
    assert len("\n".join(kept["log"])) <= LOG_LIMIT


def test_a_rollout_keeps_no_evidence(world):
    world.push(shop(image="v2"))
    world.run(300 * SECOND)
    assert world.memory.evidence == []


def test_events_report_the_verdict_and_the_restart(world):
    sicken(world, 0)
    world.run(120 * SECOND)
    verdicts = [event for event in world.memory.events if event.kind == "verdict" and event.object == "workload/web/0"]
    assert [verdict.cause for verdict in verdicts][:1] == ["pass -> fail"]
    assert any("restart granted" in verdict.outcome for verdict in verdicts)
    assert [event.kind for event in world.memory.events].count("evidence") == 1


def test_events_report_a_verdict_without_action_for_a_suspended_replica(world):
    world.memory.say("suspend", "workload/web")
    sicken(world, 0)
    world.run(120 * SECOND)
    [verdict] = [
        event for event in world.memory.events if event.kind == "verdict" and event.step.startswith("liveness")
    ]
    assert verdict.outcome.startswith("not acted on: restart ")
    assert "Suspended" in verdict.outcome


def test_a_hold_is_reported_at_its_begin_and_end_across_restarts(world):
    world.memory.say("suspend", "workload/web")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    world.restart()
    world.run(60 * SECOND)
    world.memory.say("resume", "workload/web")
    world.run(120 * SECOND)
    counts = Counter((event.kind, event.cause) for event in world.memory.events if event.step.startswith("start "))
    assert counts["held", "Suspended"] == counts["released", "Suspended"] == 1


def test_operator_commands_are_reported_once_across_restarts(world):
    world.memory.say("suspend", "workload/web")
    world.memory.request("r1", Request("workload/web/0", instant(world.clock.now()), "ada", "a test", deadline=SECOND))
    world.run(60 * SECOND)
    world.restart()
    world.run(60 * SECOND)
    world.memory.say("resume", "workload/web")
    world.run(60 * SECOND)
    kinds = [event.kind for event in world.memory.events if event.kind in {"suspended", "resumed", "request"}]
    assert Counter(kinds) == {"suspended": 1, "resumed": 1, "request": 3}
