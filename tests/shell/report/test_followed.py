"""An event says what followed from a verdict: in pools, names and restarts, or which rule held it."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.ledger import Grant, Suspension
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.shell.report.followed import NOTHING, Followed, Reaction
from tests.builders import NOW, Scene, ago
from tests.laws.helpers import MINUTE, ready
from tests.laws.helpers import WEB as NAME
from tests.sim.manifest import POOLS, Shop, Spec, shop
from tests.sim.world import World

WEB = Spec(replicas=4)
HOST = "web.example.test."


def text(scene: Scene, number: int = 0, probe: str = "readiness", spec: Spec = WEB, **fields: object) -> str:
    """What followed from a failed probe of one container, decided until no new grant is given."""
    desired = Shop((spec,), **fields).desired()
    decision = decide(desired, scene.observed(), NOW)
    fact = scene.facts[number]
    value = getattr(scene.probes[fact.generation], probe).value
    reaction = Followed(decision, {}).reaction(fact, probe, value)
    return reaction.text({id(step): Outcome(step.id, OutcomeKind.DONE) for step in decision.steps})


def unready(*numbers: int, spec: Spec = WEB) -> Scene:
    scene = Scene(spec)
    for number in numbers:
        scene.sick(number, "readiness")
    return scene


def reaction(scene: Scene, number: int = 0, probe: str = "readiness", spec: Spec = WEB) -> tuple[Reaction, Decision]:
    decision = decide(Shop((spec,)).desired(), scene.observed(), NOW)
    fact = scene.facts[number]
    return Followed(decision, {}).reaction(fact, probe, getattr(scene.probes[fact.generation], probe).value), decision


def test_a_call_that_failed_is_not_reported_as_done() -> None:
    said, decision = reaction(unready(0))
    outcomes = {
        id(step): Outcome(step.id, OutcomeKind.FAILED, "connection refused")
        if step.id.startswith("weight ")
        else Outcome(step.id, OutcomeKind.DONE)
        for step in decision.steps
    }
    assert said.text(outcomes) == (
        f"acted on: address withdrawn from {HOST}; weight 0 in {POOLS}/web: failed (connection refused)"
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OutcomeKind.SKIPPED, "not done (stopping)"),
        (OutcomeKind.UNKNOWN, "it is not known whether it was done (stopping)"),
        (OutcomeKind.REJECTED, "failed (stopping)"),
    ],
)
def test_without_a_call_that_was_done_nothing_was_acted_on(kind: OutcomeKind, words: str) -> None:
    said, decision = reaction(unready(0))
    reported = said.text({id(step): Outcome(step.id, kind, "stopping") for step in decision.steps})
    assert reported.startswith(f"not acted on: weight 0 in {POOLS}/web: {words}")


def test_a_call_without_an_outcome_is_reported_as_begun() -> None:
    said, _ = reaction(unready(0))
    assert said.text({}).startswith(f"not acted on: weight 0 in {POOLS}/web: begun, not confirmed yet")


def test_a_grant_for_another_cause_is_no_restart_for_the_verdict() -> None:
    scene = unready(0)
    fact = scene.facts[0]
    exit_ = Grant("workload/web/0", fact.generation, Reason.SURPLUS, ago(30))
    scene.ledger = replace(scene.ledger, grants={fact.id: exit_})
    decision = decide(Shop((WEB,)).desired(), scene.observed(), NOW)
    decision = replace(decision, ledger=replace(decision.ledger, grants={fact.id: exit_}))
    said = Followed(decision, {fact.id: exit_}).reaction(fact, "readiness", ProbeValue.FAIL).text({})
    assert "its exit is in progress already (Surplus)" in said
    assert "restart granted" not in said


def test_a_failed_readiness_takes_weight_and_address() -> None:
    said = text(unready(0))
    assert said == f"acted on: weight 0 in {POOLS}/web, address withdrawn from {HOST}"


def test_a_name_alone_is_reported_too() -> None:
    spec = replace(WEB, pools=())
    assert text(unready(0, spec=spec), spec=spec) == f"acted on: address withdrawn from {HOST}"


def test_a_weight_that_a_floor_keeps_is_reported_with_its_rule() -> None:
    said = text(unready(0, 1, 2))
    assert f"Panic keeps its weight in {POOLS}/web" in said
    assert "nothing" not in said


def test_the_last_member_and_the_last_address_name_their_rules() -> None:
    spec = replace(WEB, replicas=1)
    said = text(unready(0, spec=spec), spec=spec)
    assert said.startswith("not acted on: ")
    assert f"LastMember keeps its weight in {POOLS}/web" in said
    assert f"LastRecord keeps its address in {HOST}" in said


def test_a_pool_that_cannot_be_read_is_named() -> None:
    scene = unready(0)
    scene.unknown.add(POOLS)
    assert f"pool {POOLS}/web cannot be read" in text(scene)


def test_a_failure_on_which_nothing_depends_is_reported_so() -> None:
    spec = replace(WEB, pools=(), publish=None)
    assert text(unready(0, spec=spec), spec=spec) == NOTHING


def test_a_held_restart_names_its_rule_and_what_was_done_all_the_same() -> None:
    scene = Scene(WEB)
    scene.sick(0, "liveness")
    scene.ledger = replace(scene.ledger, suspensions={"workload/web": Suspension("ada", "looking at it", 0)})
    said = text(scene, probe="liveness")
    assert said.startswith(f"acted on: weight 0 in {POOLS}/web, address withdrawn from {HOST}")
    assert said.endswith(f"; restart {scene.facts[0].name} is held by Suspended")


def test_a_granted_restart_is_reported_with_the_weight() -> None:
    scene = Scene(WEB)
    scene.sick(0, "liveness")
    said = text(scene, probe="liveness")
    assert said.startswith("acted on: restart granted (LivenessFailed)")
    assert f"weight 0 in {POOLS}/web" in said


def test_a_suspended_service_is_reported() -> None:
    scene = unready(0)
    scene.ledger = replace(scene.ledger, suspensions={"service/web": Suspension("ada", "looking at it", 0)})
    said = text(scene)
    assert f"Suspended keeps its weight in {POOLS}/web" in said


@pytest.mark.parametrize("count", [6, 8])
def test_a_hold_that_lists_only_some_names_counts_for_all(count: int) -> None:
    spec = replace(WEB, replicas=count + 2)
    scene = unready(*range(count), spec=spec)
    assert f"Panic keeps its weight in {POOLS}/web" in text(scene, count - 1, spec=spec)


def test_the_events_of_a_run_never_deny_what_was_done(worlds_of_one: World) -> None:
    world = ready(worlds_of_one)
    world.memory.events.clear()
    for ordinal in range(2):
        world.apps.unready.add(world.generation(NAME.format(ordinal)))
        world.run(30 * SECOND)
    world.run(2 * MINUTE)
    verdicts = [event for event in world.memory.events if event.kind == "verdict"]
    assert [verdict.object for verdict in verdicts if ProbeValue.FAIL.value in verdict.cause]
    assert not [verdict.outcome for verdict in verdicts if verdict.outcome == NOTHING]


@pytest.fixture
def worlds_of_one():
    world = World(shop())
    yield world
    world.close()
