"""Files that change while a container runs: a signal where the manifest declares one, else nothing; and what is still needed."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired, Template
from manifests.values.files import FileContents, FilesVolume, OnFilesChange
from providers.actions import CreateContainer, UpdateContainer
from providers.facts import Unknown
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model import value_json
from reconciler.core.model.drift import Why
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.plan_text import to_text
from reconciler.core.replicas import file_changes
from reconciler.shell.report.summary import HARMLESS
from tests.builders import NOW, Scene, down
from tests.sim.manifest import Spec, shop

WEB = Spec()
OLD, NEW = "a" * 64, "b" * 64


def volume(reaction: OnFilesChange, digest: str = NEW, signal: str = "") -> FilesVolume:
    return FilesVolume("conf", digest, (), on_change=reaction, signal=signal)


def world(*volumes: FilesVolume, known: str = OLD) -> tuple[Desired, Scene]:
    """Replicas that were created with other files than the manifests have now."""
    scene = Scene(WEB)
    scene.facts = [replace(fact, files=tuple((item.name, known) for item in volumes)) for fact in scene.facts]
    desired = shop().desired()
    workloads = tuple(
        replace(workload, template=replace(workload.template, volumes=volumes)) for workload in desired.workloads
    )
    contents = {item.digest: FileContents(item.digest, ()) for item in volumes}
    return replace(desired, workloads=workloads, file_contents=contents), scene


SIGNAL = volume(OnFilesChange.SIGNAL, signal="SIGUSR1")


def test_each_running_container_gets_its_signal_once_in_a_step_of_its_own() -> None:
    desired, scene = world(SIGNAL)
    decision = decide(desired, scene.observed(), NOW)
    assert {type(step.action) for step in decision.steps} == {UpdateContainer}
    assert {step.cause for step in decision.steps} == {Reason.FILES_CHANGED}
    assert [step.action.files for step in decision.steps] == [(("conf", NEW, "SIGUSR1"),)] * len(scene.facts)
    assert decision.holds == ()
    plan = forecast(desired, scene.observed(), NOW)
    assert len(plan.steps) == len(scene.facts), "the effect of the step ends the difference"
    assert f"files of conf {NEW[:12]} SIGUSR1" in to_text(plan)


def test_changed_files_are_a_change_with_their_field_and_no_drift() -> None:
    desired, scene = world(SIGNAL)
    (web,) = desired.workloads
    earlier = replace(
        desired, workloads=(replace(web, template=replace(web.template, volumes=(replace(SIGNAL, digest=OLD),))),)
    )
    settled = decide(earlier, scene.observed(), NOW).ledger
    scene.ledger = settled
    decision = decide(desired, scene.observed(), NOW)
    assert {step.why for step in decision.steps} == {Why.CHANGE}
    assert decision.drift == ()
    plan = forecast(desired, scene.observed(), NOW, earlier)
    assert {tuple(field.field for field in step.fields) for step in plan.steps} == {("volumes[conf].files.digest",)}


@pytest.mark.parametrize("reaction", list(OnFilesChange))
def test_equal_files_lead_to_nothing(reaction: OnFilesChange) -> None:
    desired, scene = world(volume(reaction), known=NEW)
    decision = decide(desired, scene.observed(), NOW)
    assert (decision.steps, decision.holds) == ((), ())


def test_a_container_that_sees_the_files_already_still_gets_its_signal() -> None:
    desired, scene = world(SIGNAL, known="")
    assert len(decide(desired, scene.observed(), NOW).steps) == len(scene.facts)


def test_without_a_reaction_the_earlier_files_are_reported_and_kept() -> None:
    desired, scene = world(volume(OnFilesChange.NOTHING))
    decision = decide(desired, scene.observed(), NOW)
    assert decision.steps == ()
    assert {hold.rule for hold in decision.holds} == {Rule.FILES_KEPT}
    assert Rule.FILES_KEPT in HARMLESS
    assert all("keeps earlier files of volume conf" in hold.message for hold in decision.holds)


def test_a_container_without_such_volumes_or_that_is_down_gets_no_signal() -> None:
    desired, scene = world(SIGNAL)
    scene.facts = [replace(fact, files=()) for fact in scene.facts]
    assert decide(desired, scene.observed(), NOW).steps == ()
    desired, scene = world(SIGNAL)
    scene.facts[0] = down(scene.facts[0])
    steps = decide(desired, scene.observed(), NOW).steps
    assert not any(isinstance(step.action, UpdateContainer) and step.object.endswith("/0") for step in steps)


def test_a_suspended_workload_gets_no_signal() -> None:
    desired, scene = world(SIGNAL)
    desired = replace(desired, workloads=tuple(replace(workload, suspend=True) for workload in desired.workloads))
    decision = decide(desired, scene.observed(), NOW)
    assert decision.steps == ()
    assert Rule.SUSPENDED in {hold.rule for hold in decision.holds}


def test_a_new_container_has_the_present_files_in_a_forecast() -> None:
    desired, scene = world(SIGNAL)
    scene.facts = []
    plan = forecast(desired, scene.observed(), NOW)
    kinds = [type(step.step.action) for step in plan.steps]
    assert CreateContainer in kinds
    assert UpdateContainer not in kinds


def test_files_are_needed_by_manifests_containers_and_kept_templates() -> None:
    desired, scene = world(volume(OnFilesChange.ROLLOUT))
    observed = scene.observed()
    template: Template = desired.workloads[0].template
    third = replace(template, volumes=(volume(OnFilesChange.ROLLOUT, "c" * 64),))
    ledger = replace(scene.ledger, templates={"workload/web@x": value_json.write_short(third), "workload/web@y": "{}"})
    needed = file_changes.needed(desired, ledger, observed.runtimes)
    assert needed is not None
    digests, names = needed
    assert digests == {NEW, OLD, "c" * 64}
    assert names == {fact.name for fact in scene.facts}


def test_nothing_is_unneeded_while_a_node_or_a_template_cannot_be_read() -> None:
    desired, scene = world(volume(OnFilesChange.ROLLOUT))
    observed = scene.observed()
    unknown = {node: Unknown("provider/x", NOW.steady, "no answer") for node in observed.runtimes}
    assert file_changes.needed(desired, scene.ledger, unknown) is None
    assert file_changes.needed(desired, scene.ledger, {}) is None
    other = replace(scene.ledger, templates={"workload/web@x": '{"volumes":[{"name":"c","later":1}]}'})
    assert file_changes.needed(desired, other, observed.runtimes) is None


def test_a_renamed_container_needs_the_directory_of_its_first_name() -> None:
    desired, scene = world(SIGNAL)
    fact = scene.facts[0]
    scene.facts = [replace(fact, name="mine", mark=None, claim=fact.mark)]
    needed = file_changes.needed(desired, scene.ledger, scene.observed().runtimes)
    assert needed is not None
    assert needed[1] == {fact.name}
