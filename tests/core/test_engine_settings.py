"""What engines change in place, and what they restart by themselves: decided without disturbing anything."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired, Guard
from manifests.values.pod import Live
from providers.actions import StartContainer, StopContainer, UpdateContainer
from providers.facts import ContainerState
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger import Suspension
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.plan_text import describe
from tests.builders import NOW, Scene
from tests.sim.manifest import Shop, Spec

WEB = Spec()
BEFORE, AFTER = (Live("", 500, 0, "unless-stopped"),), (Live("", 250, 64 << 20, "no"),)


def scene(**changes: object) -> tuple[Desired, Scene]:
    """A healthy shop on an engine with settings, of which the manifests now want others."""
    found = Scene(WEB)
    found.facts = [replace(fact, live=BEFORE, **changes) for fact in found.facts]
    desired = Shop((WEB,)).desired()
    (one,) = desired.workloads
    return replace(desired, workloads=(replace(one, template=replace(one.template, live=AFTER)),)), found


def test_other_settings_are_one_step_per_replica_and_disturb_nothing() -> None:
    desired, found = scene()
    decision = decide(desired, found.observed(), NOW)
    assert [step.action for step in decision.steps] == [
        UpdateContainer(fact.node, fact.name, fact.generation, AFTER) for fact in found.facts
    ]
    assert not decision.ledger.grants
    plan = forecast(desired, found.observed(), NOW)
    assert len(plan.steps) == len(found.facts)
    assert not plan.truncated


def test_a_suspended_replica_keeps_its_settings() -> None:
    desired, found = scene()
    decision = decide(replace(desired, guard=Guard(suspend=True)), found.observed(), NOW)
    assert not decision.steps
    assert {hold.rule for hold in decision.holds} == {Rule.SUSPENDED}


def test_a_network_that_was_lost_is_one_step_that_disturbs_nothing() -> None:
    found = Scene(WEB)
    lost = found.facts[1] = replace(found.facts[1], unjoined=("edge", "logs"))
    desired = Shop((WEB,)).desired()
    (step,) = decide(desired, found.observed(), NOW).steps
    assert step.action == UpdateContainer(lost.node, lost.name, lost.generation, (), join=("edge", "logs"))
    assert step.cause is Reason.NETWORK_LOST
    assert "not connected to edge, logs any more" in step.message
    assert describe(step.action) == f"update {lost.name}: connect to edge; connect to logs"
    plan = forecast(desired, found.observed(), NOW)
    assert [one.step.id for one in plan.steps] == [step.id]


def test_a_container_that_is_not_reached_comes_out_of_the_pool_and_is_connected_again_at_once() -> None:
    found = Scene(WEB)
    lost = found.facts[1] = replace(found.facts[1], address="", ports=(), unjoined=("edge",), live=())
    steps = decide(Shop((WEB,)).desired(), found.observed(), NOW).steps
    (update,) = (step for step in steps if isinstance(step.action, UpdateContainer))
    assert update.action == UpdateContainer(lost.node, lost.name, lost.generation, (), join=("edge",))
    assert not [step for step in steps if isinstance(step.action, StopContainer | StartContainer)]


def test_a_lost_network_brings_no_other_settings_with_it() -> None:
    """They are a planned change, and may have to wait for a window or a person."""
    desired, found = scene()
    lost = found.facts[1] = replace(found.facts[1], unjoined=("edge",))
    actions = {step.action.name: step.action for step in decide(desired, found.observed(), NOW).steps}
    assert actions[lost.name] == UpdateContainer(lost.node, lost.name, lost.generation, (), join=("edge",))
    plan = forecast(desired, found.observed(), NOW)
    assert [one.step.action.live for one in plan.steps if one.step.target == lost.name] == [(), AFTER]


@pytest.mark.parametrize("key", ["", "workload/web", "workload/web/1"])
def test_a_suspended_replica_is_left_off_its_network(key: str) -> None:
    found = Scene(WEB)
    found.facts[1] = replace(found.facts[1], unjoined=("edge",))
    desired = Shop((WEB,)).desired()
    if key:
        found.ledger = replace(found.ledger, suspensions={key: Suspension("somebody", "isolated", 0)})
    else:
        desired = replace(desired, guard=Guard(suspend=True))
    decision = decide(desired, found.observed(), NOW)
    assert not decision.steps
    assert {hold.rule for hold in decision.holds} == {Rule.SUSPENDED}


def test_a_runtime_without_settings_is_asked_for_none() -> None:
    desired, found = scene()
    found.facts = [replace(fact, live=()) for fact in found.facts]
    assert not decide(desired, found.observed(), NOW).steps


def test_a_container_that_the_engine_is_about_to_restart_is_left_to_it() -> None:
    desired, found = scene()
    found.facts[0] = replace(found.facts[0], state=ContainerState.RESTARTING, address="", ports=())
    decision = decide(desired, found.observed(), NOW)
    assert not [step for step in decision.steps if isinstance(step.action, StartContainer)]
    waits = [wait for wait in decision.waits if wait.object.endswith("/0")]
    assert [wait.waiting for wait in waits] == [Waiting.READY]
    assert "by itself" in waits[0].message


@pytest.mark.parametrize("address", ["", "10.0.9.9"])
def test_a_start_waits_for_dead_addresses_that_may_become_its_own(address: str) -> None:
    """An engine gives a freed address to whoever starts next, so any dead one may be it; one's own is known to be other."""
    desired, found = scene()
    dead, waiting = found.facts[0], found.facts[1]
    found.facts[0] = replace(dead, state=ContainerState.EXITED, address="", ports=())
    found.facts[1] = replace(waiting, state=ContainerState.CREATED, address=address, ports=(), started_at=0)
    decision = decide(desired, found.observed(), NOW)
    starts = {step.action.name for step in decision.steps if isinstance(step.action, StartContainer)}
    assert (waiting.name in starts) == bool(address)
    assert dead.name not in starts
