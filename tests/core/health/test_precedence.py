"""Which source decides whether a container is ready: the decision matrix with all its edges, and its laws."""

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
    """A push received `age` ns ago; the first push of its event came `since` ns ago."""
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
    pushed = push(event, AGES[age])
    assert tuple(rule(pushed, RULES, observer, False, SEEN).ready for observer in (P, F, U)) == expected


@pytest.mark.parametrize("observer", [P, F, U])
def test_without_a_push_the_probes_decide(observer):
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
def test_the_middle_zone_may_hold_the_push_or_follow_the_probes(zone, event, expected, age):
    rules = replace(RULES, middle_zone=zone)
    assert tuple(rule(push(event, AGES[age]), rules, observer, False, SEEN).ready for observer in (P, F, U)) == expected


def test_startup_counts_as_not_ready_until_its_deadline():
    just_before = push(STARTUP, SECOND, RULES.startup_deadline - 1)
    ruling = rule(just_before, RULES, P, False, SEEN)
    assert (ruling.ready, ruling.until) == (F, SEEN + 1)
    assert rule(push(STARTUP, SECOND, RULES.startup_deadline), RULES, P, False, SEEN).ready is P


def test_a_fresh_ready_push_counts_before_the_startup_probe_has_passed():
    waiting = believe(FACT, workload(Spec(startup=True)).template.container, {}, SEEN)
    assert waiting.ready is U
    belief = apply_push(waiting, push(READY, SECOND), RULES, NO_CHANNEL, NOW)
    assert (belief.ready, belief.since, belief.reason) == (P, SEEN - SECOND, Reason.PUSHED_READY)


def test_a_push_never_changes_liveness_and_the_disagreement_is_shown():
    sick = believe(FACT, MAIN, {FACT.generation: Probes(None, FAIL, PASS)}, SEEN)
    belief = apply_push(sick, push(READY, SECOND), RULES, NO_CHANNEL, NOW)
    assert (belief.live, belief.ready) == (F, P)
    assert belief.claim.overruled
    assert belief.claim.observer is F


@pytest.mark.parametrize("state", [state for state in ContainerState if state is not ContainerState.RUNNING])
@pytest.mark.parametrize("event", list(PushEvent))
def test_facts_outrank_pushes_and_overrides(state, event):
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
def test_an_override_outranks_pushes_and_probes(force, ready, reason, event):
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, FAIL)}, SEEN)
    belief = apply_override(
        apply_push(belief, push(event, SECOND), RULES, NO_CHANNEL, NOW), Override(force, ago(5)), NOW
    )
    assert (belief.ready, belief.reason, belief.claim.by, belief.live) == (ready, reason, By.OVERRIDE, P)


@pytest.mark.parametrize(
    ("event", "observer", "expected"),
    [(READY, P, P), (READY, F, U), (READY, U, U), (NOT_READY, P, U), (NOT_READY, F, F), (NOT_READY, U, U)],
)
@pytest.mark.parametrize("age", ["exactly 30.0 s", "an hour"])
def test_silence_decides_nothing_while_the_push_channel_is_suspect(event, observer, expected, age):
    assert rule(push(event, AGES[age]), RULES, observer, True, SEEN).ready is expected


def test_a_suspect_channel_does_not_matter_without_silence_or_heartbeats():
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, FAIL)}, SEEN)
    assert apply_push(belief, push(READY, SECOND), RULES, SUSPECT, NOW).ready is P
    quiet = replace(RULES, heartbeats=False)
    assert apply_push(belief, push(READY, 3600 * SECOND), quiet, SUSPECT, NOW).ready is F


def test_more_than_half_falling_silent_together_is_a_suspect_channel():
    facts = [replace(container(Spec(replicas=4), n), started_at=n + 1) for n in range(4)]
    pushes = {fact.generation: push(READY, 31 * SECOND) for fact in facts}
    senders = [(RULES, fact) for fact in facts]
    assert push_channel.of_containers(senders, pushes, SEEN).suspect
    half = {fact.generation: push(READY, (31 if n < 2 else 3) * SECOND) for n, fact in enumerate(facts)}
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
def test_an_answer_holds_until_the_instant_it_names(push_fact, rules, observer, suspect, later):
    first = rule(push_fact, rules, observer, suspect, SEEN)
    assert first.until > SEEN
    then = min(SEEN + later, first.until - 1)
    assert rule(push_fact, rules, observer, suspect, then)[:3] == first[:3]


@given(PUSHES, RULE, st.sampled_from([P, F, U]))
def test_an_older_push_never_counts_more_than_a_fresh_one(push_fact, rules, observer):
    """The answer is the push's or the probes', and unknown only if one of these is."""
    answer = rule(push_fact, rules, observer, False, SEEN).ready
    pushed = P if push_fact.event is READY else F
    assert answer in {pushed, observer}


@given(PUSHES, RULE, st.sampled_from([P, F, U]))
def test_draining_is_final_and_a_fresh_not_ready_never_serves(push_fact, rules, observer):
    answer = rule(push_fact, rules, observer, False, SEEN).ready
    age = SEEN - push_fact.at
    if push_fact.event is DRAINING or (
        push_fact.event is NOT_READY
        and (age < rules.fresh or (age <= rules.stale and rules.middle_zone is not MiddleZone.OBSERVER))
    ):
        assert answer is F


@given(PUSHES, st.sampled_from([P, F, U]), st.integers(0, 3 * 3600))
def test_a_step_of_the_wall_clock_changes_no_claim(push_fact, observer, jump):
    belief = believe(FACT, MAIN, {FACT.generation: Probes(None, PASS, probe(observer))}, SEEN)
    then = Now(NOW.wall + jump * SECOND, NOW.steady, NOW.lineage)
    assert apply_push(belief, push_fact, RULES, NO_CHANNEL, then) == apply_push(
        belief, push_fact, RULES, NO_CHANNEL, NOW
    )
