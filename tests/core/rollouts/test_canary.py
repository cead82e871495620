"""Canaries, kills at every point of an activation, and the history of rolling rollouts. In virtual time."""

from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Strategy
from manifests.values.traffic import Panic, PanicMode
from providers.actions import SetWeight
from providers.facts import ProbeValue
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import Standing
from tests.core.rollouts.world import names_of, of, revision, staged, standing, up
from tests.laws.examples import stride
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop, shop
from tests.sim.world import World

# --- canary -----------------------------------------------------------------------------------------------------

STEPS = (CanaryStep(1_000, 60 * SECOND), CanaryStep(5_000, 60 * SECOND))


def canary(image: str = "v1", **fields) -> Shop:
    return staged(image, strategy=Strategy.CANARY, delay=0, steps=STEPS, **fields)


def test_a_canary_gets_its_shares_one_after_the_other_and_then_everything(world):
    here = world(canary())
    here.push(canary("v2"))
    here.run(50 * SECOND)
    assert set(of(here, "v2").values()) == {11}  # a ninth of the others, so a tenth of all
    assert set(of(here, "v1").values()) == {100}
    here.run(60 * SECOND)
    assert set(of(here, "v2").values()) == set(of(here, "v1").values()) == {100}
    here.run(90 * SECOND)
    assert set(of(here, "v2").values()) == {100}
    assert set(of(here, "v1").values()) <= {0}
    assert standing(here, "v2") is Standing.ACTIVE


def test_a_canary_that_fails_is_back_at_exactly_nothing_and_stays_out(world):
    here = world(canary())
    here.push(canary("v2"))
    here.run(50 * SECOND)
    here.apps.mute |= set(names_of("v2"))
    here.run(60 * SECOND)
    assert set(of(here, "v2").values()) <= {0}
    assert set(of(here, "v1").values()) == {100}
    assert standing(here, "v2") is Standing.FAILED
    here.apps.mute.clear()
    here.run(900 * SECOND)
    assert set(of(here, "v1").values()) == {100}
    assert not any(revision("v2")[:8] in name for name in here.containers())


def test_weights_are_raised_before_others_are_lowered_even_below_before(world):
    steps = (CanaryStep(1_000, 60 * SECOND), CanaryStep(9_000, 60 * SECOND))
    here = world(staged("v2", strategy=Strategy.CANARY, delay=0, steps=steps))
    here.push(staged("v1", strategy=Strategy.CANARY, delay=0, steps=steps))
    here.run(50 * SECOND)
    assert set(of(here, "v1").values()) == {11}
    changes = []
    here.checks.append(
        lambda action: changes.append(action.weight > action.before) if isinstance(action, SetWeight) else None
    )
    here.run(60 * SECOND)
    assert set(of(here, "v1").values()) == {100}
    assert set(of(here, "v2").values()) == {11}
    assert changes == [True] * 3 + [False] * 3


@dataclass(frozen=True, slots=True)
class Spread(Shop):
    """A shop that gives all endpoints the same while too many fail."""

    def desired(self):
        made = super(Spread, self).desired()
        panic = Panic(90, PanicMode.SPREAD)
        return replace(made, services=tuple(replace(service, panic=panic) for service in made.services))


@pytest.mark.parametrize("failing", [names_of("v2")[:1], names_of("v1")[:2] + names_of("v2")[:1]], ids=["one", "three"])
def test_a_panic_that_spreads_raises_no_weight_of_a_failing_canary(world, failing):
    here = world(Spread(canary().specs))
    here.push(Spread(canary("v2").specs))
    here.run(50 * SECOND)
    assert set(of(here, "v2").values()) == {11}
    weights = []
    here.checks.append(lambda action: weights.extend(of(here, "v2").values()))
    here.apps.mute |= set(failing)
    here.run(40 * SECOND)
    assert max([*weights, *of(here, "v2").values()]) == 11


@pytest.mark.parametrize("unknown", [1, 3])
def test_a_canary_gets_no_more_because_nothing_is_known_of_the_others(world, unknown):
    here = world(canary())
    here.push(canary("v2"))
    here.run(40 * SECOND)
    before = here.weights()
    assert set(of(here, "v2").values()) == {11}
    for name in names_of("v1")[:unknown]:
        here.apps.lies |= {(name, probe): ProbeValue.UNKNOWN for probe in ("liveness", "readiness")}
    here.restart()
    here.run(20 * SECOND)
    assert here.weights() == before


def test_a_newer_revision_in_the_middle_of_a_canary_starts_from_nothing(world):
    here = world(canary())
    here.push(canary("v2"))
    here.run(120 * SECOND)
    assert set(of(here, "v2").values()) == {100}
    weights = []
    here.checks.append(lambda action: weights.append((dict(of(here, "v2")), dict(of(here, "v3")))))
    here.push(canary("v3"))
    here.run(50 * SECOND)
    assert set(of(here, "v3").values()) == {11}
    assert set(of(here, "v1").values()) == {100}
    assert standing(here, "v2") is Standing.SUPERSEDED
    assert all(not any(two.values()) or not any(three.values()) for two, three in weights)
    here.run(200 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE


# --- crashes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken_back", [False, True], ids=["switch", "taking it back"])
def test_the_next_process_finishes_an_activation_killed_at_any_point(taken_back):
    point = 0
    while True:
        here = World(staged())
        here.dog = Watchdog(here)
        try:
            here.run(90 * SECOND)
            here.push(staged("v2"))
            here.run((280 if taken_back else 112) * SECOND)
            if taken_back:
                here.apps.mute |= set(names_of("v2"))
            lives = here.lives
            here.kill_in = point
            ups: list[int] = []
            here.checks.append(lambda action, ups=ups, here=here: ups.append(sum(map(bool, here.weights().values()))))
            here.run(240 * SECOND)
            died = here.lives > lives
            assert standing(here, "v2") is (Standing.FAILED if taken_back else Standing.ACTIVE), point
            assert standing(here, "v1") is (Standing.ACTIVE if taken_back else Standing.SUPERSEDED), point
            good, other = ("v1", "v2") if taken_back else ("v2", "v1")
            assert all(of(here, good).values()), point
            assert len(of(here, good)) == 3
            assert not any(of(here, other).values()), point
            assert not ups or min(ups) >= 1
        finally:
            here.close()
        if not died:
            break
        point += stride(search=1, ci=1) + point // 6
    assert point > 6


def test_a_lost_ledger_finds_the_active_revision_in_the_weights(world):
    here = world(staged())
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(60 * SECOND)
    here.kill()
    here.memory.rows.clear()
    here.run(120 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.SCHEDULED
    assert all(of(here, "v1").values())
    assert not any(of(here, "v2").values())


# --- one replica after the other ----------------------------------------------------------------------------------


def test_a_rolling_rollout_keeps_its_history_and_is_reported_as_stuck(world):
    here = world(shop())
    assert standing(here, "v1") is Standing.ACTIVE
    here.apps.mute |= {names_of("v2")[0]}
    here.push(shop(image="v2"))
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    assert not here.tape.last.holds
    here.run(500 * SECOND)
    (hold,) = [hold for hold in here.tape.last.holds if hold.rule is Rule.PROGRESS]
    assert hold.next_step
    assert up(here, "v1") == 3
    here.push(shop(image="v3"))
    here.run(300 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert standing(here, "v1") is Standing.SUPERSEDED
    assert standing(here, "v2") is Standing.FAILED
    assert up(here, "v3") == 3
    assert len(here.running()) == 3


def test_an_old_address_leaves_names_only_after_the_new_one_has_joined(world):
    here = world(shop())
    sizes: list[int] = []
    here.checks.append(lambda action: sizes.append(len(here.published())))
    here.push(shop(image="v2"))
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert min(sizes) >= 3


# --- edges --------------------------------------------------------------------------------------------------------


def test_without_balancers_names_follow_the_activation_and_are_never_empty(world):
    here = world(staged(pools=()))
    before = set(here.published())
    assert len(before) == 3
    sizes: list[int] = []
    here.checks.append(lambda action: sizes.append(len(here.published())))
    here.push(staged("v2", pools=()))
    here.run(100 * SECOND)
    assert set(here.published()) == before
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert set(here.published()).isdisjoint(before)
    assert min(sizes) == 3


def test_more_replicas_and_fewer_while_a_revision_waits(world):
    here = world(staged(replicas=2))
    here.push(staged("v2", replicas=2, delay=3600 * SECOND))
    here.run(60 * SECOND)
    here.push(staged("v2", replicas=1, delay=3600 * SECOND))
    here.run(120 * SECOND)
    assert up(here, "v1") == up(here, "v2") == 1
    here.push(staged("v2", replicas=3, delay=3600 * SECOND))
    here.run(120 * SECOND)
    assert up(here, "v1") == up(here, "v2") == 3
    assert len(of(here, "v1")) == 3
    assert all(of(here, "v1").values())
    assert not here.tape.last.holds
    here.run(3600 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert len(of(here, "v2")) == 3
    assert not here.tape.last.holds
