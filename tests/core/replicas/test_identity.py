"""Identity: a renamed container is ours if the ledger knows its id; a stranger with our labels holds what it may be."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.actions import CreateContainer, RemoveContainer, StopContainer
from providers.facts import ContainerFact, ContainerState, Mark, container_name
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Rule
from reconciler.core.status.objects import rows
from tests.builders import NOW, Scene, container
from tests.sim.manifest import INSTANCE, NODE, Shop, Spec

WEB = Spec(pools=(), publish=None)


def renamed(fact: ContainerFact, name: str = "mine") -> ContainerFact:
    """The same container as a provider shows it after `docker rename`."""
    return replace(fact, name=name, mark=None, claim=fact.mark, foreign_mark=True)


def known(scene: Scene) -> Scene:
    """The scene with a ledger that knows all of its containers."""
    scene.ledger = replace(scene.ledger, owned={fact.id: Owned() for fact in scene.facts})
    return scene


def decided(scene: Scene, *specs: Spec, **fields: object) -> Decision:
    return decide(Shop(specs or (WEB,), **fields).desired(), scene.observed(), NOW)


def test_the_ledger_learns_and_forgets_the_ids_of_containers() -> None:
    scene = Scene(WEB)
    ledger = decided(scene).ledger
    assert set(ledger.owned) == {fact.id for fact in scene.facts}
    scene.ledger = ledger
    gone = scene.facts.pop()
    assert gone.id not in decided(scene).ledger.owned
    scene.unknown.add(NODE)
    assert gone.id in decided(scene).ledger.owned


def test_a_renamed_container_is_still_the_replica() -> None:
    scene = known(Scene(WEB))
    scene.change(1, renamed(scene.facts[1]))
    decision = decided(scene)
    assert not decision.steps
    assert not decision.holds
    assert scene.facts[1].id in decision.ledger.owned
    shown = rows(decision.status, decision.holds, NOW)
    (web,) = shown["workloads"]
    assert [replica["container"] for replica in web["replicas"]][1] == "mine"
    assert (web["missing"], shown["copies"]) == ([], [])
    assert shown["renamed"] == [{"container": "mine", "node": NODE, "replica": "workload/web/1"}]


@pytest.mark.parametrize("count", [2, 3])
def test_several_renamed_containers_stay_the_replicas(count: int) -> None:
    scene = known(Scene(WEB))
    for ordinal in range(count):
        scene.change(ordinal, renamed(scene.facts[ordinal], f"mine-{ordinal}"))
    assert not decided(scene).steps


def test_without_the_ledger_nothing_is_created_in_its_place() -> None:
    scene = Scene(WEB)
    fact = scene.facts[1]
    scene.change(1, renamed(fact))
    decision = decided(scene)
    assert not [step for step in decision.steps if isinstance(step.action, CreateContainer)]
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.ADOPT_PENDING]
    assert hold.object == "workload/web/1"
    assert f"docker rename mine {fact.name}" in hold.next_step
    scene.change(1, fact)
    assert not [hold for hold in decided(scene).holds if hold.rule is Rule.ADOPT_PENDING]


def test_other_replicas_are_created_beside_a_stranger_with_labels() -> None:
    scene = Scene(WEB)
    first = scene.facts[0]
    scene.facts = [renamed(first)]
    created = [step.action.mark.ordinal for step in decided(scene).steps if isinstance(step.action, CreateContainer)]
    assert created == [1, 2]


def test_a_stranger_of_an_old_revision_holds_the_new_one_at_its_ordinal() -> None:
    old = replace(WEB, image="v0")
    scene = Scene(WEB)
    stranger = renamed(container(old, 1))
    scene.change(1, stranger)
    decision = decided(scene)
    assert not [step for step in decision.steps if isinstance(step.action, CreateContainer)]
    assert [hold.object for hold in decision.holds] == ["workload/web/1"]


def test_a_stranger_that_does_not_run_holds_nothing() -> None:
    scene = Scene(WEB)
    scene.change(1, replace(renamed(scene.facts[1]), state=ContainerState.EXITED, running_since=0))
    created = [step.action.mark.ordinal for step in decided(scene).steps if isinstance(step.action, CreateContainer)]
    assert created == [1]


def test_a_known_container_that_has_ended_is_started_under_its_name() -> None:
    scene = known(Scene(WEB))
    down = replace(renamed(scene.facts[1]), state=ContainerState.EXITED, running_since=0)
    scene.change(1, down)
    (step,) = decided(scene).steps
    assert (step.id, step.action.expect) == ("start mine", down.generation)


def test_a_copy_beside_its_replica_is_foreign_and_reported() -> None:
    scene = known(Scene(WEB))
    copy = replace(renamed(scene.facts[1], "copy"), id="id-copy", address="10.9.9.9")
    labels = (("reconciler.instance", INSTANCE),)
    inherited = replace(copy, name="image", id="id-image", claim=None, labels=labels)
    scene.facts += [copy, inherited]
    decision = decided(scene)
    assert not decision.steps
    assert not decision.holds
    assert rows(decision.status, decision.holds, NOW)["copies"] == [f"copy on {NODE}", f"image on {NODE}"]
    assert "id-copy" not in decision.ledger.owned


def test_a_container_of_a_committed_image_holds_nothing() -> None:
    scene = Scene(WEB)
    image = replace(renamed(scene.facts[1], "image"), claim=None)
    scene.change(1, image)
    created = [step.action.mark.ordinal for step in decided(scene).steps if isinstance(step.action, CreateContainer)]
    assert created == [1]


def test_another_instances_renamed_container_is_ignored() -> None:
    scene = known(Scene(WEB))
    theirs = renamed(container(WEB, 1), "theirs")
    theirs = replace(theirs, id="id-theirs", claim=theirs.claim._replace(instance="other"))
    scene.facts.append(theirs)
    scene.ledger = replace(scene.ledger, owned={**scene.ledger.owned, "id-theirs": Owned()})
    decision = decided(scene)
    assert not decision.steps
    assert not decision.holds


def test_a_new_revision_replaces_a_renamed_container_by_its_id() -> None:
    scene = known(Scene(WEB))
    scene.change(0, renamed(scene.facts[0]))
    new = replace(WEB, image="v2")
    for ordinal in range(3):
        scene.facts.append(container(new, ordinal, started_at=NOW.wall - 50 * SECOND))
        scene.probes[scene.facts[-1].generation] = scene.probes[scene.facts[0].generation]
    stops = [step.action for step in decided(scene, new).steps if isinstance(step.action, StopContainer)]
    assert "mine" in {stop.name for stop in stops}
    assert {stop.expect for stop in stops if stop.name == "mine"} == {scene.facts[0].generation}


def test_a_name_that_a_renamed_replica_has_is_not_created() -> None:
    scene = known(Scene(WEB))
    taken = container_name(Mark(INSTANCE, "web", 3, WEB.revision))
    scene.change(1, renamed(scene.facts[1], taken))
    decision = decided(scene, replace(WEB, replicas=4))
    assert not decision.steps
    (hold,) = decision.holds
    assert (hold.object, hold.rule) == ("workload/web/3", Rule.NAME_TAKEN)
    assert "workload/web/1" in hold.message
    assert f"docker rename {taken} OTHER-NAME" in hold.next_step


def test_two_replicas_may_have_swapped_their_names() -> None:
    scene = known(Scene(WEB))
    first, second = scene.facts[:2]
    scene.change(0, renamed(first, second.name))
    scene.change(1, renamed(second, first.name))
    decision = decided(scene)
    assert not decision.steps
    (web,) = rows(decision.status, decision.holds, NOW)["workloads"]
    assert [replica["container"] for replica in web["replicas"]][:2] == [second.name, first.name]


def test_destroy_removes_a_renamed_container_and_names_a_stranger() -> None:
    scene = known(Scene(WEB))
    down = replace(renamed(scene.facts[0]), state=ContainerState.EXITED, running_since=0)
    scene.facts = [down, replace(renamed(scene.facts[1], "stranger"), id="id-stranger")]
    scene.ledger = replace(scene.ledger, owned={down.id: Owned()})
    desired = Shop((WEB,), destroy=True).desired()
    decision = decide(desired, scene.observed(), NOW)
    for _ in range(3):  # grant, then out of names and pools
        scene.ledger = decision.ledger
        decision = decide(desired, scene.observed(), NOW)
    assert [step.action for step in decision.steps] == [RemoveContainer(NODE, "mine", down.generation)]
    assert [(hold.rule, hold.object) for hold in decision.holds] == [(Rule.ADOPT_PENDING, "workload/web/1")]


def test_a_surplus_renamed_container_is_retired() -> None:
    scene = known(Scene(WEB))
    scene.change(2, renamed(scene.facts[2]))
    decision = decided(scene, replace(WEB, replicas=2))
    assert [grant.generation for grant in decision.ledger.grants.values()] == [scene.facts[2].generation]
