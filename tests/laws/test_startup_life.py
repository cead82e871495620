"""A startup probe gates the others for a generation's start only: not for a plan, and not again for each new process."""

from manifests.values.desired import SECOND
from providers.actions import StopContainer
from providers.facts import Known, ProbeValue
from reconciler.core.model.reasons import Reason
from tests.laws.lives import WEB, ready
from tests.sim.manifest import shop
from tests.sim.world import World


def stops(world: World) -> list[str]:
    return [
        write.action.name
        for write in world.traffic.writes
        if isinstance(write.action, StopContainer) and write.effective
    ]


def test_a_new_process_restarts_who_fails_by_now_as_if_it_had_been_there_all_the_time(worlds):
    world = ready(worlds(shop(startup=True)))
    world.kill()
    for probe in ("startup", "liveness"):
        world.apps.lies[WEB.format(1), probe] = ProbeValue.FAIL
    world.run(45 * SECOND)
    assert stops(world) == [WEB.format(1)]
    assert {step.cause for step in world.tape.steps if isinstance(step.action, StopContainer)} == {
        Reason.LIVENESS_FAILED
    }


def test_who_has_not_started_yet_is_left_to_its_startup_probe_by_a_new_process_too(worlds):
    world = worlds(shop(startup=True))
    world.apps.lies[WEB.format(1), "startup"] = ProbeValue.FAIL
    world.run(15 * SECOND)
    world.restart()
    world.run(45 * SECOND)
    assert stops(world) == []
    world.apps.lies.clear()
    world.run(30 * SECOND)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


def test_a_plan_sees_what_comes_after_the_startup_probe_and_waits_for_nothing_else(worlds):
    world = worlds(shop(startup=True))
    world.run(60 * SECOND)
    world.memory.rows.clear()  # nothing is remembered, so the plan finds out itself
    before = world.clock.now().steady
    _, observed, now = world.observe_once()
    assert now.steady - before < 10 * SECOND, "the whole time that probes may take was waited for"
    for probes in observed.probes.values():
        assert {probes.startup.value, probes.liveness.last, probes.readiness.last} == {ProbeValue.PASS}
    assert all(isinstance(pool, Known) for pool in observed.pools.values())
