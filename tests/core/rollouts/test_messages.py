"""Pushes and overrides during a rollout: neither activates a waiting revision, and an override does not fail a revision."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Push
from manifests.values.rollouts import Rollout, Strategy
from providers.actions import SetWeight
from providers.facts import PortFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.override import Force, Override
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.revision import Revision, RevisionMark, Standing
from reconciler.core.model.revision import Rollout as History
from tests.builders import NOW, SEEN, Scene, ago, container, probe
from tests.sim.manifest import Spec, shop

OLD = Spec(replicas=2)
NEW = replace(OLD, image="v2")


def beside(due: bool, weight: int = 0, push: bool = False):
    """v2 beside v1, due or not; with a weight its activation is open and that weight was read back."""
    at = NOW.wall + (-60 if due else 3600) * SECOND
    desired = shop(replicas=2, image="v2", strategy=Strategy.ACTIVATE, rollout=Rollout(activate_at=at)).desired()
    (web,) = desired.workloads
    desired = replace(desired, workloads=(replace(web, push=Push() if push else None),))
    scene = Scene(OLD)
    for ordinal in range(2):
        fact = container(NEW, ordinal)
        address = fact.address.replace("10.0", "10.1")
        scene.add(NEW, replace(fact, address=address, ports=(PortFact(8080, address, 8080),)), weight=weight)
    old = Revision(OLD.revision, 1, Standing.ACTIVE, ago(9999), activated=ago(9999))
    opened = ago(9) if weight else None
    new = Revision(
        NEW.revision, 2, Standing.SCHEDULED, ago(99), at=at, due=ago(50) if due else None, opened=opened, scale=2
    )
    new = new._replace(rechecked=ago(5) if due and not weight else None)
    scene.ledger = replace(
        scene.ledger,
        rollouts={OLD.key: History(OLD.revision, rows=(old, new))},
        clock=ago(99),
        revisions={OLD.key: RevisionMark(2, NEW.revision)},
    )
    return desired, scene


def ordered(scene: Scene, force: Force, *ordinals: int) -> None:
    orders = {f"{OLD.key}/{ordinal}": Override(force, ago(30), "jo", "looking into it") for ordinal in ordinals}
    scene.ledger = replace(scene.ledger, overrides=orders)


def raised(decision) -> set[str]:
    return {step.action.name for step in decision.steps if isinstance(step.action, SetWeight) and step.action.weight}


@pytest.mark.parametrize("event", list(PushEvent))
def test_no_push_of_a_waiting_replica_gives_it_traffic(event):
    desired, scene = beside(due=False, push=True)
    pushes = {fact.generation: PushFact(event, SEEN - SECOND, SEEN - SECOND, "boot", 1) for fact in scene.facts[2:]}
    assert not raised(decide(desired, replace(scene.observed(), pushes=pushes), NOW))


def test_no_order_gives_a_waiting_replica_traffic():
    desired, scene = beside(due=False)
    ordered(scene, Force.UP, 0, 1)
    assert not raised(decide(desired, scene.observed(), NOW))


@pytest.mark.parametrize("force", [Force.DOWN, Force.DRAIN])
def test_an_overridden_replica_blocks_no_activation_and_fails_no_revision(force):
    desired, scene = beside(due=True)
    ordered(scene, force, 1)
    decision = decide(desired, scene.observed(), NOW)
    row = decision.ledger.rollouts[OLD.key].of(NEW.revision)
    assert (row.standing, row.opened is not None) == (Standing.SCHEDULED, True)
    desired, scene = beside(due=True, weight=100)
    ordered(scene, force, 1)
    scene.pools["web"] = [
        pool._replace(weight=0) if pool.name.endswith("-1") else pool for pool in scene.pools["web"]
    ]  # as ordered
    decision = decide(desired, scene.observed(), NOW)
    assert decision.ledger.rollouts[OLD.key].active == NEW.revision
    assert not {name for name in raised(decision) if name.endswith("-1")}


def test_a_failing_replica_under_an_override_is_not_activated():
    desired, scene = beside(due=True)
    ordered(scene, Force.DOWN, 1)
    bad = scene.facts[3].generation
    scene.probes[bad] = scene.probes[bad]._replace(readiness=probe(ProbeValue.FAIL))
    row = decide(desired, scene.observed(), NOW).ledger.rollouts[OLD.key].of(NEW.revision)
    assert (row.standing, row.opened) == (Standing.SCHEDULED, None)


def test_overrides_within_bake_cause_no_rollback():
    desired, scene = beside(due=True, weight=100)
    history = scene.ledger.rollouts[OLD.key]
    new = history.of(NEW.revision)._replace(standing=Standing.ACTIVE, activated=ago(60), opened=None, due=None)
    old = history.of(OLD.revision)._replace(standing=Standing.SUPERSEDED, ended=ago(60))
    history = History(NEW.revision, low=ago(40), rows=(old, new))
    scene.ledger = replace(scene.ledger, rollouts={OLD.key: history})
    ordered(scene, Force.DOWN, 0, 1)
    after = decide(desired, scene.observed(), NOW).ledger.rollouts[OLD.key]
    assert (after.back, after.low, after.active) == ("", None, NEW.revision)
