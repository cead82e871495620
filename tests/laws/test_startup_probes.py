"""A startup probe delays the other probes only at the start of a generation: not for a plan, and not again for each new process."""

from manifests.values.desired import SECOND
from providers.actions import StopContainer
from providers.facts import Known, ProbeValue
from reconciler.core.model.reasons import Reason
from tests.laws.helpers import WEB, ready, stops
from tests.sim.manifest import shop


def test_a_new_process_restarts_a_replica_that_fails_after_its_start(worlds):
    world = ready(worlds(shop(startup=True)))
    world.kill()
    for probe in ("startup", "liveness"):
        world.apps.lies[WEB.format(1), probe] = ProbeValue.FAIL
    world.run(45 * SECOND)
    assert stops(world) == [WEB.format(1)]
    assert {step.cause for step in world.tape.steps if isinstance(step.action, StopContainer)} == {
        Reason.LIVENESS_FAILED
    }


def test_a_new_process_waits_for_a_pending_startup_probe(worlds):
    world = worlds(shop(startup=True))
    world.apps.lies[WEB.format(1), "startup"] = ProbeValue.FAIL
    world.run(15 * SECOND)
    world.restart()
    world.run(45 * SECOND)
    assert stops(world) == []
    world.apps.lies.clear()
    world.run(30 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


def test_a_plan_waits_only_for_the_probes_after_startup(worlds):
    world = worlds(shop(startup=True))
    world.run(60 * SECOND)
    world.memory.rows.clear()  # without a ledger the plan has to probe by itself
    before = world.clock.now().steady
    _, observed, now = world.observe_once()
    assert now.steady - before < 10 * SECOND, "the plan waited for the full time of the probes"
    for probes in observed.probes.values():
        assert {probes.startup.value, probes.liveness.last, probes.readiness.last} == {ProbeValue.PASS}
    assert all(isinstance(pool, Known) for pool in observed.pools.values())
