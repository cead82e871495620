"""A plan beside a running process believes what the process believes, as far as it is about the same generations and probes."""

import json
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.forecast import forecast
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Rule
from reconciler.shell import daemon_view
from reconciler.shell.daemon_view import DaemonView
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import Shop, shop
from tests.sim.world import World

FIRST = WEB.format(0)


def view_of(world: World) -> DaemonView:
    """The view of the running process, as a plan reads it from the store."""
    world.memory.say("show", "*")
    world.run(SECOND)
    view = daemon_view.read(world.memory.decision, world.clock.now())
    assert view is not None
    return view


@pytest.fixture
def sick(worlds):
    """A world in which the restart of a sick replica is suspended."""
    world = ready(worlds(shop()))
    world.memory.say("suspend", "workload/web")
    world.apps.sick.add(world.generation(FIRST))
    world.run(60 * SECOND)
    return world


def rules(decision) -> set[Rule]:
    return {hold.rule for hold in decision.holds}


def test_the_view_is_stored_only_when_a_command_asks(worlds):
    world = ready(worlds(shop()))
    world.apps.unready.add(world.generation(FIRST))
    world.run(60 * SECOND)
    assert daemon_view.read(world.memory.decision, world.clock.now()) is None
    assert view_of(world).verdicts


def test_a_plan_has_the_verdicts_and_holds_of_the_process(sick):
    generation = sick.generation(FIRST)
    view, holds = view_of(sick), sick.tape.last.holds
    assert Rule.SUSPENDED in {hold.rule for hold in holds}
    decision, observed, now = sick.observe_once(view)
    assert observed.probes[generation].liveness.value is ProbeValue.FAIL
    assert [hold for hold in decision.holds if hold.rule is Rule.SUSPENDED]
    assert forecast(sick.shop.desired(), observed, now).holds
    # By itself, one attempt decides nothing: no restart is due, so none is held.
    decision, observed, _ = sick.observe_once()
    assert observed.probes[generation].liveness.value is ProbeValue.UNKNOWN
    assert Rule.SUSPENDED not in rules(decision)


def test_a_process_with_verdicts_is_not_asked_to_probe_again(sick):
    view = view_of(sick)
    sick.observe_once(view)
    assert sick.probes_made == 0
    sick.observe_once()
    assert sick.probes_made > 0


def test_verdicts_count_for_other_manifests_with_the_same_probes(sick):
    generation = sick.generation(FIRST)
    view = view_of(sick)
    sick.shop = replace(sick.shop, specs=(replace(sick.shop.specs[0], image="v2"),))
    assert sick.shop.desired().revision != view.revision
    _, observed, _ = sick.observe_once(view)
    assert observed.probes[generation].liveness.value is ProbeValue.FAIL


def test_a_verdict_of_another_generation_or_question_does_not_count(sick):
    view = view_of(sick)
    (key, (digest, fact)) = next(item for item in view.verdicts.items() if item[0][1] == "liveness")
    other = replace(view, verdicts={key: (f"not {digest}", fact)})
    _, observed, _ = sick.observe_once(other)
    assert observed.probes[key[0]].liveness.streak == 1
    sick.start()
    sick.run(30 * SECOND)
    view = view_of(sick)
    sick.runtime.exit(FIRST)
    sick.start_by_hand(FIRST)
    _, observed, _ = sick.observe_once(view)
    assert observed.probes[sick.generation(FIRST)].liveness is None or (
        observed.probes[sick.generation(FIRST)].liveness.value is not ProbeValue.FAIL
    )


def test_pushes_and_calls_of_the_process_count(worlds):
    world = ready(worlds(shop()))
    generation, steady = world.generation(FIRST), world.clock.now().steady
    push = PushFact(PushEvent.NOT_READY, steady, steady, "boot", 3, 2)
    view = replace(view_of(world), pushes={generation: push}, under_way=frozenset({FIRST}))
    _, observed, _ = world.observe_once(view)
    assert observed.pushes == {generation: push}
    assert observed.under_way == {FIRST}


def test_what_is_written_is_read_back(sick):
    view, decision, now = view_of(sick), sick.tape.last, sick.clock.now()
    generation = sick.generation(FIRST)
    push = PushFact(PushEvent.DRAINING, now.steady - 5, now.steady - 9, "boot", 3, None, restored=True)
    observed = replace(decision.status.observed, pushes={generation: push}, busy=frozenset({"a"}))
    written = daemon_view.write(replace(decision, status=replace(decision.status, observed=observed)), now)
    text = sick.memory.decision
    stored = json.loads(text) | {daemon_view.KEY: json.loads(json.dumps(written))}
    again = daemon_view.read(json.dumps(stored), now)
    assert again is not None
    assert again.pushes == {generation: push}
    assert again.busy == {"a"}
    assert again.verdicts.keys() == view.verdicts.keys()
    assert again.verdict(generation, "liveness", sick.shop.desired().workloads[0].template.container.liveness) == (
        observed.probes[generation].liveness
    )


@pytest.mark.parametrize(
    "text", ["{}", "[]", "nonsense", '{"view": {}}', '{"view": {"verdicts": [[1]]}, "at_wall": 1}']
)
def test_what_another_version_wrote_is_no_view(text, worlds):
    assert daemon_view.read(text, worlds(Shop()).clock.now()) is None


def test_holds_that_only_the_process_has_are_in_a_plan_of_its_manifests(sick):
    view = view_of(sick)
    decision, _, _ = sick.observe_once(view)
    fault = replace(view.holds[0], object="provider/names", action="read", rule=Rule.BUSY)
    other = replace(view, holds=(*view.holds, fault))
    assert other.only_there(decision, view.revision) == (fault,)
    assert other.only_there(decision, "another revision") == ()
