"""A secret that cannot be used: no container is created, none is removed to be created again, and what runs goes on."""

from dataclasses import replace

from manifests.values.desired import SECOND, Desired, OnSecretChange
from manifests.values.pod import Engine
from manifests.values.secret_sources import SecretSource
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.reasons import Rule
from reconciler.core.model.secret_problem import SecretProblem
from tests.builders import NOW, Scene, down
from tests.sim.manifest import Spec, shop

SOURCE = SecretSource(file="/run/secrets/db")
MISSING = SecretProblem("the secret's file /run/secrets/db does not exist", "create it with mode 0600")
CHANGES = CreateContainer | StopContainer | RemoveContainer


def desired(**more) -> Desired:
    made = shop().desired()
    workloads = []
    for item in made.workloads:
        container = replace(item.template.container, engine=Engine(secret_env=(("DB", SOURCE),)))
        workloads.append(replace(item, template=replace(item.template, container=container), **more))
    return replace(made, workloads=tuple(workloads))


def observed(scene: Scene, problem: SecretProblem | None = MISSING):
    return replace(scene.observed(), secrets={} if problem is None else {SOURCE: problem})


def test_a_lost_replica_waits_with_a_hold_that_names_the_reference():
    scene = Scene(Spec())
    del scene.facts[1]
    plan = forecast(desired(), observed(scene), NOW)
    assert not [step for step in plan.steps if isinstance(step.step.action, CHANGES)]
    (hold,) = [hold for hold in plan.holds if hold.rule is Rule.SECRET_UNUSABLE]
    assert hold.object == "workload/web/1"
    assert "/run/secrets/db does not exist" in hold.message
    assert hold.next_step.startswith("create it with mode 0600")
    assert hold.until is None
    going_on = forecast(desired(), observed(scene, None), NOW)
    assert [step for step in going_on.steps if isinstance(step.step.action, CreateContainer)]


def test_a_secret_that_is_only_unknown_names_the_next_try():
    scene = Scene(Spec())
    del scene.facts[1]
    unknown = SecretProblem("the secret command vault cannot be read", "", NOW.steady + 5 * SECOND)
    decision = decide(desired(), observed(scene, unknown), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.SECRET_UNKNOWN]
    assert hold.until == NOW.steady + 5 * SECOND
    late = decide(desired(), observed(scene, unknown._replace(until=NOW.steady)), NOW)
    assert late.wake_at > NOW.steady + SECOND, "an answer that is late does not keep the loop busy"


def test_a_changed_secret_beside_a_missing_one_recreates_nothing():
    scene = Scene(Spec())
    scene.change(0, replace(scene.facts[0], stale_secrets=("main/DB",)))
    restart = desired(on_secret_change=OnSecretChange.RESTART)
    assert [
        step
        for step in forecast(restart, observed(scene, None), NOW).steps
        if isinstance(step.step.action, RemoveContainer)
    ]
    plan = forecast(restart, observed(scene), NOW)
    assert not [step for step in plan.steps if isinstance(step.step.action, CHANGES)]
    assert [hold.object for hold in plan.holds if hold.rule is Rule.SECRET_UNUSABLE] == ["workload/web/0"]


def test_what_is_down_is_started_and_what_is_sick_is_restarted():
    scene = Scene(Spec())
    scene.change(1, down(scene.facts[1]))
    plan = forecast(desired(), observed(scene), NOW)
    assert [step.step.object for step in plan.steps if isinstance(step.step.action, StartContainer)] == [
        "workload/web/1"
    ]
    scene = Scene(Spec())
    scene.sick(1)
    both = [
        [(step.step.object, type(step.step.action)) for step in forecast(desired(), facts, NOW).steps]
        for facts in (observed(scene), observed(scene, None))
    ]
    assert both[0] == both[1]
    assert ("workload/web/1", StopContainer) in both[0]


def test_a_new_revision_is_not_created_and_the_old_one_keeps_serving():
    scene = Scene(Spec())
    other = desired()
    (web, *rest) = other.workloads
    changed = replace(web, template=replace(web.template, revision="f" * 16))
    other = replace(other, workloads=(changed, *rest))
    plan = forecast(other, observed(scene), NOW)
    assert not [step for step in plan.steps if isinstance(step.step.action, CHANGES)]
    assert {hold.rule for hold in plan.holds} >= {Rule.SECRET_UNUSABLE}
