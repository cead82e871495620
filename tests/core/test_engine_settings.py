"""Settings that engines change in place, and networks that they restore, without a disruption."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Desired, Guard
from manifests.values.limits import Held, Window
from manifests.values.pod import Live
from providers.actions import StartContainer, StopContainer, UpdateContainer
from providers.facts import ContainerState
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger import Suspension
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.plan_text import describe
from tests.builders import NOW, Scene
from tests.sim.manifest import NODE, Shop, Spec

WEB = Spec()
BEFORE, AFTER = (Live("", 500, 0, "unless-stopped"),), (Live("", 250, 64 << 20, "no"),)


def scene(**changes: object) -> tuple[Desired, Scene]:
    """A healthy shop whose containers have other live settings than the manifests declare."""
    shop = Scene(WEB)
    shop.facts = [replace(fact, live=BEFORE, **changes) for fact in shop.facts]
    desired = Shop((WEB,)).desired()
    (web,) = desired.workloads
    return replace(desired, workloads=(replace(web, template=replace(web.template, live=AFTER)),)), shop


def test_other_settings_are_one_step_per_replica_and_disturb_nothing() -> None:
    desired, shop = scene()
    decision = decide(desired, shop.observed(), NOW)
    assert [step.action for step in decision.steps] == [
        UpdateContainer(fact.node, fact.name, fact.generation, AFTER) for fact in shop.facts
    ]
    assert not decision.ledger.grants
    plan = forecast(desired, shop.observed(), NOW)
    assert len(plan.steps) == len(shop.facts)
    assert not plan.truncated


def test_a_suspended_replica_keeps_its_settings() -> None:
    desired, shop = scene()
    decision = decide(replace(desired, guard=Guard(suspend=True)), shop.observed(), NOW)
    assert not decision.steps
    assert {hold.rule for hold in decision.holds} == {Rule.SUSPENDED}


def test_a_network_that_was_lost_is_one_step_that_disturbs_nothing() -> None:
    shop = Scene(WEB)
    lost = shop.facts[1] = replace(shop.facts[1], unjoined=("edge", "logs"))
    desired = Shop((WEB,)).desired()
    (step,) = decide(desired, shop.observed(), NOW).steps
    assert step.action == UpdateContainer(lost.node, lost.name, lost.generation, (), join=("edge", "logs"))
    assert step.cause is Reason.NETWORK_LOST
    assert "no longer connected to edge, logs" in step.message
    assert describe(step.action) == f"update {lost.name}: connect to edge; connect to logs"
    plan = forecast(desired, shop.observed(), NOW)
    assert [planned.step.id for planned in plan.steps] == [step.id]


def test_an_unreachable_container_is_connected_again_without_a_restart() -> None:
    shop = Scene(WEB)
    lost = shop.facts[1] = replace(shop.facts[1], address="", ports=(), unjoined=("edge",), live=())
    steps = decide(Shop((WEB,)).desired(), shop.observed(), NOW).steps
    (update,) = (step for step in steps if isinstance(step.action, UpdateContainer))
    assert update.action == UpdateContainer(lost.node, lost.name, lost.generation, (), join=("edge",))
    assert not [step for step in steps if isinstance(step.action, StopContainer | StartContainer)]


def test_a_lost_network_brings_no_other_settings_with_it() -> None:
    """They are a planned change, and may have to wait for a window or an operator."""
    desired, shop = scene()
    lost = shop.facts[1] = replace(shop.facts[1], unjoined=("edge",))
    actions = {step.action.name: step.action for step in decide(desired, shop.observed(), NOW).steps}
    assert actions[lost.name] == UpdateContainer(lost.node, lost.name, lost.generation, (), join=("edge",))
    plan = forecast(desired, shop.observed(), NOW)
    assert [planned.step.action.live for planned in plan.steps if planned.step.target == lost.name] == [(), AFTER]


@pytest.mark.parametrize("key", ["", "workload/web", "workload/web/1"])
def test_a_suspended_replica_is_left_off_its_network(key: str) -> None:
    shop = Scene(WEB)
    shop.facts[1] = replace(shop.facts[1], unjoined=("edge",))
    desired = Shop((WEB,)).desired()
    if key:
        shop.ledger = replace(shop.ledger, suspensions={key: Suspension("ada", "isolated", 0)})
    else:
        desired = replace(desired, guard=Guard(suspend=True))
    decision = decide(desired, shop.observed(), NOW)
    assert not decision.steps
    assert {hold.rule for hold in decision.holds} == {Rule.SUSPENDED}


def test_a_lost_policy_comes_back_in_a_window_and_limits_wait_for_its_end() -> None:
    desired, shop = scene()
    (web,) = desired.workloads
    declared = (Live("", 250, 64 << 20, "unless-stopped"),)
    shut = Window("night", frozenset({Held.ROLLOUT}), "* * * * *", 60 * SECOND, "UTC")
    workload = replace(web, template=replace(web.template, live=declared))
    desired = replace(desired, workloads=(workload,), guard=Guard(windows=(shut,)))
    off = (Live("", 500, 0, "no"),)
    shop.facts[1] = replace(shop.facts[1], live=off)
    (step,) = decide(desired, shop.observed(), NOW).steps
    assert (step.cause, step.action) == (
        Reason.POLICY_LOST,
        UpdateContainer(NODE, shop.facts[1].name, shop.facts[1].generation, BEFORE),
    )
    shop.facts[1] = replace(shop.facts[1], live=BEFORE)
    decision = decide(desired, shop.observed(), NOW)
    assert not decision.steps
    assert {hold.rule for hold in decision.holds} == {Rule.WINDOW}


def test_a_failing_container_gets_its_policy_back_before_its_restart() -> None:
    shop = Scene(WEB)
    desired = Shop((replace(WEB, restart="unless-stopped"),)).desired()
    shop.facts = [replace(fact, live=(Live("", restart="unless-stopped"),)) for fact in shop.facts]
    shop.facts[1] = replace(shop.facts[1], live=(Live("", restart="no"),))
    shop.sick(1)
    held = replace(
        desired, guard=Guard(windows=(Window("day", frozenset({Held.HEAL}), "* * * * *", 60 * SECOND, "UTC"),))
    )
    steps = [step for step in decide(held, shop.observed(), NOW).steps if isinstance(step.action, UpdateContainer)]
    assert [(step.action.name, step.action.live[0].restart) for step in steps] == [
        (shop.facts[1].name, "unless-stopped")
    ]


def test_a_runtime_without_settings_is_asked_for_none() -> None:
    desired, shop = scene()
    shop.facts = [replace(fact, live=()) for fact in shop.facts]
    assert not decide(desired, shop.observed(), NOW).steps


def test_a_container_that_the_engine_restarts_is_left_to_it() -> None:
    desired, shop = scene()
    shop.facts[0] = replace(shop.facts[0], state=ContainerState.RESTARTING, address="", ports=())
    decision = decide(desired, shop.observed(), NOW)
    assert not [step for step in decision.steps if isinstance(step.action, StartContainer)]
    waits = [wait for wait in decision.waits if wait.object.endswith("/0")]
    assert [wait.waiting for wait in waits] == [Waiting.READY]
    assert "the runtime is restarting" in waits[0].message


@pytest.mark.parametrize("address", ["", "10.0.9.9"])
def test_a_start_waits_for_dead_addresses_that_may_become_its_own(address: str) -> None:
    """An engine gives a freed address to the next container that starts; a container with an address of its own can start."""
    desired, shop = scene()
    dead, waiting = shop.facts[0], shop.facts[1]
    shop.facts[0] = replace(dead, state=ContainerState.EXITED, address="", ports=())
    shop.facts[1] = replace(waiting, state=ContainerState.CREATED, address=address, ports=(), started_at=0)
    decision = decide(desired, shop.observed(), NOW)
    starts = {step.action.name for step in decision.steps if isinstance(step.action, StartContainer)}
    assert (waiting.name in starts) == bool(address)
    assert dead.name not in starts
