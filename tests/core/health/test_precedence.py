"""Whose word decides whether a container is ready: the whole decision matrix, with both edges, and laws of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, MiddleZone, Push
from providers.facts import ContainerState, Probes, ProbeValue
from reconciler.core.health import push_channel
from reconciler.core.health.belief import By, believe
from reconciler.core.health.precedence import apply_override, apply_push, rule
from reconciler.core.health.push_channel import NO_CHANNEL, Channel
from reconciler.core.model.instant import Now
from reconciler.core.model.override import Force, Override
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason
from tests.builders import FAIL, NOW, PASS, SEEN, ago, container, down, probe
from tests.sim.manifest import Spec, workload

P, F, U = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
SERVE, OUT, HOLD = P, F, U
RULES = Push()
SUSPECT = Channel(True, 3, 4, SEEN + 100 * SECOND)
FACT = container(Spec(), 0)
MAIN = workload(Spec()).template.container
READY, NOT_READY, STARTUP, DRAINING = PushEvent.READY, PushEvent.NOT_READY, PushEvent.STARTUP, PushEvent.DRAINING


def push(event: PushEvent, age: int, since: int | None = None) -> PushFact:
    """A push received `age` ns ago; its event was first said `since` ns ago."""
    return PushFact(event, SEEN - age, SEEN - (age if since is None else since), "boot-1", 7)


AGES = {
    "fresh": 5 * SECOND,
    "just before 30.0 s": 30 * SECOND - 1,
    "exactly 30.0 s": 30 * SECOND,
    "45 s": 45 * SECOND,
    "exactly 60.0 s": 60 * SECOND,
    "just after 60.0 s": 60 * SECOND + 1,
    "an hour": 3600 * SECOND,
}
FRESH = ("fresh", "just before 30.0 s")
MIDDLE = ("exactly 30.0 s", "45 s", "exactly 60.0 s")
OLD = ("just after 60.0 s", "an hour")

MATRIX = [
    *((READY, age, (SERVE, SERVE, SERVE)) for age in FRESH),
    *((READY, age, (SERVE, OUT, HOLD)) for age in MIDDLE),
    *((READY, age, (SERVE, OUT, HOLD)) for age in OLD),
    *((event, age, (OUT, OUT, OUT)) for event in (NOT_READY, STARTUP) for age in FRESH),
    *((event, age, (OUT, OUT, OUT)) for event in (NOT_READY, STARTUP) for age in MIDDLE),
    *((event, age, (SERVE, OUT, HOLD)) for event in (NOT_READY, STARTUP) for age in OLD),
    *((DRAINING, age, (OUT, OUT, OUT)) for age in AGES),
]


@pytest.mark.parametrize(("event", "age", "expected"), MATRIX)
def test_the_decision_matrix(event, age, expected):
    said = push(event, AGES[age])
    assert tuple(rule(said, RULES, observer, False, SEEN).ready for observer in (P, F, U)) == expected


@pytest.mark.parametrize("observer", [P, F, U])
def test_who_was_never_heard_is_judged_by_its_probes(observer):
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, probe(observer))}, SEEN)
    assert apply_push(belief, None, RULES, NO_CHANNEL, NOW) == belief


@pytest.mark.parametrize(
    ("zone", "event", "expected"),
    [
        (MiddleZone.HOLD, READY, (SERVE, SERVE, SERVE)),
        (MiddleZone.HOLD, NOT_READY, (OUT, OUT, OUT)),
        (MiddleZone.OBSERVER, READY, (SERVE, OUT, HOLD)),
        (MiddleZone.OBSERVER, NOT_READY, (SERVE, OUT, HOLD)),
        (MiddleZone.OBSERVER, DRAINING, (OUT, OUT, OUT)),
    ],
)
@pytest.mark.parametrize("age", MIDDLE)
def test_the_middle_zone_may_hold_what_was_said_or_follow_the_probes(zone, event, expected, age):
    rules = replace(RULES, middle_zone=zone)
    assert tuple(rule(push(event, AGES[age]), rules, one, False, SEEN).ready for one in (P, F, U)) == expected


def test_startup_blocks_like_not_ready_until_its_deadline_and_then_the_probes_decide():
    just_before = push(STARTUP, SECOND, RULES.startup_deadline - 1)
    ruling = rule(just_before, RULES, P, False, SEEN)
    assert (ruling.ready, ruling.until) == (F, SEEN + 1)
    assert rule(push(STARTUP, SECOND, RULES.startup_deadline), RULES, P, False, SEEN).ready is P


def test_a_fresh_ready_push_promotes_at_once_though_the_startup_probe_is_not_through():
    waiting = believe(FACT, workload(Spec(startup=True)).template.container, {}, SEEN)
    assert waiting.ready is U
    told = apply_push(waiting, push(READY, SECOND), RULES, NO_CHANNEL, NOW)
    assert (told.ready, told.since, told.reason) == (P, SEEN - SECOND, Reason.PUSHED_READY)


def test_a_push_never_changes_the_liveness_verdict_and_the_disagreement_is_shown():
    sick = believe(FACT, MAIN, {FACT.generation: Probes(None, FAIL, PASS)}, SEEN)
    told = apply_push(sick, push(READY, SECOND), RULES, NO_CHANNEL, NOW)
    assert (told.live, told.ready) == (F, P)
    assert told.claim.overruled
    assert told.claim.observer is F


@pytest.mark.parametrize("state", [one for one in ContainerState if one is not ContainerState.RUNNING])
@pytest.mark.parametrize("event", list(PushEvent))
def test_facts_outrank_pushes_and_orders(state, event):
    gone = believe(replace(FACT, state=state), MAIN, {}, SEEN)
    assert apply_push(gone, push(event, SECOND), RULES, NO_CHANNEL, NOW) == gone
    assert apply_override(gone, Override(Force.UP, ago(5)), NOW) == gone
    assert believe(down(FACT), MAIN, {}, SEEN).ready is F


@pytest.mark.parametrize(
    ("force", "ready", "reason"),
    [
        (Force.DRAIN, F, Reason.DRAINED_BY_OPERATOR),
        (Force.DOWN, F, Reason.FORCED_DOWN),
        (Force.UP, P, Reason.FORCED_UP),
    ],
)
@pytest.mark.parametrize("event", list(PushEvent))
def test_a_persons_order_outranks_pushes_and_probes(force, ready, reason, event):
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, FAIL)}, SEEN)
    told = apply_override(apply_push(belief, push(event, SECOND), RULES, NO_CHANNEL, NOW), Override(force, ago(5)), NOW)
    assert (told.ready, told.reason, told.claim.by, told.live) == (ready, reason, By.OVERRIDE, P)


@pytest.mark.parametrize(
    ("event", "observer", "expected"),
    [(READY, P, P), (READY, F, U), (READY, U, U), (NOT_READY, P, U), (NOT_READY, F, F), (NOT_READY, U, U)],
)
@pytest.mark.parametrize("age", ["exactly 30.0 s", "an hour"])
def test_silence_decides_nothing_while_the_way_of_the_pushes_is_suspected(event, observer, expected, age):
    assert rule(push(event, AGES[age]), RULES, observer, True, SEEN).ready is expected


def test_a_suspected_way_changes_nothing_for_who_is_heard_or_does_not_repeat_itself():
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, FAIL)}, SEEN)
    assert apply_push(belief, push(READY, SECOND), RULES, SUSPECT, NOW).ready is P
    quiet = replace(RULES, heartbeats=False)
    assert apply_push(belief, push(READY, 3600 * SECOND), quiet, SUSPECT, NOW).ready is F


def test_more_than_half_falling_silent_together_makes_the_way_suspect():
    facts = [replace(container(Spec(replicas=4), n), started_at=n + 1) for n in range(4)]
    pushes = {fact.generation: push(READY, 31 * SECOND) for fact in facts}
    senders = [(RULES, fact) for fact in facts]
    assert push_channel.of_containers(senders, pushes, SEEN).suspect
    half = {one.generation: push(READY, (31 if n < 2 else 3) * SECOND) for n, one in enumerate(facts)}
    assert not push_channel.of_containers(senders, half, SEEN).suspect


# --- laws -------------------------------------------------------------------------------------------------------

PUSHES = st.builds(
    push,
    st.sampled_from(list(PushEvent)),
    st.integers(0, 120 * SECOND),
    st.one_of(st.none(), st.integers(120 * SECOND, 400 * SECOND)),
)
RULE = st.builds(Push, middle_zone=st.sampled_from(list(MiddleZone)))


@given(PUSHES, RULE, st.sampled_from([P, F, U]), st.booleans(), st.integers(1, 300 * SECOND))
def test_an_answer_holds_until_the_instant_it_names(said, rules, observer, suspect, later):
    first = rule(said, rules, observer, suspect, SEEN)
    assert first.until > SEEN
    then = min(SEEN + later, first.until - 1)
    assert rule(said, rules, observer, suspect, then)[:3] == first[:3]


@given(PUSHES, RULE, st.sampled_from([P, F, U]))
def test_an_older_push_never_says_more_than_a_fresh_one(said, rules, observer):
    """What is neither the push's word nor the probes' is never the answer, and unknown comes only from not knowing."""
    answer = rule(said, rules, observer, False, SEEN).ready
    word = P if said.event is READY else F
    assert answer in {word, observer}


@given(PUSHES, RULE, st.sampled_from([P, F, U]))
def test_draining_is_never_left_and_not_ready_is_never_served_before_it_is_stale_or_the_manifest_says_so(
    said, rules, observer
):
    answer = rule(said, rules, observer, False, SEEN).ready
    age = SEEN - said.at
    if said.event is DRAINING or (
        said.event is NOT_READY
        and (age < rules.fresh or (age <= rules.stale and rules.middle_zone is not MiddleZone.OBSERVER))
    ):
        assert answer is F


@given(PUSHES, st.sampled_from([P, F, U]), st.integers(0, 3 * 3600))
def test_a_step_of_the_wall_clock_changes_no_authority(said, observer, jump):
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, probe(observer))}, SEEN)
    then = Now(NOW.wall + jump * SECOND, NOW.steady, NOW.boot)
    assert apply_push(belief, said, RULES, NO_CHANNEL, then) == apply_push(belief, said, RULES, NO_CHANNEL, NOW)
