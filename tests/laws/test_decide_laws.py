"""Laws of one decision, over random worlds."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from providers.actions import ChangeRecords, RemoveContainer, RemoveEndpoint, SetWeight, StopContainer
from providers.facts import Known, Probes, Unknown
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.effects import fold
from reconciler.core.forecast import STEPS, forecast
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.reasons import Rule
from reconciler.core.plan_text import to_json, to_text
from reconciler.core.status.objects import rows
from tests.laws.examples import examples
from tests.laws.random_worlds import NOW, observed, settled

EXAMPLES = examples(150)
SEEDS = st.integers(0, 2**32)
BEYOND = "the next change lies more than 24 h ahead"
"""The end of a forecast by design."""


def answer(decision: Decision) -> object:
    """A decision without the evidence that it keeps for status."""
    return decision.steps, decision.holds, decision.waits, decision.guard_hash


def shuffled(mapping, rng):
    items = list(mapping.items())
    rng.shuffle(items)
    return dict(items)


def mixed_up(desired, world, seed):
    """The same manifests and facts in another order, from a seed: an order drawn by hypothesis costs more than a decision."""
    rng = random.Random(seed)

    def mixed(fact, change):
        return replace(fact, value=change(fact.value)) if isinstance(fact, Known) else fact

    def sample(values):
        return tuple(rng.sample(list(values), len(values)))

    other = replace(
        world,
        runtimes=shuffled({k: mixed(v, sample) for k, v in world.runtimes.items()}, rng),
        pools=shuffled(
            {k: mixed(v, lambda p: replace(p, members=sample(p.members))) for k, v in world.pools.items()}, rng
        ),
        zones={
            k: mixed(v, lambda z: replace(z, records=shuffled(z.records, rng), owners=shuffled(z.owners, rng)))
            for k, v in world.zones.items()
        },
        probes=shuffled(world.probes, rng),
        pushes=shuffled(world.pushes, rng),
        ledger=from_rows(shuffled(to_rows(world.ledger), rng)),
    )
    again = replace(
        desired,
        workloads=sample(desired.workloads),
        services=sample(desired.services),
        policies=sample(desired.policies),
    )
    return again, other


@EXAMPLES
@given(observed(), SEEDS)
def test_the_same_inputs_in_any_order_give_the_same_decision(given_, seed):
    first, second = decide(*given_, NOW), decide(*mixed_up(*given_, seed), NOW)
    assert answer(first) == answer(second)
    assert first.wake_at == second.wake_at
    assert to_rows(first.ledger) == to_rows(second.ledger)


@examples(50)
@given(observed(), SEEDS)
def test_the_same_inputs_in_any_order_give_a_byte_equal_plan(given_, seed):
    assert to_text(forecast(*given_, NOW)) == to_text(forecast(*mixed_up(*given_, seed), NOW))


@EXAMPLES
@given(observed(), st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3))
def test_a_decision_does_not_change_before_its_wake_at(given_, fractions):
    desired, world = given_
    world = settled(desired, world)
    first = decide(desired, world, NOW)
    assert first.wake_at > NOW.steady
    span = min(first.wake_at, NOW.steady + 3600 * SECOND) - NOW.steady
    for offset in (*(int(span * fraction) for fraction in fractions), span - 1):
        then = Now(NOW.wall + offset, NOW.steady + offset, NOW.lineage)
        assert answer(decide(desired, world, then)) == answer(first), f"after {offset / SECOND} s of {span / SECOND} s"


def observed_again(world, steady: int):
    """The same facts, from looks that began at `steady`."""

    def later(facts):
        return {
            key: replace(fact, observed_at=steady) if isinstance(fact, Known) else fact for key, fact in facts.items()
        }

    return replace(world, runtimes=later(world.runtimes), pools=later(world.pools), zones=later(world.zones))


@EXAMPLES
@given(observed(), st.floats(0, 1, exclude_max=True))
def test_the_same_facts_from_later_looks_give_the_same_answer(given_, fraction):
    desired, world = given_
    world = settled(desired, world)
    first = decide(desired, world, NOW)
    offset = int((min(first.wake_at, NOW.steady + 3600 * SECOND) - NOW.steady) * fraction)
    then = Now(NOW.wall + offset, NOW.steady + offset, NOW.lineage)
    assert answer(decide(desired, observed_again(world, then.steady), then)) == answer(first)


def destructive(decision: Decision) -> set[tuple[str, str]]:
    """The removals of a decision: stops, removals, lower weights, withdrawn values."""
    removals = set()
    for step in decision.steps:
        action = step.action
        if isinstance(action, StopContainer | RemoveContainer | RemoveEndpoint):
            removals.add((type(action).__name__, step.target))
        elif isinstance(action, SetWeight) and action.weight < (action.before or 0):
            removals.add(("cut", step.target))
        elif isinstance(action, ChangeRecords):
            for change in action.changes:
                withdrawn = set(change.before.values if change.before else ()) - set(
                    change.after.values if change.after else ()
                )
                removals |= {(f"withdraw {value}", step.target) for value in withdrawn}
    return removals


def queued(desired, world) -> set[tuple[str, str]]:
    """The cuts that wait for the weight removal limit: when others leave the queue, they go earlier."""
    later, taken = world, set()
    for _ in range(8):
        decision = decide(desired, later, NOW)
        if not any(hold.rule is Rule.WEIGHT_REMOVAL_LIMIT for hold in decision.holds):
            break
        later = replace(later, ledger=replace(decision.ledger, cuts={}))
        for step in decision.steps:
            if isinstance(step.action, SetWeight) and step.action.weight < (step.action.before or 0):
                taken.add(("cut", step.target))
                later = fold(later, step, NOW)
    return taken | destructive(decide(desired, later, NOW))


@examples(200)
@given(observed(), st.data())
def test_unknown_facts_are_never_destructive(given_, data):
    desired, world = given_
    world = settled(desired, world)
    known = destructive(decide(desired, world, NOW))
    blank = Unknown("switched off", "x", NOW.steady - SECOND)
    facts = [("runtimes", key) for key in world.runtimes]
    facts += [("pools", key) for key in world.pools]
    facts += [("zones", key) for key in world.zones]
    facts += [(f"probe {name}", key) for key in world.probes for name in Probes._fields]
    kind, key = data.draw(st.sampled_from(facts))
    if kind.startswith("probe"):
        probes = {**world.probes, key: world.probes[key]._replace(**{kind[6:]: None})}
        less = replace(world, probes=probes)
    else:
        less = replace(world, **{kind: {**getattr(world, kind), key: blank}})
    assert destructive(decide(desired, less, NOW)) <= known | queued(desired, world)


@EXAMPLES
@given(observed())
def test_every_hold_names_a_future_instant_or_a_next_step(given_):
    decision = decide(*given_, NOW)
    for hold in decision.holds:
        assert hold.next_step or (hold.until is not None and hold.until > NOW.steady), hold
        assert hold.until is None or hold.until > NOW.steady, hold
        assert hold.object
        assert hold.message
    for wait in decision.waits:
        assert wait.until is None or wait.until > NOW.steady, wait


@EXAMPLES
@given(observed())
def test_an_unsettled_decision_has_changed_the_ledger(given_):
    desired, world = given_
    decision = decide(desired, world, NOW)
    assert not decision.unsettled or to_rows(decision.ledger) != to_rows(world.ledger)


@EXAMPLES
@given(observed())
def test_steps_are_unique_and_no_target_has_two(given_):
    decision = decide(*given_, NOW)
    ids = [step.id for step in decision.steps]
    assert len(ids) == len(set(ids))
    targets = [
        (getattr(step.action, "node", ""), step.target)
        for step in decision.steps
        if not isinstance(step.action, ChangeRecords)
    ]
    assert len(targets) == len(set(targets))


@examples(80)
@given(observed())
def test_a_forecast_ends_and_its_forms_agree(given_):
    plan = forecast(*given_, NOW)
    assert len(plan.steps) < STEPS
    assert plan.truncated in {"", BEYOND}  # a revision that is not verified has a deadline that may lie beyond it
    text, tree = to_text(plan), to_json(plan, NOW.steady)
    assert len(tree["steps"]) == len(plan.steps)
    assert text.count("\n") >= len(plan.steps)
    for planned in plan.steps:
        assert all(before < planned.number for before in planned.after)
        assert planned.delay >= 0


@EXAMPLES
@given(observed())
def test_the_ledger_survives_a_round_trip_through_its_rows(given_):
    ledger = decide(*given_, NOW).ledger
    assert from_rows(to_rows(ledger)) == ledger


@examples(50)
@given(observed())
def test_every_world_has_a_status(given_):
    decision = decide(*given_, NOW)
    tables = rows(decision.status, decision.holds, NOW)
    assert len(tables["workloads"]) == len(given_[0].workloads)
