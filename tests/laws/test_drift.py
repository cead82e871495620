"""Drift and change are held apart in whole worlds: what the world moved, what the manifests moved, and what is done about each."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.drift import DriftAction, DriftRules
from providers.actions import UpdateContainer
from reconciler.core.drift.fields import REVERTS, WITHIN
from reconciler.core.model.drift import Why
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.model.step import Step
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import shop
from tests.sim.world import World

WEB_0 = WEB.format(0)


def ruled(world: World, rules: DriftRules, **fields: object) -> None:
    """Declare the usual shop with rules for drift, as a new revision."""
    desired = shop(cpu=500, restart="unless-stopped", **fields).desired()
    workloads = tuple(replace(workload, drift=rules) for workload in desired.workloads)
    world.source.next = replace(desired, workloads=workloads, revision=f"{desired.revision}{rules}")


@pytest.fixture
def world():
    made = World(shop(cpu=500, restart="unless-stopped"))
    made.runtime.in_place = True
    ready(made)
    yield made
    made.close()


def docker_update(world: World, cpu: int) -> None:
    """Another program sets the limit of a container."""
    item = world.containers()[WEB_0]
    item.live = tuple(setting._replace(cpu=cpu) for setting in item.live)


def cpu(world: World) -> int:
    return world.containers()[WEB_0].live[0].cpu


def begun(world: World) -> list[Step]:
    """The steps that are begun from now on."""
    steps: list[Step] = []
    world.tape.watch = steps.append
    return steps


def updates(world: World) -> int:
    return sum(1 for write in world.traffic.writes if isinstance(write.action, UpdateContainer))


def test_a_limit_that_another_program_changes_is_drift_and_corrected(world):
    steps = begun(world)
    docker_update(world, 900)
    world.run(40 * SECOND)
    assert cpu(world) == 500
    [step] = [step for step in steps if isinstance(step.action, UpdateContainer)]
    assert step.why is Why.DRIFT
    assert [moved.text for moved in step.moved] == [
        "resources: cpu 500m memory unlimited declared, cpu 900m memory unlimited observed"
    ]


def test_a_limit_that_the_manifests_change_is_a_change(world):
    steps = begun(world)
    desired = shop(cpu=700, restart="unless-stopped").desired()
    world.source.next = replace(desired, revision="another")
    world.run(60 * SECOND)
    assert cpu(world) == 700
    changed = [step for step in steps if isinstance(step.action, UpdateContainer)]
    assert len(changed) == 3
    assert {step.why for step in changed} == {Why.CHANGE}
    docker_update(world, 900)
    world.run(40 * SECOND)
    assert [step.why for step in steps if isinstance(step.action, UpdateContainer)][3:] == [Why.DRIFT]


@pytest.mark.parametrize("action", [DriftAction.REPORT, DriftAction.IGNORE])
def test_a_rule_leaves_drift_as_it_is_and_a_change_is_applied_all_the_same(world, action):
    rules = DriftRules(resources=action)
    ruled(world, rules)
    world.run(30 * SECOND)
    before = updates(world)
    docker_update(world, 900)
    world.run(120 * SECOND)
    assert (cpu(world), updates(world)) == (900, before)
    last = world.tape.last
    assert last.steps == ()
    holds = [hold for hold in last.holds if hold.rule is Rule.DRIFT]
    if action is DriftAction.IGNORE:
        assert (holds, last.drift) == ([], ())
    else:
        assert "cpu 900m memory unlimited observed; it is only reported" in holds[0].message
        [drift] = last.drift
        assert (drift.object, drift.moved.field, drift.answer) == ("workload/web/0", "resources", "reported")
    desired = shop(cpu=800, restart="unless-stopped").desired()
    workloads = tuple(replace(workload, drift=rules) for workload in desired.workloads)
    world.source.next = replace(desired, workloads=workloads)
    world.run(60 * SECOND)
    assert cpu(world) == 800, "the manifests moved, so the rule for drift does not count"


def test_a_field_that_another_writer_changes_again_and_again_is_contested(world):
    for _ in range(REVERTS):
        docker_update(world, 900)
        world.run(40 * SECOND)
        assert cpu(world) == 500
    docker_update(world, 900)
    world.run(60 * SECOND)
    assert cpu(world) == 900, "after three reverts it is left to the other writer"
    [hold] = [hold for hold in world.tape.last.holds if hold.rule is Rule.CONFLICTING_WRITER]
    assert "900m memory unlimited observed" in hold.message
    assert hold.until is not None
    assert "stop the other writer" in hold.next_step
    [drift] = world.tape.last.drift
    assert drift.answer == "held (ConflictingWriter)"
    world.run(WITHIN)
    assert cpu(world) == 500, "then it is tried again"
    world.run(WITHIN + 60 * SECOND)
    assert world.memory.ledger().reverts == {}, "what is over is forgotten"


def test_a_contested_field_stays_so_over_a_kill(world):
    for _ in range(REVERTS):
        docker_update(world, 900)
        world.run(40 * SECOND)
    world.kill()
    world.run(20 * SECOND)
    docker_update(world, 900)
    world.run(60 * SECOND)
    assert cpu(world) == 900


def test_restarts_for_health_make_no_restart_policy_contested(world):
    for _ in range(REVERTS + 2):
        world.apps.sick.add(world.generation(WEB_0))
        world.run(150 * SECOND)
    assert world.containers()[WEB_0].live[0].restart == "unless-stopped"
    assert [hold for hold in world.tape.last.holds if hold.rule is Rule.CONFLICTING_WRITER] == []


def test_a_network_that_is_lost_is_drift_by_its_rule(world):
    item = world.containers()[WEB_0]
    ruled(world, DriftRules(networks=DriftAction.REPORT))
    world.run(30 * SECOND)
    item.unjoined = ("edge",)
    world.run(60 * SECOND)
    assert item.unjoined == ("edge",)
    assert [drift.moved.field for drift in world.tape.last.drift if drift.answer == "reported"] == ["networks"]
    ruled(world, DriftRules())
    world.run(60 * SECOND)
    assert item.unjoined == ()


def test_a_removed_container_is_drift_and_an_added_one_a_change(world):
    steps = begun(world)
    del world.outside.nodes["node-a"][WEB_0]
    world.run(60 * SECOND)
    assert {step.why for step in steps if step.id == f"create {WEB_0}"} == {Why.DRIFT}
    steps.clear()
    world.push(shop(cpu=500, restart="unless-stopped", replicas=4))
    world.run(60 * SECOND)
    assert {step.why for step in steps if step.id == f"create {WEB.format(3)}"} == {Why.CHANGE}


def test_a_rollout_is_a_change_with_all_that_follows_from_it(world):
    steps = begun(world)
    world.push(shop(cpu=500, restart="unless-stopped", image="v2"))
    world.run(400 * SECOND)
    assert steps
    # Weights that follow what a starting container reports are the world's; all others follow from the commit.
    assert {step.why for step in steps if step.object.startswith("workload/")} == {Why.CHANGE}
    assert {step.why for step in steps if step.cause is Reason.GONE} == {Why.CHANGE}
    assert world.memory.ledger().moving == frozenset()


def test_an_idle_world_has_no_drift_and_remembers_nothing_new(world):
    world.run(60 * SECOND)
    before = world.memory.ledger()
    world.run(3600 * SECOND)
    after = world.memory.ledger()
    assert (after.applied, after.moving, after.reverts) == (before.applied, frozenset(), {})
    assert world.tape.last.drift == ()


def test_a_weight_that_another_writer_sets_is_listed_and_a_drain_is_not(world):
    listed: list[str] = []
    world.tape.listen = lambda decision: listed.extend(drift.moved.text for drift in decision.drift)
    members = world.outside.pools["edge"]["web"]
    endpoint = next(iter(members))
    members[endpoint] = replace(members[endpoint], weight=7)
    world.run(30 * SECOND)
    assert [text for text in listed if "weight" in text], "another writer moved it"
    listed.clear()
    world.runtime.exit(WEB.format(1))
    world.run(60 * SECOND)
    assert [text for text in listed if "weight" in text] == [], "its weight follows its health"
    del world.outside.nodes["node-a"][WEB.format(2)]
    world.run(60 * SECOND)
    assert "container: exists declared, missing observed" in listed


def test_weights_that_follow_health_are_neither_drift_nor_change(world):
    steps, listed = begun(world), list[str]()
    world.tape.listen = lambda decision: listed.extend(drift.moved.text for drift in decision.drift)
    sick = world.generation(WEB_0)
    world.apps.unready.add(sick)
    world.run(40 * SECOND)
    assert world.weights()[WEB_0] == 0
    world.apps.unready.discard(sick)
    world.run(40 * SECOND)
    assert world.weights()[WEB_0] == 100
    assert {(step.object, step.why) for step in steps} == {
        ("service/web", Why.HEALTH),
        ("dnspolicy/web", Why.HEALTH),
    }
    assert listed == []


def test_a_restart_for_health_is_no_drift_with_all_that_follows_from_it(world):
    steps, listed = begun(world), list[str]()
    world.tape.listen = lambda decision: listed.extend(drift.moved.text for drift in decision.drift)
    world.apps.sick.add(world.generation(WEB_0))
    world.run(150 * SECOND)
    assert [step.cause for step in steps if isinstance(step.action, UpdateContainer)][-1] is Reason.POLICY_LOST
    # The restart policy is off while it is stopped, and the start is the second half of the restart.
    assert {step.why for step in steps} == {Why.HEALTH}
    assert listed == []


def test_a_weight_that_another_writer_sets_is_drift_in_its_step(world):
    steps = begun(world)
    members = world.outside.pools["edge"]["web"]
    endpoint = next(iter(members))
    members[endpoint] = replace(members[endpoint], weight=7)
    world.run(30 * SECOND)
    assert [step.why for step in steps] == [Why.DRIFT]


def test_a_record_set_that_another_program_removes_is_drift_in_its_step(world):
    steps, listed = begun(world), list[str]()
    world.tape.listen = lambda decision: listed.extend(drift.moved.field for drift in decision.drift)
    records = world.outside.zones["names"]["example.test."].records
    key = next(key for key in records if (key.name, key.type) == ("web.example.test.", "A"))
    del records[key]
    world.run(1800 * SECOND)
    assert len(world.published()) == 3
    assert [step.why for step in steps] == [Why.DRIFT]
    assert set(listed) == {"web.example.test. A"}
