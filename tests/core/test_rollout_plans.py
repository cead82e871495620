"""Whole plans of staged rollouts as people review them, compared with golden texts."""

from dataclasses import replace

import pytest

from core.plans import NOW, Scene, ago, probe
from manifests.desired import SECOND
from manifests.rollouts import CanaryStep, Rollout, Strategy
from providers.facts import Generation, PortFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.ledger import from_rows, to_rows
from reconciler.core.plan import to_text
from reconciler.core.revision import Revision, Standing
from reconciler.core.revision import Rollout as Books
from reconciler.core.verdict import Rule
from sim.manifest import Spec, shop

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


def test_the_books_come_back_from_their_rows():
    row = Revision("a" * 16, 3, Standing.SCHEDULED, ago(9), "app:1", LATER, 5, ago(8), ago(7), 2, ago(6), 1, ago(5))
    done = Revision("b" * 16, 2, Standing.ACTIVE, ago(99), activated=ago(50), ended=None, why="it took over")
    books = Books("b" * 16, "c" * 16, ago(3), 1, ago(2), ("ann", "wrong"), (done, row))
    ledger = replace(Scene(WEB).ledger, rollouts={"workload/web": books}, clock=ago(1))
    assert from_rows(to_rows(ledger)) == ledger


def test_what_is_not_known_neither_lets_a_revision_in_nor_ends_its_waiting():
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
    books = first.ledger.rollouts["workload/web"].put(row._replace(due=ago(7200), opened=None))
    ledger = replace(first.ledger, rollouts={"workload/web": books})
    blank = {one: value for one, value in known.probes.items() if not _is_of(one, waiting, new)}
    after = decide(desired, replace(known, ledger=ledger, probes=blank), NOW)
    assert after.ledger.rollouts["workload/web"].of(new.revision).standing is Standing.SCHEDULED
    assert not after.steps
    assert any(one.rule is Rule.PROBER_FAULT for one in after.holds)
    bad = probe(ProbeValue.FAIL)
    sick = {
        one: value._replace(readiness=bad) if _is_of(one, waiting, new) else value
        for one, value in known.probes.items()
    }
    after = decide(desired, replace(known, ledger=ledger, probes=sick), NOW)
    assert after.ledger.rollouts["workload/web"].of(new.revision).standing is Standing.EXPIRED


def _is_of(generation: Generation, scene: Scene, spec: Spec) -> bool:
    return any(one.generation == generation and one.mark.revision == spec.revision for one in scene.facts)
