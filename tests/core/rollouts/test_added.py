"""Replicas that are added in the middle of a rollout say nothing against it; those that were there and are gone do."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Rollout, Strategy
from providers.facts import ContainerState, PortFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Waiting
from reconciler.core.model.revision import Revision, RevisionMark, Standing
from reconciler.core.model.revision import Rollout as Books
from tests.builders import NOW, Scene, ago, container, down, probe
from tests.sim.manifest import POOLS, Spec, shop

OLD = Spec(replicas=3)
NEW = replace(OLD, image="v2")
STEPS = (CanaryStep(1_000, 300 * SECOND), CanaryStep(5_000, 600 * SECOND))


def moved(fact):
    address = fact.address.replace("10.0", "10.1")
    return replace(fact, address=address, ports=(PortFact(8080, address, 8080),))


def baking(replicas: int, there: int) -> tuple:
    """v2 took over a minute ago with three replicas, of which some are there; too few for 40 s, by the numbers."""
    desired = shop(replicas=replicas, image="v2", strategy=Strategy.ACTIVATE, rollout=Rollout()).desired()
    scene = Scene(replace(NEW, replicas=there))
    scene.facts += [down(moved(container(OLD, ordinal))) for ordinal in range(3)]
    new = Revision(NEW.revision, 2, Standing.ACTIVE, ago(200), activated=ago(60), scale=3)
    old = Revision(OLD.revision, 1, Standing.SUPERSEDED, ago(9999), activated=ago(9999), ended=ago(60))
    books = Books(NEW.revision, low=ago(40), rows=(old, new))
    marks = {NEW.key: RevisionMark(2, NEW.revision)}
    scene.ledger = replace(scene.ledger, rollouts={NEW.key: books}, clock=ago(99), revisions=marks)
    return desired, scene


@pytest.mark.parametrize(
    ("replicas", "there", "taken_back"), [(3, 3, False), (10, 3, False), (3, 1, True), (10, 1, True)]
)
def test_a_switch_is_not_taken_back_for_replicas_that_are_only_being_added(replicas, there, taken_back):
    desired, scene = baking(replicas, there)
    books = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key]
    assert bool(books.back) is taken_back
    assert (books.of(NEW.revision).standing is Standing.FAILED) is taken_back


def test_once_the_added_ones_were_well_they_count_like_the_others():
    desired, scene = baking(10, 10)
    after = decide(desired, scene.observed(), NOW)
    assert after.ledger.rollouts[NEW.key].of(NEW.revision).scale == 10
    fewer = replace(scene.observed(), ledger=after.ledger, runtimes=baking(10, 4)[1].observed().runtimes)
    books = decide(desired, fewer, NOW).ledger.rollouts[NEW.key]
    assert books.low is not None


def stepping(replicas: int, there: int):
    """A canary with half of the traffic, opened with three replicas."""
    desired = shop(replicas=replicas, image="v2", strategy=Strategy.CANARY, rollout=Rollout(steps=STEPS)).desired()
    scene = Scene(OLD)
    for ordinal in range(there):
        scene.add(NEW, moved(container(NEW, ordinal)))
    old = Revision(OLD.revision, 1, Standing.ACTIVE, ago(9999), activated=ago(9999))
    new = Revision(
        NEW.revision, 2, Standing.SCHEDULED, ago(900), due=ago(800), opened=ago(700), step=1, stepped=ago(60), scale=3
    )
    marks = {NEW.key: RevisionMark(2, NEW.revision)}
    rollouts = {NEW.key: Books(OLD.revision, rows=(old, new))}
    scene.ledger = replace(scene.ledger, rollouts=rollouts, clock=ago(99), revisions=marks)
    return desired, scene


def test_a_canary_to_which_replicas_are_added_has_not_failed():
    desired, scene = stepping(replicas=10, there=3)
    decision = decide(desired, scene.observed(), NOW)
    row = decision.ledger.rollouts[NEW.key].of(NEW.revision)
    assert (row.standing, row.opened, row.failures) == (Standing.SCHEDULED, ago(700), 0)
    assert {wait.waiting for wait in decision.waits} >= {Waiting.VERDICT}


def test_a_canary_that_loses_its_replicas_has_failed_also_while_more_are_wanted():
    desired, scene = stepping(replicas=10, there=1)
    row = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key].of(NEW.revision)
    assert (row.standing, row.opened) == (Standing.FAILED, None)


def test_a_replica_that_was_made_and_not_started_yet_does_not_call_a_switch_off():
    desired, scene = stepping(replicas=4, there=4)
    made = scene.facts[-1]
    scene.change(-1, replace(made, state=ContainerState.CREATED, running_since=0, started_at=0, address="", ports=()))
    scene.pools["web"].pop()
    row = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key].of(NEW.revision)
    assert (row.standing, row.opened, row.failures) == (Standing.SCHEDULED, ago(700), 0)


# --- a lost ledger ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readable", [True, False])
def test_a_lost_ledger_never_makes_the_one_that_stands_by_active_because_more_of_it_runs(readable):
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
    books = decide(desired, scene.observed(), NOW).ledger.rollouts[NEW.key]
    assert books.active == OLD.revision
    assert books.of(NEW.revision).standing is Standing.SCHEDULED
