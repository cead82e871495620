"""A replica that fails only its liveness probe keeps its weight while its pool has no better endpoint: a wrong probe is no outage."""

import pytest

from manifests.values.desired import SECOND, Backoff
from providers.actions import SetWeight
from providers.facts import ProbeValue
from reconciler.core.model.reasons import Reason, Rule
from tests.laws.helpers import MINUTE, QUICK, WEB, ready
from tests.sim.manifest import shop

REPLICA = WEB.format(0)


@pytest.mark.parametrize("readiness", [True, False])
def test_a_single_replica_with_a_wrong_liveness_probe_keeps_serving(readiness, worlds):
    world = ready(worlds(shop(replicas=1, readiness=readiness, backoff=QUICK)))
    without = []
    world.checks.append(lambda _: without.append(not any(world.weights().values())))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(15 * MINUTE)
    assert {Rule.FAILED, Rule.LAST_MEMBER} <= {hold.rule for hold in world.tape.last.holds}, (
        "no further restart is tried"
    )
    assert world.weights() == {REPLICA: 100}
    assert any(without), "it was restarted"
    raised = [
        write.action for write in world.traffic.writes if isinstance(write.action, SetWeight) and write.action.weight
    ]
    assert len(raised) >= 5, "it got its weight back after every restart"

    world.restart()
    world.run(MINUTE)
    assert world.weights() == {REPLICA: 100}, "a new process keeps the weight"


@pytest.mark.parametrize("how", ["a new process", "a silent probe engine"])
def test_a_prober_without_results_keeps_the_last_resort(how, worlds):
    world = ready(worlds(shop(replicas=1, backoff=Backoff(600 * SECOND, 600 * SECOND, 600 * SECOND))))
    before = world.generation(REPLICA)
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.run(2 * MINUTE)
    assert world.generation(REPLICA) != before, "it was restarted"
    assert world.weights() == {REPLICA: 100}, "without success, and it still serves"

    count = len(world.traffic.writes)
    if how == "a new process":
        world.restart()
    else:
        world.life.prober.why_silent = "no results"
    world.run(2 * MINUTE)
    assert not [write for write in world.traffic.writes[count:] if isinstance(write.action, SetWeight)]
    assert world.weights() == {REPLICA: 100}


def test_a_last_resort_ends_when_a_better_replica_exists(worlds):
    world = ready(worlds(shop(replicas=3, backoff=QUICK)))
    others = {WEB.format(1), WEB.format(2)}
    world.apps.lies[REPLICA, "liveness"] = ProbeValue.FAIL
    world.run(15 * MINUTE)
    assert Rule.FAILED in {hold.rule for hold in world.tape.last.holds}
    assert {name for name, weight in world.weights().items() if weight} == others

    world.apps.mute |= others
    world.run(2 * MINUTE)
    assert world.weights()[REPLICA] == 100
    assert Reason.LAST_RESORT in {step.cause for step in world.tape.steps if isinstance(step.action, SetWeight)}

    world.apps.mute.clear()
    world.run(2 * MINUTE)
    assert {name for name, weight in world.weights().items() if weight} == others


def test_a_replica_failing_readiness_is_no_last_resort(worlds):
    world = ready(worlds(shop(replicas=1, backoff=QUICK)))
    world.apps.lies["*", "liveness"] = ProbeValue.FAIL
    world.apps.mute.add(REPLICA)
    world.run(15 * MINUTE)
    assert not any(world.weights().values())
