"""Pins: a revision keeps the images of its first containers."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import Container, Template, Workload
from providers.actions import CreateContainer
from providers.facts import ContainerFact, ContainerState, Mark, container_name
from reconciler.core.decide import decide
from reconciler.core.health.belief import believe
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.replicas.image_pins import learn, pins_of
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.replicas.snapshot import Snapshot
from tests.builders import NOW, Scene, snapshot
from tests.sim.manifest import Spec, shop

NEW, OLD = "a" * 16, "b" * 16
ONE, TWO = (("", "r.test/web@sha256:1"),), (("", "r.test/web@sha256:2"),)
WEB = Workload("workload/web", "web", ("local",), 2, Template((), Container("web", ()), revision=NEW))


def fact(ordinal: int, digests=ONE, revision: str = NEW) -> ContainerFact:
    mark = Mark("here", "web", ordinal, revision)
    return ContainerFact(
        "local", container_name(mark), f"id-{ordinal}", ContainerState.RUNNING, mark=mark, digests=digests
    )


def snap(*facts: ContainerFact, workload: Workload = WEB) -> Snapshot:
    beliefs = [believe(fact, Container("web", ()), {}, 0) for fact in facts]
    group = Group(
        workload, current={belief.fact.mark.ordinal: belief for belief in beliefs if belief.fact.mark.revision == NEW}
    )
    group.outgoing = [belief for belief in beliefs if belief.fact.mark.revision != NEW]
    return snapshot(Roster({workload.key: group}, (), {}, (), ()))


def test_a_revision_keeps_the_image_of_its_first_container():
    ledger = learn(snap(fact(0)), Ledger())
    assert pins_of(ledger, "workload/web", NEW) == ONE
    assert learn(snap(fact(0), fact(1, TWO)), ledger) == ledger
    assert learn(snap(), ledger) == ledger


def test_each_revision_has_its_pins_and_one_that_is_gone_has_none():
    ledger = learn(snap(fact(0), fact(1, TWO, OLD)), Ledger())
    assert pins_of(ledger, "workload/web", OLD) == TWO
    later = learn(snap(fact(0)), ledger)
    assert dict(later.pins) == {f"workload/web@{NEW}": ONE}
    other = replace(WEB, template=replace(WEB.template, revision="c" * 16))
    assert dict(learn(snapshot(Roster({other.key: Group(other)}, (), {}, (), ())), later).pins) == {}


def test_the_digest_of_a_sidecar_is_added_later():
    ledger = learn(snap(fact(0)), Ledger())
    later = learn(snap(fact(0, (*TWO, ("log", "r.test/log@sha256:3")))), ledger)
    assert pins_of(later, "workload/web", NEW) == (*ONE, ("log", "r.test/log@sha256:3"))


def test_unknown_digests_and_adopted_containers_pin_nothing():
    assert learn(snap(fact(0, ()), replace(fact(1), adopted=True)), Ledger()) == Ledger()
    assert learn(snap(fact(0), workload=replace(WEB, restart_only=True)), Ledger()) == Ledger()


@given(st.permutations([fact(0, TWO), fact(1, ONE), fact(2, TWO, OLD), fact(3, ONE, OLD)]))
def test_the_order_in_which_containers_are_seen_does_not_matter(facts):
    wanted = {f"workload/web@{NEW}": ONE, f"workload/web@{OLD}": ONE}
    assert dict(learn(snap(*facts), Ledger()).pins) == wanted


def test_pins_outlive_the_program():
    ledger = learn(snap(fact(0), fact(1, TWO, OLD)), Ledger())
    assert from_rows(to_rows(ledger)) == ledger
    assert all(isinstance(pin, tuple) for pin in itertools.chain(*from_rows(to_rows(ledger)).pins.values()))


def test_a_missing_replica_is_created_from_the_pins_of_its_revision():
    spec = Spec()
    scene = Scene(spec)
    name = scene.facts[2].name
    scene.facts = [replace(fact, digests=ONE) for fact in scene.facts[:2]]
    decision = decide(shop().desired(), scene.observed(), NOW)
    (step,) = [step for step in decision.steps if isinstance(step.action, CreateContainer)]
    assert (step.action.name, step.action.pins) == (name, ONE)
    # Also when no container of it is left and only the ledger knows its pins.
    scene.facts, scene.ledger = [], decision.ledger
    decision = decide(shop().desired(), scene.observed(), NOW)
    pins = [step.action.pins for step in decision.steps if isinstance(step.action, CreateContainer)]
    assert pins == [ONE] * spec.replicas
