"""Replicas that are about to get traffic are asked once more at that instant, and a canary's pause begins at its share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND, Desired
from manifests.values.rollouts import CanaryStep, Strategy
from manifests.values.traffic import Ramp
from providers.facts import Generation, ProbeValue
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.revision import Standing
from tests.core.rollouts.world import names_of, of, row, staged, standing
from tests.sim.manifest import Shop
from tests.sim.world import World

MINUTE = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Slow(Shop):
    """A shop whose probes run once in five minutes, with a ramp or none."""

    ramp: Ramp | None = None
    period: int = 300 * SECOND

    def desired(self) -> Desired:
        desired = Shop.desired(self)
        (workload,) = desired.workloads
        main = workload.template.container
        main = replace(
            main,
            liveness=replace(main.liveness, period=self.period),
            readiness=replace(main.readiness, period=self.period, failure_threshold=1),
        )
        workload = replace(workload, template=replace(workload.template, container=main))
        services = tuple(replace(service, ramp=self.ramp) for service in desired.services)
        return replace(desired, workloads=(workload,), services=services)


def slow(shop: Shop, **fields) -> Slow:
    return Slow(shop.specs, **fields)


@pytest.fixture
def run() -> Iterator[Callable[[Shop], World]]:
    made: list[World] = []

    def start(manifest: Shop) -> World:
        made.append(World(manifest))
        return _begun(made[0])

    yield start
    for here in made:
        here.close()


def _begun(here: World) -> World:
    here.apps.start_delay = 0
    here.start()
    here.run(20 * SECOND)
    return here


def fail(here: World, image: str) -> None:
    containers = here.containers()
    for name in names_of(image):
        item = containers[name]
        here.apps.unready.add(Generation(item.id, item.started_at))


@pytest.mark.parametrize("strategy", [Strategy.ACTIVATE, Strategy.CANARY])
def test_replicas_that_failed_since_their_last_probe_get_no_traffic(run, strategy):
    steps = (CanaryStep(1_000, MINUTE),) if strategy is Strategy.CANARY else ()
    here = run(slow(staged(strategy=strategy, steps=steps)))
    here.push(slow(staged("v2", strategy=strategy, delay=2 * MINUTE, steps=steps)))
    here.run(100 * SECOND)
    assert row(here, "v2").standing is Standing.SCHEDULED
    fail(here, "v2")
    for _ in range(60):
        here.run(SECOND)
        assert not any(of(here, "v2").values())
        assert set(of(here, "v1").values()) == {100}
    assert any(wait.waiting is Waiting.VERIFIED for wait in here.tape.last.waits)


def test_the_switch_follows_the_new_answers_at_once(run):
    here = run(slow(staged()))
    here.push(slow(staged("v2", delay=2 * MINUTE)))
    here.run(140 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert row(here, "v2").rechecked is None


def test_a_canary_is_asked_before_each_step(run):
    steps = (CanaryStep(1_000, MINUTE), CanaryStep(5_000, MINUTE))
    here = run(slow(staged(strategy=Strategy.CANARY, steps=steps)))
    here.push(slow(staged("v2", strategy=Strategy.CANARY, delay=0, steps=steps)))
    here.run(50 * SECOND)
    assert set(of(here, "v2").values()) == {11}
    fail(here, "v2")
    here.run(40 * SECOND)
    assert set(of(here, "v2").values()) == {11}  # the probes of the period have not failed yet


def test_a_switch_is_held_while_probes_do_not_answer(run):
    here = run(slow(staged()))
    here.push(slow(staged("v2", delay=2 * MINUTE)))
    here.run(100 * SECOND)
    here.apps.lies[("*", "trial of again readiness")] = ProbeValue.UNKNOWN
    here.run(60 * SECOND)
    (hold,) = [hold for hold in here.tape.last.holds if hold.rule is Rule.PROBER_FAULT]
    assert "no new result" in hold.message
    assert "check that the probes" in hold.next_step
    assert not any(of(here, "v2").values())
    here.apps.lies.clear()
    here.run(310 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


def test_a_kill_while_replicas_are_asked_loses_nothing(run):
    here = run(slow(staged()))
    here.push(slow(staged("v2", delay=2 * MINUTE)))
    here.run(100 * SECOND)
    here.apps.lies[("*", "trial of again readiness")] = ProbeValue.UNKNOWN
    while row(here, "v2").rechecked is None:
        here.run(SECOND)
    here.kill()
    here.apps.lies.clear()
    here.start()
    here.run(30 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


def test_the_pause_of_a_canary_begins_when_its_share_was_read_back(run):
    steps = (CanaryStep(1_000, MINUTE), CanaryStep(5_000, MINUTE))
    ramp = Ramp(5 * MINUTE, 1)
    here = run(slow(staged(strategy=Strategy.CANARY, steps=steps), period=5 * SECOND, ramp=ramp))
    here.run(6 * MINUTE)
    here.push(slow(staged("v2", strategy=Strategy.CANARY, delay=0, steps=steps), period=5 * SECOND, ramp=ramp))
    reached = None
    for second in range(900):
        here.run(SECOND)
        weights = of(here, "v2").values()
        if weights and min(weights) >= 11 and reached is None:
            reached = second
        if weights and max(weights) > 20:
            assert reached is not None
            assert second - reached >= 58
            break
    else:
        pytest.fail("the second step never came")
