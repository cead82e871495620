"""Replicas added during a rollout do not count against its revision; replicas that it lost do."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Rollout, Strategy
from providers.facts import ContainerState, PortFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Waiting
from reconciler.core.model.revision import Revision, RevisionMark, Standing
from reconciler.core.model.revision import Rollout as History
from tests.builders import NOW, Scene, ago, container, down, probe
from tests.sim.manifest import POOLS, Spec, shop

OLD = Spec(replicas=3)
NEW = replace(OLD, image="v2")
STEPS = (CanaryStep(1_000, 300 * SECOND), CanaryStep(5_000, 600 * SECOND))


def moved(fact):
    address = fact.address.replace("10.0", "10.1")
    return replace(fact, address=address, ports=(PortFact(8080, address, 8080),))


def baking(replicas: int, existing: int) -> tuple:
    """v2 took over a minute ago with three replicas, of which some exist; too few were available for the last 40 s."""
    desired = shop(replicas=replicas, image="v2", strategy=Strategy.ACTIVATE, rollout=Rollout()).desired()
    scene = Scene(replace(NEW, replicas=existing))
    scene.facts += [down(moved(container(OLD, ordinal))) for ordinal in range(3)]
    new = Revision(NEW.revision, 2, Standing.ACTIVE, ago(200), activated=ago(60), scale=3)
    old = Revision(OLD.revision, 1, Standing.SUPERSEDED, ago(9999), activated=ago(9999), ended=ago(60))
    history = History(NEW.revision, low=ago(40), rows=(old, new))
    marks = {NEW.key: RevisionMark(2, NEW.revision)}
    scene.ledger = replace(scene.ledger, rollouts={NEW.key: history}, clock=ago(99), revisions=marks)
    return desired, scene


@pytest.mark.parametrize(
    ("replicas", "existing", "taken_back"), [(3, 3, False), (10, 3, False), (3, 1, True), (10, 1, True)]
)
def test_an_activation_is_not_rolled_back_for_replicas_being_added(replicas, existing, taken_back):
    desired, scene = baking(replicas, existing)
    history = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key]
    assert bool(history.back) is taken_back
    assert (history.of(NEW.revision).standing is Standing.FAILED) is taken_back


def test_added_replicas_count_like_the_others_once_they_were_ready():
    desired, scene = baking(10, 10)
    after = decide(desired, scene.observed(), NOW)
    assert after.ledger.rollouts[NEW.key].of(NEW.revision).scale == 10
    fewer = replace(scene.observed(), ledger=after.ledger, runtimes=baking(10, 4)[1].observed().runtimes)
    history = decide(desired, fewer, NOW).ledger.rollouts[NEW.key]
    assert history.low is not None


def stepping(replicas: int, existing: int):
    """A canary with half of the traffic, opened with three replicas."""
    desired = shop(replicas=replicas, image="v2", strategy=Strategy.CANARY, rollout=Rollout(steps=STEPS)).desired()
    scene = Scene(OLD)
    for ordinal in range(existing):
        scene.add(NEW, moved(container(NEW, ordinal)))
    old = Revision(OLD.revision, 1, Standing.ACTIVE, ago(9999), activated=ago(9999))
    new = Revision(
        NEW.revision, 2, Standing.SCHEDULED, ago(900), due=ago(800), opened=ago(700), step=1, stepped=ago(60), scale=3
    )
    marks = {NEW.key: RevisionMark(2, NEW.revision)}
    rollouts = {NEW.key: History(OLD.revision, rows=(old, new))}
    scene.ledger = replace(scene.ledger, rollouts=rollouts, clock=ago(99), revisions=marks)
    return desired, scene


def test_a_canary_to_which_replicas_are_added_has_not_failed():
    desired, scene = stepping(replicas=10, existing=3)
    decision = decide(desired, scene.observed(), NOW)
    row = decision.ledger.rollouts[NEW.key].of(NEW.revision)
    assert (row.standing, row.opened, row.failures) == (Standing.SCHEDULED, ago(700), 0)
    assert {wait.waiting for wait in decision.waits} >= {Waiting.VERDICT}


def test_a_canary_that_loses_its_replicas_fails_also_while_scaling_up():
    desired, scene = stepping(replicas=10, existing=1)
    row = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key].of(NEW.revision)
    assert (row.standing, row.opened) == (Standing.FAILED, None)


def test_a_created_replica_that_is_not_started_calls_no_activation_off():
    desired, scene = stepping(replicas=4, existing=4)
    made = scene.facts[-1]
    scene.change(-1, replace(made, state=ContainerState.CREATED, running_since=0, started_at=0, address="", ports=()))
    scene.pools["web"].pop()
    row = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key].of(NEW.revision)
    assert (row.standing, row.opened, row.failures) == (Standing.SCHEDULED, ago(700), 0)


# --- a lost ledger ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readable", [True, False])
def test_a_lost_ledger_never_activates_a_waiting_revision_by_replica_count(readable):
    """The active revision has lost two of three replicas; the one that waits has all of them, and does not even answer."""
    desired = shop(replicas=3, image="v2", strategy=Strategy.ACTIVATE, rollout=Rollout(delay=99 * SECOND)).desired()
    scene = Scene(OLD)
    for ordinal in range(3):
        scene.add(NEW, moved(container(NEW, ordinal)), weight=0)
        scene.probes[scene.facts[-1].generation] = scene.probes[scene.facts[-1].generation]._replace(
            readiness=probe(ProbeValue.FAIL)
        )
    for ordinal in (1, 2):
        scene.change(ordinal, down(scene.facts[ordinal]))
    if not readable:
        scene.unknown.add(POOLS)
    scene.ledger = Ledger(source="git:shop", zones=scene.ledger.zones)
    history = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key]
    assert history.active == OLD.revision
    assert history.of(NEW.revision).standing is Standing.SCHEDULED
