"""Weights of whole pools: claims that remove weight at once, and the floors that keep it against observed health."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Desired, Push
from manifests.values.limits import Mode
from manifests.values.traffic import Panic, PanicMode, Ramp
from providers.facts import Known, PoolFact, ProbeValue, Unknown
from providers.facts import Weights as Takes
from reconciler.core.decide import decide
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.observed import Observed
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Rule
from reconciler.core.model.weight_memory import Cut, Ready
from reconciler.core.traffic.floors import panicking
from reconciler.core.traffic.shares import grown
from tests.builders import NOW, PASS, SEEN, Scene, ago, container, probe
from tests.sim.manifest import NODE, POOLS, Shop, Spec

KEY = f"{POOLS}/web"


def spec(replicas: int) -> Spec:
    return Spec(replicas=replicas, publish=None)


def shop(replicas: int, ramp: Ramp | None = None, panic: Panic | None = None) -> Desired:
    desired = Shop((spec(replicas),)).desired()
    (web,) = desired.workloads
    (service,) = desired.services
    service = replace(service, ramp=ramp, panic=panic or Panic())
    return replace(desired, workloads=(replace(web, push=Push()),), services=(service,))


def scene(replicas: int, *unready: int) -> Scene:
    """Replicas that carry weight and have been ready; some fail their readiness probe now."""
    made = Scene(spec(replicas))
    ready = {fact.id: Ready(fact.started_at, ago(90), False) for fact in made.facts}
    made.ledger = replace(made.ledger, ready=ready)
    for number in unready:
        made.sick(number, "readiness")
    return made


def well(made: Scene, number: int) -> None:
    """The readiness probe of a replica passes again."""
    generation = made.facts[number].generation
    made.probes[generation] = made.probes[generation]._replace(readiness=PASS)


def says(made: Scene, pushes: dict[int, tuple[PushEvent, int]]) -> dict:
    return {
        made.facts[n].generation: PushFact(event, SEEN - age * SECOND, SEEN - age * SECOND, "boot", 1)
        for n, (event, age) in pushes.items()
    }


def weights(decision, made: Scene) -> dict[int, int]:
    """Replica -> the weight that a step gives it."""
    names = {fact.name: number for number, fact in enumerate(made.facts)}
    return {names[step.action.name]: step.action.weight for step in decision.steps if step.id.startswith("weight")}


def rules(decision) -> set[Rule]:
    return {hold.rule for hold in decision.holds}


def after(made: Scene, decision, seconds: float) -> tuple[Observed, Now]:
    """The same world later, with the ledger of the decision and repeated looks."""
    ns = int(seconds * SECOND)
    world = replace(made.observed(), ledger=decision.ledger)
    world = replace(
        world,
        runtimes={key: replace(look, observed_at=SEEN + ns) for key, look in world.runtimes.items()},
        pools={key: replace(look, observed_at=SEEN + ns) for key, look in world.pools.items()},
    )
    return world, Now(NOW.wall + ns, SEEN + ns, NOW.lineage)


# --- pushes, overrides ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [PushEvent.NOT_READY, PushEvent.STARTUP, PushEvent.DRAINING])
def test_a_fresh_push_is_obeyed_at_once_even_if_the_pool_becomes_empty(event):
    made = scene(3)
    world = replace(made.observed(), pushes=says(made, dict.fromkeys(range(3), (event, 2))))
    assert weights(decide(shop(3), world, NOW), made) == {0: 0, 1: 0, 2: 0}


def test_panic_may_override_a_not_ready_push_but_never_a_draining_push():
    made = scene(3)
    words = {0: (PushEvent.NOT_READY, 2), 1: (PushEvent.NOT_READY, 2), 2: (PushEvent.DRAINING, 2)}
    world = replace(made.observed(), pushes=says(made, words))
    assert weights(decide(shop(3, panic=Panic(override_pushes=True)), world, NOW), made) == {2: 0}


def test_only_a_fresh_ready_push_keeps_weight_against_failing_probes():
    made = scene(4, 1)
    fresh = replace(made.observed(), pushes=says(made, {1: (PushEvent.READY, 29)}))
    assert weights(decide(shop(4), fresh, NOW), made) == {}
    middle = replace(made.observed(), pushes=says(made, {1: (PushEvent.READY, 30)}))
    assert weights(decide(shop(4), middle, NOW), made) == {1: 0}


def test_a_ready_push_gives_weight_before_the_first_probe_result():
    made = scene(2)
    fact = container(spec(3), 2)
    made.facts.append(fact)
    world = replace(made.observed(), pushes=says(made, {2: (PushEvent.READY, 1)}))
    assert weights(decide(shop(3), world, NOW), made) == {2: 100}
    silent = decide(shop(3), made.observed(), NOW)
    assert weights(silent, made) == {}


@pytest.mark.parametrize(("verb", "value", "expected"), [("drain", "", 0), ("force", "down", 0), ("force", "up", 100)])
@pytest.mark.parametrize("whole", [True, False])
def test_an_operator_drains_and_forces_replicas_and_single_members(verb, value, expected, whole):
    made = scene(3, 0) if value == "up" else scene(3)
    if value == "up":
        made.pools["web"][0] = made.pools["web"][0]._replace(weight=0)
    key = "workload/web/0" if whole else f"endpoint/{KEY}/{made.facts[0].address}:8080"
    command = Command(verb, key, "ada", "looking", NOW.wall + 60 * SECOND, value=value, at=ago(1))
    made.ledger = apply_commands(made.ledger, (command,))
    decision = decide(shop(3), made.observed(), NOW)
    assert weights(decision, made) == {0: expected}
    assert decision.wake_at <= SEEN + 60 * SECOND
    world, later = after(made, decision, 60)
    assert not decide(shop(3), world, later).ledger.overrides
    assert not apply_commands(made.ledger, (Command("release", key),)).overrides
    assert from_rows(to_rows(made.ledger)) == made.ledger


def test_an_invalid_override_changes_nothing():
    commands = (Command("force", "workload/web/0", value="sideways"), Command("drain", "service/web"))
    assert not apply_commands(Ledger(), commands).overrides


# --- floors -----------------------------------------------------------------------------------------------------


def test_at_most_a_tenth_of_a_pool_loses_weight_for_health_in_ten_seconds():
    made = scene(20, 1, 2, 3, 4, 5)
    first = decide(shop(20), made.observed(), NOW)
    assert weights(first, made) == {1: 0, 2: 0}
    assert Rule.WEIGHT_REMOVAL_LIMIT in rules(first)
    for number in (1, 2):
        made.pools["web"][number] = made.pools["web"][number]._replace(weight=0)
    world, later = after(made, first, 9.999)
    assert weights(decide(shop(20), world, later), made) == {}
    world, later = after(made, first, 10)
    assert weights(decide(shop(20), world, later), made) == {3: 0, 4: 0}


def test_a_decided_cut_is_not_counted_again_until_it_is_done():
    made = scene(4, 1)
    first = decide(shop(4), made.observed(), NOW)
    assert weights(first, made) == {1: 0}
    world, later = after(made, first, 3)
    assert weights(decide(shop(4), world, later), made) == {1: 0}
    assert first.ledger.cuts == {KEY: (Cut(made.facts[1].id, ago(0)),)}


def test_facts_and_pushes_are_not_capped():
    made = scene(6)
    world = replace(made.observed(), pushes=says(made, dict.fromkeys(range(5), (PushEvent.NOT_READY, 1))))
    assert len(weights(decide(shop(6), world, NOW), made)) == 5


def test_panic_keeps_weights_and_ends_ten_points_above_its_threshold():
    made = scene(10, *range(6))
    first = decide(shop(10), made.observed(), NOW)
    assert weights(first, made) == {}
    assert Rule.PANIC in rules(first)
    assert KEY in first.ledger.panics
    made.ledger = first.ledger
    well(made, 0)
    assert weights(decide(shop(10), made.observed(), NOW), made) == {}
    well(made, 1)
    calm = decide(shop(10), made.observed(), NOW)
    assert not calm.ledger.panics
    assert weights(calm, made) == {2: 0}


def test_spread_gives_equal_weights_except_to_endpoints_never_ready():
    made = scene(6, 0, 1, 2, 3)
    made.pools["web"][0] = made.pools["web"][0]._replace(weight=0)
    newcomer = container(spec(7), 6)
    made.add(spec(7), newcomer)
    made.pools["web"].pop()
    made.sick(6, "readiness")
    decision = decide(shop(7, panic=Panic(mode=PanicMode.SPREAD)), made.observed(), NOW)
    assert weights(decision, made) == {0: 100}


def test_closed_lets_a_pool_become_empty_step_by_step():
    made = scene(2, 0, 1)
    made.pools["web"][0] = made.pools["web"][0]._replace(weight=0)
    other = replace(shop(2, panic=Panic(mode=PanicMode.CLOSED)))
    healthy = Scene(Spec(name="api", replicas=1, pools=(), publish=None))
    both = Shop((spec(2), healthy.specs[0])).desired()
    both = replace(both, services=(other.services[0], both.services[0]))
    world = made.observed()
    facts = (*world.runtimes[NODE].value, *healthy.facts)
    world = replace(world, runtimes={NODE: Known(facts, NODE, SEEN)}, probes={**world.probes, **healthy.probes})
    assert weights(decide(both, world, NOW), made) == {1: 0}


@pytest.mark.parametrize(
    ("mode", "readiness", "readable", "expected"),
    [
        (PanicMode.FREEZE, True, True, {0: 100}),
        (PanicMode.FREEZE, False, True, {}),
        (PanicMode.CLOSED, True, True, {}),
        (PanicMode.FREEZE, True, False, {}),
    ],
    ids=["ready", "not ready", "closed", "a node unseen"],
)
def test_an_endpoint_that_fails_only_its_liveness_is_the_last_resort(mode, readiness, readable, expected):
    made = scene(1)
    made.sick(0, "liveness")
    if not readiness:
        made.sick(0, "readiness")
    made.pools["web"][0] = made.pools["web"][0]._replace(weight=0)
    both = replace(shop(1, panic=Panic(mode=mode)))
    (web,) = both.workloads
    both = replace(
        both, workloads=(replace(web, nodes=(NODE, "node-b"), restarts=replace(web.restarts, mode=Mode.OBSERVE)),)
    )
    world = made.observed()
    other = Known((), "node-b", SEEN) if readable else Unknown("unreachable", "node-b", SEEN)
    world = replace(world, runtimes={**world.runtimes, "node-b": other})
    assert weights(decide(both, world, NOW), made) == expected


def test_observed_health_never_takes_the_last_weight_even_without_panic():
    made = scene(3, 0, 1, 2)
    decision = decide(shop(3, panic=Panic(threshold=0)), made.observed(), NOW)
    assert weights(decision, made) == {}
    assert Rule.LAST_MEMBER in rules(decision)


def test_endpoints_that_were_never_ready_do_not_count():
    made = scene(2)
    for number in (2, 3):
        made.add(spec(4), container(spec(4), number))
        made.pools["web"].pop()
        made.sick(number, "readiness")
    decision = decide(shop(4), made.observed(), NOW)
    assert weights(decision, made) == {}
    assert not decision.ledger.panics


def test_a_node_that_cannot_be_read_takes_no_weight_away_on_the_others():
    made = scene(3, 1)
    desired = shop(3)
    spread_out = replace(desired, workloads=(replace(desired.workloads[0], nodes=(NODE, "node-b")),))
    world = made.observed()
    blind = replace(world, runtimes={**world.runtimes, "node-b": Unknown("down", "node-b", SEEN - SECOND)})
    decision = decide(spread_out, blind, NOW)
    assert weights(decision, made) == {}
    assert Rule.UNKNOWN_RUNTIME in rules(decision)


def test_when_every_probe_fails_no_member_loses_weight():
    made = scene(4, 0, 1, 2, 3)
    world = replace(made.observed(), pushes=says(made, dict.fromkeys((0, 1, 2), (PushEvent.READY, 1))))
    decision = decide(shop(4), world, NOW)
    assert weights(decision, made) == {}
    assert Rule.ALL_FAILING in rules(decision)


@pytest.mark.parametrize("readable", [True, False])
def test_an_unreadable_node_is_no_reason_to_trust_a_failure_more(readable):
    """A member fails in a pool that may become empty; while a node is unreadable, others may fail as well."""
    made = scene(1, 0)
    desired = shop(1, panic=Panic(50, PanicMode.CLOSED))
    elsewhere = Shop((Spec(name="api", nodes=("node-b",), pools=(), publish=None),)).desired().workloads
    node_b = Known((), "node-b", SEEN) if readable else Unknown("down", "node-b", SEEN - SECOND)
    world = replace(made.observed(), runtimes={**made.observed().runtimes, "node-b": node_b})
    decision = decide(replace(desired, workloads=(*elsewhere, *desired.workloads)), world, NOW)
    assert weights(decision, made) == ({0: 0} if readable else {})
    assert (Rule.ALL_FAILING in rules(decision)) is not readable


def test_a_restarted_container_gets_no_weight_until_it_is_ready_again():
    made = scene(3)
    fresh = replace(made.facts[1], started_at=made.facts[1].started_at + 1)
    made.change(1, fresh)
    assert weights(decide(shop(3), made.observed(), NOW), made) == {1: 0}
    lost = replace(made.observed(), ledger=replace(made.ledger, ready={}))
    assert weights(decide(shop(3), lost, NOW), made) == {}


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, 100), st.booleans(), st.integers(0, 100))
def test_panic_never_ends_where_it_would_begin(size, ready, more, on, threshold):
    ready, more, panic = min(ready, size), min(ready + more, size), Panic(threshold=threshold)
    since = ago(1) if on else None
    if panicking(size, ready, 1, None, panic):
        assert panicking(size, ready, 1, ago(1), panic)
    if not panicking(size, ready, 1, since, panic):
        assert not panicking(size, more, 1, since, panic)


# --- ramps ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 256), st.integers(1, 100), st.integers(0, 100), st.integers(0, 200 * SECOND))
def test_a_ramp_only_grows_and_steps_where_the_weight_changes(full, seconds, share, age):
    ramp = Ramp(seconds * SECOND, share)

    def at(ns: int) -> tuple[int, int]:
        return grown(full, ramp, ago(0), Now(NOW.wall + ns, SEEN + ns, NOW.lineage))

    now, step = at(age)
    assert max(1, full * share // 100) <= now <= full
    if age >= ramp.duration:
        assert now == full
        return
    if now < full:
        assert step > SEEN + age
        assert at(step - SEEN - 1)[0] == now
        assert at(step - SEEN)[0] > now


@given(st.integers(1, 256), st.integers(1, 100), st.integers(0, 100), st.integers(0, 200 * SECOND), st.integers(0, 300))
def test_a_ramp_never_lowers_what_an_endpoint_carries(full, seconds, share, age, carried):
    ramp = Ramp(seconds * SECOND, share)

    def at(ns: int, carried: int = 0) -> tuple[int, int]:
        return grown(full, ramp, ago(0), Now(NOW.wall + ns, SEEN + ns, NOW.lineage), carried)

    now, step = at(age, carried)
    assert now == max(at(age)[0], min(full, carried))
    if now < full:
        assert at(step - SEEN - 1, carried)[0] == now


def test_only_a_new_generation_ramps_up_and_reports_a_wait():
    made = scene(2)
    made.add(spec(3), container(spec(3), 2))
    made.pools["web"].pop()
    fact = made.facts[2]
    made.probes[fact.generation] = made.probes[fact.generation]._replace(readiness=probe(ProbeValue.PASS, 0, 0))
    desired = shop(3, ramp=Ramp(30 * SECOND, 10))
    first = decide(desired, made.observed(), NOW)
    assert weights(first, made) == {2: 10}
    assert first.ledger.ready[fact.id].grows
    assert any(wait.waiting.value == "ramp" for wait in first.waits)
    world, later = after(made, first, 15)
    made.probes[fact.generation] = made.probes[fact.generation]._replace(readiness=probe(ProbeValue.PASS, 0, -15))
    assert weights(decide(desired, replace(world, probes=made.probes), later), made)[2] == 55


def test_an_on_off_pool_gets_no_weight_in_between():
    made = scene(2)
    made.add(spec(3), container(spec(3), 2))
    made.pools["web"].pop()
    world = made.observed()
    pool = PoolFact("web", tuple(made.pools["web"]), weights=Takes.ON_OFF)
    world = replace(world, pools={(POOLS, "web"): Known(pool, POOLS, SEEN)})
    desired = shop(3, ramp=Ramp(30 * SECOND, 10))
    desired = replace(desired, services=(replace(desired.services[0], weight=40),))
    assert weights(decide(desired, world, NOW), made) == {2: 100}
