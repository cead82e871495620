"""Whole plans of staged rollouts as an operator reviews them, compared with golden texts."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.limits import Held, Window
from manifests.values.rollouts import CanaryStep, Rollout, Strategy
from providers.actions import SetWeight
from providers.facts import Generation, PortFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.revision import Revision, RevisionMark, Standing
from reconciler.core.model.revision import Rollout as History
from reconciler.core.plan_text import to_text
from tests.builders import NOW, Scene, ago, probe
from tests.sim.manifest import POOLS, Spec, shop

WEB = Spec(replicas=2)
STEPS = (CanaryStep(1_000, 300 * SECOND), CanaryStep(5_000, 600 * SECOND))
LATER = NOW.wall + 1800 * SECOND


def activate():
    return shop(
        replicas=2, image="v2", strategy=Strategy.ACTIVATE, rollout=Rollout(activate_at=LATER)
    ).desired(), Scene(WEB).observed()


def canary():
    return shop(replicas=2, image="v2", strategy=Strategy.CANARY, rollout=Rollout(steps=STEPS)).desired(), Scene(
        WEB
    ).observed()


SITUATIONS = {"activate-later": activate, "canary": canary}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_plan_of(name, golden):
    plan = forecast(*SITUATIONS[name](), NOW)
    assert not plan.truncated
    golden(f"plan/{name}.txt", to_text(plan))


def test_the_rollout_history_comes_back_from_its_rows():
    row = Revision("a" * 16, 3, Standing.SCHEDULED, ago(9), "app:1", LATER, 5, ago(8), ago(7), 2, ago(6), 1, ago(5))
    done = Revision("b" * 16, 2, Standing.ACTIVE, ago(99), activated=ago(50), ended=None, why="it took over")
    history = History("b" * 16, "c" * 16, ago(3), 1, ago(2), ("ann", "wrong"), (done, row))
    ledger = replace(Scene(WEB).ledger, rollouts={"workload/web": history}, clock=ago(1))
    assert from_rows(to_rows(ledger)) == ledger


def test_unknown_probes_neither_activate_a_revision_nor_end_its_wait():
    desired, _ = activate()
    late = replace(desired.workloads[0], rollout=Rollout(activate_at=NOW.wall - 7200 * SECOND))
    desired = replace(desired, workloads=(late,))
    waiting = Scene(WEB)
    new = replace(WEB, image="v2")
    for fact in [*Scene(new).facts]:
        address = fact.address.replace("10.0", "10.1")
        moved = replace(fact, address=address, ports=(PortFact(8080, address, 8080),))
        waiting.add(new, moved, weight=0)
    known = waiting.observed()
    first = decide(desired, known, NOW)
    row = first.ledger.rollouts["workload/web"].of(new.revision)
    assert row.due is not None
    history = first.ledger.rollouts["workload/web"].put(row._replace(due=ago(7200), opened=None))
    ledger = replace(first.ledger, rollouts={"workload/web": history})
    blank = {generation: value for generation, value in known.probes.items() if not _is_of(generation, waiting, new)}
    after = decide(desired, replace(known, ledger=ledger, probes=blank), NOW)
    assert after.ledger.rollouts["workload/web"].of(new.revision).standing is Standing.SCHEDULED
    assert not after.steps
    assert any(hold.rule is Rule.PROBER_FAULT for hold in after.holds)
    bad = probe(ProbeValue.FAIL)
    sick = {
        generation: value._replace(readiness=bad) if _is_of(generation, waiting, new) else value
        for generation, value in known.probes.items()
    }
    after = decide(desired, replace(known, ledger=ledger, probes=sick), NOW)
    assert after.ledger.rollouts["workload/web"].of(new.revision).standing is Standing.EXPIRED


def _is_of(generation: Generation, scene: Scene, spec: Spec) -> bool:
    return any(fact.generation == generation and fact.mark.revision == spec.revision for fact in scene.facts)


def beside(opened: bool, sick: bool = False):
    """v2 beside v1, due, with its activation open or not; one of its replicas may fail."""
    desired, _ = activate()
    times = Rollout(activate_at=NOW.wall - 60 * SECOND)
    desired = replace(desired, workloads=(replace(desired.workloads[0], rollout=times),))
    scene, new = Scene(WEB), replace(WEB, image="v2")
    for fact in Scene(new).facts:
        address = fact.address.replace("10.0", "10.1")
        scene.add(new, replace(fact, address=address, ports=(PortFact(8080, address, 8080),)), weight=0)
    if sick:
        scene.sick(2, "readiness")
    row = Revision(new.revision, 2, Standing.SCHEDULED, ago(99), due=ago(50), opened=ago(1) if opened else None)
    old = Revision(WEB.revision, 1, Standing.ACTIVE, ago(9999), activated=ago(9999))
    history = History(WEB.revision, rows=(old, row._replace(at=times.activate_at)))
    scene.ledger = replace(
        scene.ledger,
        rollouts={WEB.key: history},
        clock=ago(99),
        revisions={WEB.key: RevisionMark(2, new.revision)},
    )
    return desired, scene, new


def test_a_failing_replica_calls_off_the_activation_and_the_retry_waits():
    desired, scene, new = beside(opened=True, sick=True)
    decision = decide(desired, scene.observed(), NOW)
    row = decision.ledger.rollouts[WEB.key].of(new.revision)
    assert (row.opened, row.failures, row.standing) == (None, 1, Standing.SCHEDULED)
    assert not any(isinstance(step.action, SetWeight) for step in decision.steps)
    scene.ledger, well = decision.ledger, beside(opened=False)[1]
    after = decide(desired, replace(well.observed(), ledger=decision.ledger), NOW)
    (hold,) = [hold for hold in after.holds if hold.rule is Rule.BACK_OFF]
    assert hold.until > NOW.steady
    assert after.wake_at <= hold.until
    then = NOW._replace(wall=NOW.wall + hold.until - NOW.steady, steady=hold.until)
    facts = replace(well.observed(), ledger=after.ledger)
    probes = {
        generation: value._replace(
            liveness=_later(value.liveness, hold.until), readiness=_later(value.readiness, hold.until)
        )
        for generation, value in facts.probes.items()
    }
    asking = decide(desired, replace(facts, probes=probes), then)
    row = asking.ledger.rollouts[WEB.key].of(new.revision)
    assert (row.opened, row.rechecked.steady) == (None, then.steady)
    history = asking.ledger.rollouts[WEB.key].put(row._replace(rechecked=ago(5)))
    answered = replace(facts, probes=probes, ledger=replace(asking.ledger, rollouts={WEB.key: history}))
    again = decide(desired, answered, then)
    assert again.ledger.rollouts[WEB.key].of(new.revision).opened is not None


def _later(fact, steady):
    return fact._replace(last_at=steady)


def test_nothing_is_lowered_while_a_pool_cannot_be_read():
    desired, scene, _ = beside(opened=True)
    scene.unknown.add(POOLS)
    decision = decide(desired, scene.observed(), NOW)
    assert decision.ledger.rollouts[WEB.key].active == WEB.revision
    assert any(wait.waiting is Waiting.RAISED for wait in decision.waits)
    assert not decision.steps


def test_the_activation_ends_once_every_endpoint_was_read_back():
    desired, scene, new = beside(opened=True)
    scene.pools["web"] = [pool._replace(weight=100) for pool in scene.pools["web"]]
    decision = decide(desired, scene.observed(), NOW)
    assert decision.ledger.rollouts[WEB.key].active == new.revision
    lowered = {step.action.name for step in decision.steps if isinstance(step.action, SetWeight)}
    assert lowered == {fact.name for fact in Scene(WEB).facts}


def test_a_guard_window_holds_the_activation_and_its_grace_does_not_run():
    desired, scene, new = beside(opened=False)
    window = Window("freeze", frozenset({Held.ROLLOUT}), "* * * * *", 3600 * SECOND, "UTC")
    desired = replace(desired, guard=replace(desired.guard, windows=(window,)))
    decision = decide(desired, scene.observed(), NOW)
    assert any(hold.rule is Rule.WINDOW and hold.object == WEB.key for hold in decision.holds)
    row = decision.ledger.rollouts[WEB.key].of(new.revision)
    assert (row.due, row.opened) == (None, None)
