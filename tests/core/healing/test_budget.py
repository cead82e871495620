"""Healing and the budget: a failed replica is unavailable already, so its restart passes; more at a time only within the budget."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired, Guard, MassChange
from manifests.values.limits import Rate, RestartLimits
from providers.facts import Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Escalation, Grant
from reconciler.core.model.passed_probe import probe_key
from reconciler.core.model.reasons import Rule
from tests.builders import NOW, PASS, Scene, ago, probe
from tests.sim.manifest import Shop, Spec

WIDE = RestartLimits(workload=Rate(600, 600), node=Rate(600, 600), total=Rate(600, 600), in_flight=50)


def healing(spec: Spec, *sick: int) -> tuple[Desired, Scene]:
    """A workload whose replicas of these ordinals began to fail at different times, so that it is no mass failure."""
    scene = Scene(spec)
    for place, ordinal in enumerate(sick):
        generation = scene.facts[ordinal].generation
        scene.probes[generation] = Probes(None, probe(ProbeValue.FAIL, 500 * (place + 1)), PASS)
    return Shop((spec,), guard=Guard(mass_change=MassChange(100, 50), restarts=WIDE)).desired(), scene


def granted(desired: Desired, scene: Scene) -> list[Grant]:
    return sorted(decide(desired, scene.observed(), NOW).ledger.grants.values())


@pytest.mark.parametrize("replicas", [1, 6])
def test_a_budget_of_zero_still_heals_one_replica_at_a_time(replicas):
    spec = Spec(replicas=replicas, max_unavailable=0)
    assert [grant.object for grant in granted(*healing(spec, 0))] == ["workload/web/0"]


@pytest.mark.parametrize(("allowed", "together"), [(0, 1), (1, 1), (2, 2), (6, 3)])
def test_as_many_are_healed_at_once_as_the_budget_has_room_for(allowed, together):
    desired, scene = healing(Spec(replicas=8, max_unavailable=allowed), 0, 1, 2)
    assert len(granted(desired, scene)) == together
    rules = [hold.rule for hold in decide(desired, scene.observed(), NOW).holds if hold.action.startswith("restart ")]
    assert rules == [Rule.RESTART_IN_PROGRESS] * (3 - together)


@pytest.mark.parametrize("passed", [True, False])
def test_the_hold_of_a_failed_replica_names_the_probe_that_never_passed(passed):
    desired, scene = healing(Spec(replicas=1), 0)
    row = Escalation(7, Spec().revision, ago(5))
    known = frozenset({probe_key("workload/web", Spec().revision, "liveness")} if passed else ())
    scene.ledger = replace(scene.ledger, escalations={"workload/web/0": row}, passed=known)
    (hold,) = [hold for hold in decide(desired, scene.observed(), NOW).holds if hold.rule is Rule.FAILED]
    assert (f"its liveness probe has never passed in revision {Spec().revision[:8]}" in hold.message) is not passed
    assert ("check that its liveness probe is configured correctly" in hold.next_step) is not passed
    assert "reconcile resume workload/web/0" in hold.next_step


def test_the_node_limit_holds_healing_also_when_no_replica_is_available():
    spec = Spec(replicas=4, max_unavailable=4)
    desired, scene = healing(spec, 0, 1, 2, 3)
    desired = replace(desired, guard=replace(desired.guard, restarts=replace(WIDE, in_flight=2)))
    assert len(granted(desired, scene)) == 2
