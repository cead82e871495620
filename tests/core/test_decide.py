"""Weights, names and restarts in one decision over a whole world."""

from dataclasses import replace

import pytest

from providers.facts import Generation, Probes, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Failures
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.reasons import Rule
from tests.builders import NOW, PASS, Scene, ago, probe
from tests.sim.manifest import Spec, shop

P, F, U = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
UNKNOWN = probe(U)
CANNOT = probe(ProbeValue.CANNOT_RUN)
STALE = probe(P, age=17)


def steps_of(scene: Scene, **spec) -> list[str]:
    return [step.id for step in decide(shop(**spec).desired(), scene.observed(), NOW).steps]


def test_the_last_ready_member_keeps_its_weight_and_the_hold_says_so():
    scene = Scene(Spec())
    for number in range(3):
        scene.sick(number, "readiness")
    decision = decide(shop().desired(), scene.observed(), NOW)
    assert decision.steps == ()
    assert {hold.rule for hold in decision.holds} == {Rule.LAST_MEMBER, Rule.LAST_RECORD}


def test_a_replica_that_is_not_ready_loses_weight_and_name():
    scene = Scene(Spec())
    scene.sick(0, "readiness")
    address = scene.facts[0].address
    assert steps_of(scene) == [f"weight edge/web/{address}:8080", "records names/example.test./web.example.test./A"]


@pytest.mark.parametrize("verdict", [UNKNOWN, CANNOT, STALE, None])
def test_an_unknown_readiness_changes_no_weight_and_no_name(verdict):
    scene = Scene(Spec())
    for fact in scene.facts:
        scene.probes[fact.generation] = Probes(None, PASS, verdict)
    assert steps_of(scene) == []


def test_two_containers_behind_one_address_leave_a_name_only_together():
    scene = Scene(Spec(replicas=2))
    shared = replace(scene.facts[1], ports=(scene.facts[0].ports[0]._replace(port=8081),))
    scene.change(1, shared)
    member = scene.pools["web"][1]
    scene.pools["web"][1] = member._replace(endpoint=scene.pools["web"][0].endpoint._replace(port=8081))
    key = next(iter(scene.records))
    scene.records[key] = scene.records[key]._replace(values=(scene.facts[0].address,))
    assert steps_of(scene, replicas=2) == []
    scene.sick(1, "readiness")
    assert [step.partition(" ")[0] for step in steps_of(scene, replicas=2)] == ["weight"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda ledger: replace(ledger, history_lost=ago(5)), Rule.LEDGER_LOST),
        (
            lambda ledger: replace(ledger, attempts={"workload/web/1": tuple(ago(n) for n in (50, 40, 30, 20, 10))}),
            Rule.RESTART_LIMIT,
        ),
        (
            lambda ledger: replace(ledger, failures={"workload/web/1": Failures(3, ago(1), Generation("x", 1))}),
            Rule.BACK_OFF,
        ),
        (lambda ledger: apply_commands(ledger, (Command("suspend", "*"),)), Rule.SUSPENDED),
        (lambda ledger: apply_commands(ledger, (Command("suspend", "workload/web/1"),)), Rule.SUSPENDED),
    ],
)
def test_a_restart_is_held_by(change, rule):
    scene = Scene(Spec())
    scene.sick(1)
    scene.ledger = change(scene.ledger)
    decision = decide(shop().desired(), scene.observed(), NOW)
    assert rule in {hold.rule for hold in decision.holds}
    assert not decision.ledger.grants
    # Its weight follows its health all the same.
    assert [step.id.partition(" ")[0] for step in decision.steps] == ["weight", "records"]


def test_one_restart_at_a_time_and_the_longest_wanted_first():
    scene = Scene(Spec())
    for number in (0, 2):
        scene.sick(number)
    name = scene.facts[2].name
    scene.ledger = replace(scene.ledger, wanted={f"restart {name}": ago(60)})
    decision = decide(shop().desired(), scene.observed(), NOW)
    assert [grant.object for grant in decision.ledger.grants.values()] == ["workload/web/2"]
    assert {(hold.object, hold.rule) for hold in decision.holds} == {
        ("workload/web/0", Rule.MASS_FAILURE),
        ("service/web", Rule.MASS_FAILURE),
    }
