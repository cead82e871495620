"""Laws of one decision over random worlds in which several revisions run side by side."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from manifests.values.rollouts import STAGED, CanaryStep, Rollout, Supersede
from providers.facts import Probes, Unknown
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.instant import Instant, Now
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.revision import Revision, Standing
from reconciler.core.model.revision import Rollout as History
from tests.laws.examples import examples
from tests.laws.random_worlds import FLIP, NOW, observed, pick, settled
from tests.laws.test_decide_laws import BEYOND, answer, destructive

EXAMPLES = examples(100)
AT = st.integers(-7200, 7200).map(lambda seconds: NOW.wall + seconds * SECOND)
SPAN = st.sampled_from([0, 30, 60, 600, 3600]).map(lambda seconds: seconds * SECOND)
PAST = st.integers(0, 4000).map(
    lambda seconds: Instant(NOW.wall - seconds * SECOND, NOW.steady - seconds * SECOND, NOW.lineage)
)
MAYBE = st.none() | PAST
DUE = st.just(0) | AT
WORLDS = observed()
OTHERS = [standing for standing in Standing if standing is not Standing.ACTIVE]


@st.composite
def rollouts(draw):
    steps = pick(draw, [(), (CanaryStep(1_000, 60 * SECOND),)])
    return Rollout(
        draw(DUE), draw(SPAN), draw(SPAN), draw(SPAN), pick(draw, list(Supersede)), draw(SPAN),
        draw(SPAN), 600 * SECOND, steps,
    )  # fmt: skip


ROLLOUTS = rollouts()


@st.composite
def staged(draw):
    """A world whose workloads are staged, with any rollout history of the existing revisions."""
    desired, world = draw(WORLDS)
    workloads, histories = [], {}
    for workload in desired.workloads:
        chosen = pick(draw, sorted(STAGED))
        workloads.append(replace(workload, strategy=chosen, rollout=draw(ROLLOUTS)))
        revisions = sorted(
            {
                fact.mark.revision
                for known in world.runtimes.values()
                for fact in (() if isinstance(known, Unknown) else known.value)
                if fact.mark is not None and fact.mark.workload == workload.name
            }
            | {workload.template.revision}
        )
        if not draw(FLIP):
            continue
        active = pick(draw, revisions)
        rows = tuple(
            Revision(
                each, number + 1,
                Standing.ACTIVE if each == active else pick(draw, OTHERS),
                draw(PAST), due=draw(MAYBE), opened=None if each == active else draw(MAYBE), failed_at=draw(MAYBE),
                stepped=draw(MAYBE), activated=draw(MAYBE), ended=None if each == active else draw(MAYBE),
            )
            for number, each in enumerate(revisions)
        )  # fmt: skip
        back = pick(draw, ["", *revisions])
        histories[workload.key] = History(active, "" if back == active else back, draw(MAYBE), rows=rows)
    ledger = replace(world.ledger, rollouts=histories)
    return replace(desired, workloads=tuple(workloads)), replace(world, ledger=ledger)


@EXAMPLES
@given(staged(), st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3))
def test_a_decision_on_a_rollout_does_not_change_before_its_wake_at(given_, fractions):
    desired, world = given_
    world = settled(desired, world)
    first = decide(desired, world, NOW)
    span = min(first.wake_at, NOW.steady + 3600 * SECOND) - NOW.steady
    assert span > 0
    for offset in (*(int(span * fraction) for fraction in fractions), span - 1):
        then = Now(NOW.wall + offset, NOW.steady + offset, NOW.lineage)
        assert answer(decide(desired, world, then)) == answer(first), f"after {offset / SECOND} of {span / SECOND} s"


@EXAMPLES
@given(staged(), st.data())
def test_unknown_facts_never_make_a_rollout_destructive(given_, data):
    desired, world = given_
    world = settled(desired, world)
    known = destructive(decide(desired, world, NOW))
    blank = Unknown("switched off", "x", NOW.steady - SECOND)
    facts = [("runtimes", key) for key in world.runtimes] + [("pools", key) for key in world.pools]
    facts += [(f"probe {name}", key) for key in world.probes for name in Probes._fields]
    kind, key = data.draw(st.sampled_from(facts))
    if kind.startswith("probe"):
        less = replace(world, probes={**world.probes, key: world.probes[key]._replace(**{kind[6:]: None})})
    else:
        less = replace(world, **{kind: {**getattr(world, kind), key: blank}})
    assert destructive(decide(desired, less, NOW)) <= known


@examples(60)
@given(staged())
def test_holds_waits_and_forecasts_of_rollouts_end(given_):
    desired, world = given_
    decision = decide(desired, world, NOW)
    assert from_rows(to_rows(decision.ledger)) == decision.ledger
    for hold in decision.holds:
        assert hold.next_step or (hold.until is not None and hold.until > NOW.steady), hold
        assert hold.until is None or hold.until > NOW.steady, hold
    for wait in decision.waits:
        assert wait.until is None or wait.until > NOW.steady, wait
    plan = forecast(desired, world, NOW)
    assert plan.truncated in {"", BEYOND}
