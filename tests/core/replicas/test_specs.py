"""A container is judged and reached as its own revision says, and a change without a new revision must pass on it first."""

import json
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Backend, Desired, Port, Probe, ProbeKind
from manifests.values.secret_sources import SecretSource
from providers.actions import RemoveContainer, RemoveEndpoint, SetWeight
from providers.facts import Endpoint, MemberFact, PortFact, ProbeFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.model.revision import revision_key
from reconciler.core.model.spec import Answer, ServicePort, Spec, Trial
from reconciler.core.replicas import specs
from reconciler.core.replicas.specs import Specs
from tests.builders import FAIL, NOW, PASS, Scene, container, down
from tests.sim.manifest import HTTP, shop
from tests.sim.manifest import Spec as Shopped

WEB = Shopped(publish=None)
NEW = replace(HTTP, path="/new")
KEY = revision_key("workload/web", WEB.revision)


def wanted(image: str = "v1", port: int = 8080, **probes: Probe | None) -> Desired:
    """The shop with one workload, these probes, and its service at this port."""
    desired = shop(publish=None, image=image).desired()
    (workload,), (service,) = desired.workloads, desired.services
    ports = (Port("http", 8080), Port("next", 8081))
    main = replace(workload.template.container, ports=ports, **probes)
    return replace(
        desired,
        revision=f"{desired.revision} {port} {probes}",
        workloads=(replace(workload, template=replace(workload.template, container=main)),),
        services=(replace(service, backends=(Backend(workload.key, port),)),),
        services_of={workload.key: ((service.key, port),)},
    )


def scene() -> Scene:
    """Three replicas of v1 that serve at port 8080 and listen at port 8081 too."""
    world = Scene(WEB)
    world.remember(wanted())
    world.facts = [replace(fact, ports=(*fact.ports, PortFact(8081, fact.address, 8081))) for fact in world.facts]
    return world


def tried(world: Scene, trial: Trial, *values: ProbeFact | None, name: str = "readiness") -> Observed:
    """The facts, with the result of this trial on each container."""
    answers = {
        fact.generation: {name: Answer(trial, value)}
        for fact, value in zip(world.facts, values, strict=True)
        if value is not None
    }
    return replace(world.observed(), trials=answers)


def cuts(decision: Decision) -> list[str]:
    """The endpoints that lose weight or go."""
    actions = [step.action for step in decision.steps]
    return [
        action.endpoint.address
        for action in actions
        if isinstance(action, RemoveEndpoint) or (isinstance(action, SetWeight) and action.weight == 0)
    ]


# --- a superseded revision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "desired",
    [
        wanted("v2", readiness=NEW, liveness=NEW),
        wanted("v2", startup=NEW),
        wanted("v2", readiness=None, liveness=None),
        wanted("v2", port=8081),
    ],
    ids=["probes", "startup", "none", "port"],
)
def test_a_new_revision_asks_nothing_new_of_old_replicas(desired):
    world = scene()
    decision = decide(desired, world.observed(), NOW)
    group = decision.status.roster.groups["workload/web"]
    assert [belief.ready for belief in group.outgoing] == [ProbeValue.PASS] * 3
    assert not cuts(decision)
    asked = Specs.of(desired, decision.ledger).own(desired.workloads[0], world.facts[0])
    assert (asked.container.readiness, asked.container.liveness, asked.container.startup) == (HTTP, HTTP, None)
    assert asked.trials == ()


def test_an_old_replica_that_fails_by_its_own_probe_still_loses_its_weight():
    world = scene()
    world.sick(0, "readiness")
    assert cuts(decide(wanted("v2", readiness=NEW), world.observed(), NOW)) == [world.facts[0].address]


def test_a_change_while_two_revisions_exist_belongs_to_the_declared_one():
    world = scene()
    ledger = decide(wanted("v2"), world.observed(), NOW).ledger
    world.ledger = ledger
    ledger = decide(wanted("v2", readiness=NEW), world.observed(), NOW).ledger
    assert ledger.specs[KEY].readiness == HTTP
    assert len(ledger.specs) == 2


def test_with_a_lost_spec_a_container_stays_until_its_successor_serves():
    world = scene()
    world.ledger = replace(world.ledger, specs={})
    desired = wanted("v2", port=8081)
    decision = decide(desired, world.observed(), NOW)
    group = decision.status.roster.groups["workload/web"]
    assert [belief.reason for belief in group.outgoing] == [Reason.SPEC_LOST] * 3
    assert not cuts(decision)
    plan = forecast(desired, world.observed(), NOW)
    removed = [step.step.action for step in plan.steps if isinstance(step.step.action, RemoveContainer)]
    assert len(removed) == 3
    raised = [
        number
        for number, step in enumerate(plan.steps)
        if isinstance(step.step.action, SetWeight) and step.step.action.weight == 100
    ]
    stopped = [number for number, step in enumerate(plan.steps) if isinstance(step.step.action, RemoveContainer)]
    assert all(up < down for up, down in zip(raised, stopped, strict=True))


def test_specs_of_revisions_without_containers_are_forgotten():
    world = scene()
    world.ledger = replace(world.ledger, specs={**world.ledger.specs, "workload/web@gone": Spec()})
    assert set(decide(wanted(), world.observed(), NOW).ledger.specs) == {KEY}
    world.unknown.add("node-a")
    assert "workload/web@gone" in decide(wanted(), world.observed(), NOW).ledger.specs


# --- a change without a new revision ------------------------------------------------------------------------------------


def test_a_changed_probe_is_tried_beside_the_one_that_decides():
    world = scene()
    desired = wanted(readiness=NEW)
    decision = decide(desired, world.observed(), NOW)
    asked = Specs.of(desired, decision.ledger).own(desired.workloads[0], world.facts[0])
    assert (asked.container.readiness, asked.trials) == (HTTP, (("readiness", NEW),))
    assert not cuts(decision)
    assert len([wait for wait in decision.waits if "/new" in wait.message]) == 3


def test_times_and_thresholds_take_effect_at_once():
    world = scene()
    slower = replace(HTTP, period=60 * SECOND, failure_threshold=9, grace=SECOND)
    desired = wanted(readiness=slower, liveness=replace(NEW, period=7 * SECOND))
    ledger = decide(desired, world.observed(), NOW).ledger
    asked = Specs.of(desired, ledger).own(desired.workloads[0], world.facts[0])
    assert asked.container.readiness == slower
    assert asked.container.liveness == replace(HTTP, period=7 * SECOND)


def test_a_probe_takes_over_where_it_passed_and_finally_everywhere():
    world = scene()
    desired = wanted(readiness=NEW)
    world.ledger = decide(desired, tried(world, NEW, PASS, None, PASS), NOW).ledger
    assert set(world.ledger.proven) == {world.facts[0].id, world.facts[2].id}
    ready = [
        Specs.of(desired, world.ledger).own(desired.workloads[0], fact).container.readiness for fact in world.facts
    ]
    assert ready == [NEW, HTTP, NEW]
    world.ledger = decide(desired, tried(world, NEW, None, PASS, None), NOW).ledger
    assert world.ledger.specs[KEY].readiness == NEW
    assert not world.ledger.proven


def test_the_verdict_of_a_passed_trial_counts_at_once():
    world = scene()
    world.sick(0, "readiness")
    decision = decide(wanted(readiness=NEW), tried(world, NEW, PASS, None, None), NOW)
    assert not cuts(decision)


@pytest.mark.parametrize("values", [(FAIL, FAIL, FAIL), (FAIL, PASS, PASS)])
def test_a_failing_trial_is_held_until_an_operator_accepts_it(values):
    world = scene()
    desired = wanted(readiness=NEW)
    observed = tried(world, NEW, *values)
    decision = decide(desired, observed, NOW)
    holds = [hold for hold in decision.holds if hold.rule is Rule.PROBE_UNPROVEN]
    assert [hold.object for hold in holds] == [
        f"workload/web/{number}" for number, value in enumerate(values) if value is FAIL
    ]
    assert "reconcile resume workload/web" in holds[0].next_step
    assert "/new" in holds[0].message
    assert not cuts(decision)
    accepted = apply_commands(decision.ledger, (Command("resume", "workload/web"),))
    after = decide(desired, replace(observed, ledger=accepted), NOW)
    assert not [hold for hold in after.holds if hold.rule is Rule.PROBE_UNPROVEN]
    assert after.ledger.specs[KEY].readiness == NEW
    assert not after.ledger.accepted


def test_an_acceptance_waits_for_the_result_and_ends_with_it():
    world = scene()
    desired = wanted(readiness=NEW)
    world.ledger = apply_commands(world.ledger, (Command("resume", "workload/web/1"),))
    world.ledger = decide(desired, world.observed(), NOW).ledger
    assert world.ledger.accepted == {"workload/web/1"}
    world.ledger = decide(desired, tried(world, NEW, FAIL, FAIL, FAIL), NOW).ledger
    assert set(world.ledger.proven) == {world.facts[1].id}
    assert not world.ledger.accepted
    assert not decide(wanted(), world.observed(), NOW).ledger.accepted


def test_an_answer_to_an_earlier_trial_does_not_count():
    world = scene()
    ledger = decide(wanted(readiness=replace(NEW, path="/third")), tried(world, NEW, PASS, PASS, PASS), NOW).ledger
    assert ledger.specs[KEY].readiness == HTTP
    assert not ledger.proven


def test_an_added_probe_is_tried_and_a_removed_one_ends_at_once():
    world = scene()
    decision = decide(wanted(startup=NEW, liveness=None), world.observed(), NOW)
    assert (decision.ledger.specs[KEY].startup, decision.ledger.specs[KEY].liveness) == (None, None)
    assert not cuts(decision)
    ledger = decide(wanted(startup=NEW), tried(world, NEW, PASS, PASS, PASS, name="startup"), NOW).ledger
    assert ledger.specs[KEY].startup == NEW


def test_a_container_that_is_down_does_not_prove_a_change():
    world = scene()
    desired = wanted(readiness=NEW)
    world.facts = [down(fact) for fact in world.facts]
    ledger = decide(desired, world.observed(), NOW).ledger
    assert ledger.specs[KEY].readiness == HTTP


def test_a_workload_without_containers_takes_the_declared_spec():
    world = scene()
    world.facts = []
    assert decide(wanted(readiness=NEW), world.observed(), NOW).ledger.specs[KEY].readiness == NEW


def test_going_back_to_an_earlier_probe_is_a_change_too():
    world = scene()
    world.ledger = decide(wanted(readiness=NEW), tried(world, NEW, PASS, None, None), NOW).ledger
    desired = wanted()
    world.ledger = decide(desired, world.observed(), NOW).ledger
    ready = [Specs.of(desired, world.ledger).own(desired.workloads[0], fact) for fact in world.facts]
    assert ready[0].container.readiness == NEW
    assert ready[0].trials == (("readiness", HTTP),)


# --- another port of a service ----------------------------------------------------------------------------------------


def test_another_port_is_used_where_it_passed_and_the_old_member_goes_last():
    world = scene()
    desired, port = wanted(port=8081), ServicePort(8081)
    name = f"{specs.SERVICE}service/web"
    assert not cuts(decide(desired, world.observed(), NOW))
    decision = decide(desired, tried(world, port, PASS, FAIL, None, name=name), NOW)
    raised = [step.action for step in decision.steps if isinstance(step.action, SetWeight)]
    assert [(action.endpoint, action.weight) for action in raised] == [(Endpoint(world.facts[0].address, 8081), 100)]
    assert [hold.object for hold in decision.holds if hold.rule is Rule.PROBE_UNPROVEN] == ["workload/web/1"]
    world.ledger = decision.ledger
    world.pools["web"].append(MemberFact(Endpoint(world.facts[0].address, 8081), 100, True, world.facts[0].name))
    after = decide(desired, world.observed(), NOW)
    (cut,) = [step.action for step in after.steps if isinstance(step.action, SetWeight)]
    assert (cut.endpoint, cut.weight) == (Endpoint(world.facts[0].address, 8080), 0)


def test_a_port_that_a_container_does_not_have_is_held():
    world = scene()
    world.facts = [replace(fact, ports=fact.ports[:1]) for fact in world.facts]
    decision = decide(wanted(port=8081), world.observed(), NOW)
    assert not cuts(decision)
    assert {hold.rule for hold in decision.holds} == {Rule.PROBE_UNPROVEN}


def test_a_plan_assumes_that_trials_pass():
    plan = forecast(wanted(port=8081), scene().observed(), NOW)
    weights = [
        (step.step.action.endpoint.port, step.step.action.weight)
        for step in plan.steps
        if isinstance(step.step.action, SetWeight)
    ]
    assert sorted(weights) == [(8080, 0)] * 3 + [(8081, 100)] * 3
    assert not plan.holds


# --- the ledger ---------------------------------------------------------------------------------------------------------


def test_specs_survive_their_stored_form():
    secret = replace(NEW, kind=ProbeKind.HTTP, headers=(("A", "b"), ("C", SecretSource(file="/run/key"))))
    spec = Spec(NEW, None, secret, 5 * SECOND, ("edge",), (("service/web", ServicePort(8080, network="edge")),))
    ledger = Ledger(specs={KEY: spec}, proven={"id": spec}, accepted=frozenset({"*"}))
    rows = to_rows(ledger)
    assert from_rows(rows) == ledger
    again = to_rows(replace(ledger, specs={**ledger.specs, "other": spec}), (ledger, rows))
    assert again["specs", KEY] is rows["specs", KEY]


@pytest.mark.parametrize("text", ['{"readiness": {"kind": "telepathy"}}', "[1]", '{"grace": "5s"}', '{"x": 1}'])
def test_a_spec_of_another_version_is_lost_and_nothing_else(text):
    rows = to_rows(Ledger(specs={KEY: Spec(grace=1)}, source="git:shop"))
    rows["specs", "workload/web@other"] = text
    assert from_rows(rows) == Ledger(specs={KEY: Spec(grace=1)}, source="git:shop")
    assert json.loads(rows["specs", KEY])["grace"] == 1


def test_probes_added_to_a_version_have_their_defaults():
    rows = to_rows(Ledger(specs={KEY: Spec(readiness=HTTP)}))
    stored = json.loads(rows["specs", KEY])
    del stored["readiness"]["max_body"]
    rows["specs", KEY] = json.dumps(stored)
    assert from_rows(rows).specs[KEY].readiness == HTTP


def test_a_container_added_during_a_change_starts_with_what_decides():
    world = scene()
    desired = wanted(readiness=NEW)
    world.ledger = decide(desired, world.observed(), NOW).ledger
    extra = container(WEB, 3)
    asked = Specs.of(desired, world.ledger).own(desired.workloads[0], extra)
    assert asked.container.readiness == HTTP


def test_an_acceptance_is_kept_while_its_containers_are_not_seen():
    world = scene()
    desired = wanted(readiness=NEW)
    world.ledger = decide(desired, world.observed(), NOW).ledger
    world.ledger = apply_commands(world.ledger, (Command("resume", "workload/web"),))
    world.unknown.add("node-a")
    world.ledger = decide(desired, world.observed(), NOW).ledger
    assert world.ledger.accepted == {"workload/web/0", "workload/web/1", "workload/web/2"}
    world.unknown.clear()
    running, world.facts = world.facts, [down(fact) for fact in world.facts]
    world.ledger = decide(desired, world.observed(), NOW).ledger
    assert world.ledger.accepted == {"workload/web/0", "workload/web/1", "workload/web/2"}
    world.facts = running
    world.ledger = decide(desired, tried(world, NEW, FAIL, FAIL, FAIL), NOW).ledger
    assert world.ledger.specs[KEY].readiness == NEW
    assert not decide(desired, world.observed(), NOW).ledger.accepted
