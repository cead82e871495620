"""Adoption: which foreign containers become which replicas, which are only reported, and what is never done to them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import Adopt, Desired, Engine, Strategy
from manifests.values.pod import Live
from providers.actions import (
    CreateContainer,
    RemoveContainer,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.facts import (
    ContainerFact,
    ContainerState,
    Endpoint,
    ExitCause,
    MemberFact,
    Probes,
    RecordKey,
    RecordSet,
    Setup,
    fingerprint,
)
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.observed import Observed
from reconciler.core.model.passed_probe import probe_key
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.replicas import adoption
from reconciler.core.replicas.adoption import wanted_live
from tests.builders import FAIL, NOW, PASS, SEEN, Scene, ago, container
from tests.sim.manifest import INSTANCE, NODE, Spec, service, shop, workload

WEB = Spec(replicas=2)
LABELS = (("com.docker.compose.project", "shop"), ("com.docker.compose.service", "web"))
BY_LABEL = Adopt(labels=LABELS[1:])
BY_NAME = Adopt(names=("web-1", "web-2"))


def foreign(number: int, **changes: object) -> ContainerFact:
    """A running container of compose: it exposes no port and carries no mark."""
    fact = ContainerFact(
        NODE,
        f"web-{number}",
        f"id-web-{number}",
        ContainerState.RUNNING,
        NOW.wall - 100 * 10**9,
        SEEN - 100 * 10**9,
        f"10.1.0.{number}",
        labels=LABELS,
    )
    return replace(fact, **changes)


def adopting(adopt: Adopt | None = BY_LABEL, spec: Spec = WEB, **changes: object) -> Desired:
    """A shop whose one workload adopts."""
    desired = shop(replicas=spec.replicas).desired()
    changed = replace(workload(spec), adopt=adopt, **changes)
    return replace(desired, workloads=(changed,), services=(service(spec),))


class World(Scene):
    """Foreign containers that are probed and healthy, and nothing of ours: no member, no record, an empty ledger."""

    def __init__(self, *facts: ContainerFact) -> None:
        super().__init__(replace(WEB, replicas=0))
        self.records, self.owners = {}, {}
        self.ledger = Ledger()
        for fact in facts:
            self.facts.append(fact)
            self.probes[fact.generation] = Probes(None, PASS, PASS)

    def in_pool(self, *facts: ContainerFact) -> None:
        """As it is after adoption: each of these has a weight and is published, and is remembered."""
        for number, fact in enumerate(facts):
            self.pools["web"].append(MemberFact(Endpoint(fact.address, 8080), 100, True, fact.name))
            row = Adopted(WEB.key, number, NODE, fact.name, WEB.revision, ports=(8080,))
            self.ledger = replace(self.ledger, adopted={**self.ledger.adopted, fact.id: row}, source="git:shop")
        key = RecordKey("web.example.test.", "A")
        self.records[key] = RecordSet(30, tuple(sorted(fact.address for fact in facts)))
        self.owners[key] = f"{INSTANCE}/dnspolicy/web"


def steps_of(desired: Desired, observed: Observed) -> list[object]:
    return [step.action for step in decide(desired, observed, NOW).steps]


def rules_of(desired: Desired, observed: Observed) -> set[Rule]:
    return {hold.rule for hold in decide(desired, observed, NOW).holds}


# --- matching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adopt", [BY_LABEL, BY_NAME], ids=["by label", "by name"])
def test_adoption_changes_only_weights_and_names(adopt):
    world = World(foreign(1), foreign(2))
    decision = decide(adopting(adopt), world.observed(), NOW)
    assert all(isinstance(step.action, SetWeight) for step in decision.steps)
    assert [(step.action.name, step.action.endpoint) for step in decision.steps] == [
        ("web-1", Endpoint("10.1.0.1", 8080)),
        ("web-2", Endpoint("10.1.0.2", 8080)),
    ]
    assert not decision.holds
    assert {row.name: row.ordinal for row in decision.ledger.adopted.values()} == {"web-1": 0, "web-2": 1}
    assert decision.status.workloads[0].available == 2


def test_a_whole_forecast_of_an_adoption_touches_no_container():
    plan = forecast(adopting(), World(foreign(1), foreign(2)).observed(), NOW)
    assert {type(step.step.action).__name__ for step in plan.steps} == {"SetWeight", "ChangeRecords"}


@given(st.permutations([1, 2, 3, 4, 5]), st.sets(st.sampled_from([1, 2, 3, 4, 5])))
def test_ordinals_depend_on_names_and_memory_not_on_the_order_of_a_look(order, gone):
    spec = Spec(replicas=5)
    desired = adopting(spec=spec)
    facts = [foreign(number) for number in order]
    first = adoption.adopt(desired, {NODE: facts}, (), {})
    assert {row.name: row.ordinal for row in first.rows.values()} == {f"web-{n}": n - 1 for n in range(1, 6)}
    left = [fact for fact in facts if int(fact.name[-1]) not in gone]
    again = adoption.adopt(desired, {NODE: left}, (), first.rows)
    assert all(again.rows[fact.id] == first.rows[fact.id] for fact in left)
    assert len(again.rows) == len(left)


def test_a_lost_ledger_loses_no_replica():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = adopting()
    world.ledger = Ledger()
    assert not [step for step in steps_of(desired, world.observed()) if not isinstance(step, SetWeight)]
    assert len(decide(desired, world.observed(), NOW).ledger.adopted) == 2


def test_adopted_containers_of_an_unreadable_node_are_remembered():
    rows = {"id-web-1": Adopted(WEB.key, 0, NODE, "web-1", WEB.revision)}
    assert adoption.adopt(adopting(), {}, (NODE,), rows).rows == rows


def test_a_missing_replica_is_created_beside_the_adopted_ones():
    (action,) = [
        step for step in steps_of(adopting(), World(foreign(1)).observed()) if isinstance(step, CreateContainer)
    ]
    assert action.mark.ordinal == 1


def test_rows_of_adopted_containers_survive_the_store():
    row = Adopted(WEB.key, 1, NODE, "web-2", "abc", True, (80, 8080))
    ledger = Ledger(adopted={"id": row})
    assert from_rows(to_rows(ledger)).adopted == {"id": row}


def test_one_off_containers_and_inherited_marks_are_not_adopted():
    one_off = foreign(1, labels=(*LABELS[:0], ("com.docker.compose.oneoff", "True"), *LABELS))
    inherited = foreign(2, foreign_mark=True)
    assert not adoption.adopt(adopting(), {NODE: (one_off, inherited)}, (), {}).facts


# --- pending matches ------------------------------------------------------------------------------------------


def test_nothing_is_created_while_a_match_is_down_and_not_adopted():
    world = World(foreign(1), foreign(2, state=ContainerState.EXITED, running_since=0, address=""))
    decision = decide(adopting(), world.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.ADOPT_PENDING]
    assert "web-2 is exited" in hold.message
    assert not [step for step in decision.steps if isinstance(step.action, CreateContainer | StartContainer)]


def test_a_match_above_spec_replicas_is_reported_and_left_alone():
    world = World(foreign(1), foreign(2), foreign(3))
    decision = decide(adopting(), world.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.ADOPT_PENDING]
    assert hold.action == "adopt web-3"
    assert {step.action.name for step in decision.steps} == {"web-1", "web-2"}


def test_a_container_that_matches_two_workloads_is_reported_not_adopted():
    desired = adopting(spec=Spec(replicas=1))
    other = replace(workload(Spec(name="api", replicas=1)), adopt=Adopt(names=("web-1",)))
    desired = replace(desired, workloads=(other, *desired.workloads))
    decision = decide(desired, World(foreign(1)).observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.ADOPT_CONFLICT]
    assert "workload/api" in hold.message
    assert "workload/web" in hold.message
    assert not decision.steps
    assert not decision.ledger.adopted


def test_an_adopted_replica_stays_when_a_second_workload_matches_it():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = adopting()
    other = replace(workload(Spec(name="api", replicas=1)), adopt=Adopt(names=("web-1",)))
    decision = decide(replace(desired, workloads=(other, *desired.workloads)), world.observed(), NOW)
    assert Rule.ADOPT_CONFLICT in {hold.rule for hold in decision.holds}
    assert decision.ledger.adopted["id-web-1"].workload == WEB.key
    assert not [step for step in decision.steps if isinstance(step.action, SetWeight) and step.action.weight == 0]


# --- the template -----------------------------------------------------------------------------------------------------


def with_image(desired: Desired, image: str, revision: str | None = None) -> Desired:
    first = desired.workloads[0]
    template = first.template
    template = replace(
        template,
        container=replace(template.container, engine=Engine(image=image)),
        revision=revision or template.revision,
    )
    return replace(desired, workloads=(replace(first, template=template),))


def test_another_image_without_a_baseline_is_reported_and_not_replaced():
    world = World(foreign(1, image="shop/web:1"), foreign(2, image="shop/web:2"))
    decision = decide(with_image(adopting(), "docker.io/shop/web:2"), world.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.TEMPLATE_DIFFERS]
    assert "image is shop/web:1, not docker.io/shop/web:2" in hold.message
    assert hold.object == "workload/web/0"
    assert all(isinstance(step.action, SetWeight) for step in decision.steps)
    assert {row.name: bool(row.baseline) for row in decision.ledger.adopted.values()} == {"web-1": False, "web-2": True}


def test_a_container_that_never_fitted_is_not_replaced_by_a_new_template():
    setup = Setup(("serve",), ("v1",), (("DATABASE", fingerprint("sentinel")),))
    world = World(foreign(1, setup=setup, image_setup=Setup()), foreign(2, setup=setup._replace(env=())))
    decision = decide(adopting(), world.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.TEMPLATE_DIFFERS]
    assert hold.message.startswith("adopted container web-1 differs from the template: variable DATABASE is set, ")
    assert {row.name: bool(row.baseline) for row in decision.ledger.adopted.values()} == {"web-1": False, "web-2": True}
    changed = with_image(adopting(), "shop/web:2", revision="f" * 16)
    adopted = adoption.adopt(changed, {NODE: world.facts}, (), decision.ledger.adopted)
    assert sorted(fact.mark.revision for fact in adopted.facts.values()) == sorted(["f" * 16, WEB.revision])


def test_a_kept_restart_policy_is_reported_and_holds_no_replica():
    facts = [foreign(1, live=(Live("", restart="no"),)), foreign(2, live=(Live("", restart="always"),))]
    world = World(*facts)
    world.in_pool(*facts)
    desired = adopting(template=replace(workload(WEB).template, live=(Live(""),)))
    decision = decide(desired, world.observed(), NOW)
    (hold,) = [hold for hold in decision.holds if hold.rule is Rule.POLICY_KEPT]
    assert (hold.object, hold.action) == (WEB.key, "change the restart policy of web-1")
    assert [step.action.name for step in decision.steps] == ["web-2"]


def test_what_the_program_changed_itself_is_no_advice_afterwards():
    """`always` is changed in place anyway, so it becomes the template's policy: no hold asks for another change after it."""
    facts = [foreign(1, live=(Live("", restart="always"),))]
    world = World(*facts)
    world.in_pool(*facts)
    desired = adopting(
        template=replace(workload(WEB).template, live=(Live("", restart="no"),)), spec=replace(WEB, replicas=1)
    )
    decision = decide(desired, world.observed(), NOW)
    assert not [hold for hold in decision.holds if hold.rule is Rule.POLICY_KEPT]
    (action,) = [step.action for step in decision.steps if isinstance(step.action, UpdateContainer)]
    assert action.live == (Live("", restart="no"),)
    after = World(replace(facts[0], live=action.live))
    after.in_pool(*after.facts)
    decision = decide(desired, after.observed(), NOW)
    assert not [hold for hold in decision.holds if hold.rule is Rule.POLICY_KEPT]
    assert not [step for step in decision.steps if isinstance(step.action, UpdateContainer)]


def test_with_replace_an_adopted_container_goes_after_its_replacement():
    desired = adopting(replace(BY_LABEL, replace=True))
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    (first, *_) = steps_of(desired, world.observed())
    assert isinstance(first, CreateContainer)
    plan = forecast(desired, world.observed(), NOW)
    done = [planned.step for planned in plan.steps]
    removed = [step.action for step in done if isinstance(step.action, RemoveContainer)]
    assert {(action.name, action.adopted) for action in removed} == {("web-1", True), ("web-2", True)}
    stopped = {step.action.name for step in done if isinstance(step.action, StopContainer)}
    assert stopped == {"web-1", "web-2"}
    first_stop = next(n for n, step in enumerate(done) if isinstance(step.action, StopContainer))
    assert any(isinstance(step.action, StartContainer) for step in done[:first_stop])


def test_a_template_changed_after_it_fitted_is_rolled_out():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = with_image(adopting(), "shop/web:2", revision="f" * 16)
    assert isinstance(steps_of(desired, world.observed())[0], CreateContainer)


def test_an_ordinal_of_our_replica_is_not_given_to_an_adopted_one():
    ours = container(WEB, 0)
    rows = {"id-web-1": Adopted(WEB.key, 0, NODE, "web-1", WEB.revision)}
    adopted = adoption.adopt(adopting(), {NODE: (ours, foreign(1))}, (), rows)
    assert adopted.rows["id-web-1"].ordinal == 1


def test_only_the_policy_always_is_changed_in_place():
    facts = [
        foreign(1, live=(Live("", 500, 1024, "always"),)),
        foreign(2, live=(Live("", 0, 0, "on-failure:3"),)),
    ]
    world = World(*facts)
    world.in_pool(*facts)
    (action,) = steps_of(adopting(), world.observed())
    assert isinstance(action, UpdateContainer)
    assert (action.name, action.adopted) == ("web-1", True)
    assert action.live == (Live("", 500, 1024, "unless-stopped"),)
    assert wanted_live(adopting().workloads[0], replace(facts[1], adopted=True)) == facts[1].live


# --- health -----------------------------------------------------------------------------------------------------------


def test_a_failed_liveness_restarts_an_adopted_container_by_its_identity():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = adopting()
    generation = world.facts[0].generation
    world.ledger = replace(world.ledger, passed=frozenset({probe_key(WEB.key, WEB.revision, "liveness")}))
    world.probes[generation] = Probes(None, FAIL, FAIL)
    decision = decide(desired, world.observed(), NOW)
    assert decision.ledger.grants["id-web-1"].object == "workload/web/0"
    assert [step.action.weight for step in decision.steps if isinstance(step.action, SetWeight)] == [0]
    done = [planned.step.action for planned in forecast(desired, world.observed(), NOW).steps]
    (stop,) = [action for action in done if isinstance(action, StopContainer)]
    (start,) = [action for action in done if isinstance(action, StartContainer)]
    assert (stop.name, stop.adopted, stop.expect) == ("web-1", True, generation)
    assert (start.name, start.adopted) == ("web-1", True)
    assert not [action for action in done if isinstance(action, CreateContainer | RemoveContainer)]


def test_an_adopted_container_that_crashed_is_started_again():
    down = foreign(1, state=ContainerState.EXITED, running_since=0, exit_code=1)
    world = World(down, foreign(2))
    world.in_pool(*world.facts)
    world.pools["web"] = world.pools["web"][1:]
    starts = [step for step in steps_of(adopting(), world.observed()) if isinstance(step, StartContainer)]
    assert [(start.name, start.adopted) for start in starts] == [("web-1", True)]


# --- release -------------------------------------------------------------------------------------------------------


def test_destroy_removes_only_weights_and_names_of_adopted_containers():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = replace(adopting(), workloads=(), services=(), policies=(), services_of={}, destroy=True)
    plan = forecast(desired, world.observed(), NOW)
    kinds = {type(step.step.action).__name__ for step in plan.steps}
    assert kinds == {"SetWeight", "RemoveEndpoint", "ChangeRecords"}
    assert all(row.left for row in decide(desired, world.observed(), NOW).ledger.adopted.values())


def test_an_adopted_container_keeps_its_weight_while_pruning_is_off():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = replace(adopting(), workloads=(), services=(), policies=(), services_of={})
    assert not steps_of(desired, world.observed())
    assert Rule.PRUNE_OFF in rules_of(desired, world.observed())


def test_prune_removes_no_adopted_container():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = replace(adopting(), workloads=(), services=(), policies=(), services_of={}, prune=True)
    done = [step.step.action for step in forecast(desired, world.observed(), NOW).steps]
    assert not [action for action in done if isinstance(action, StopContainer | RemoveContainer)]


def test_a_container_that_no_longer_matches_is_replaced_and_keeps_running():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = adopting(Adopt(names=("web-1",)))
    decision = decide(desired, world.observed(), NOW)
    assert isinstance(decision.steps[0].action, CreateContainer)
    plan = forecast(desired, world.observed(), NOW)
    done = [planned.step for planned in plan.steps]
    assert not [step for step in done if isinstance(step.action, StopContainer | RemoveContainer)]
    cut = next(n for n, step in enumerate(done) if isinstance(step.action, SetWeight) and step.action.name == "web-2")
    assert any(isinstance(step.action, StartContainer) for step in done[:cut])
    assert any(step.cause in (Reason.DRAINING, Reason.GONE) for step in done[cut:])


def test_a_surplus_adopted_replica_is_stopped_and_not_removed():
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    desired = adopting(spec=Spec(replicas=1))
    done = [step.step.action for step in forecast(desired, world.observed(), NOW).steps]
    assert [action.name for action in done if isinstance(action, StopContainer)] == ["web-2"]
    assert not [action for action in done if isinstance(action, RemoveContainer)]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_with_replace_every_strategy_ends_with_our_containers_only(strategy):
    desired = adopting(replace(BY_LABEL, replace=True), strategy=strategy)
    world = World(foreign(1), foreign(2))
    world.in_pool(*world.facts)
    done = [step.step.action for step in forecast(desired, world.observed(), NOW).steps]
    assert len([action for action in done if isinstance(action, CreateContainer)]) == 2
    assert len([action for action in done if isinstance(action, RemoveContainer)]) == 2


@pytest.mark.parametrize("cause", ["destroy", "the manifest is deleted"])
def test_a_container_in_the_middle_of_a_restart_is_started_before_release(cause):
    down = foreign(1, state=ContainerState.EXITED, running_since=0, exit_cause=ExitCause.STOPPED_BY_US)
    world = World(down, foreign(2))
    world.in_pool(*world.facts)
    world.pools["web"] = []
    grant = Grant("workload/web/0", down.generation, Reason.LIVENESS_FAILED, ago(5), weight_out=ago(4))
    world.ledger = replace(world.ledger, grants={down.id: grant})
    desired = replace(adopting(), workloads=(), services=(), policies=(), services_of={}, destroy=cause == "destroy")
    starts = [step for step in steps_of(desired, world.observed()) if isinstance(step, StartContainer)]
    assert [(start.name, start.adopted) for start in starts] == [("web-1", True)]
