"""A failure is bound to what was asked: other content is tried at once, and so is everything when a run or an operator asks."""

from dataclasses import replace
from itertools import pairwise

import pytest

from manifests.values.desired import SECOND, Provider, Role
from providers.actions import ChangeRecords, RecordChange, SetWeight, StartContainer
from providers.facts import Endpoint, Generation, RecordKey, RecordSet
from providers.testing.faults import Fault
from reconciler.core.actions.asked import digest
from reconciler.core.decide import decide
from reconciler.core.limits.backoff import step_at
from reconciler.core.model.ledger import Ledger, StepFailure
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind, fold, try_again
from reconciler.core.model.reasons import Rule
from reconciler.exits import Exit
from tests.builders import NOW, Scene, ago
from tests.sim.manifest import NAMES, NODE, POOLS, Shop, Spec, shop
from tests.sim.world import World

MANY = [Fault.REJECTED] * 50


def refused(world: World) -> set[str]:
    return {hold.object for hold in world.tape.last.holds if hold.rule is Rule.STEP_FAILED}


@pytest.fixture
def world(worlds) -> World:
    world = worlds(shop(replicas=1))
    world.start()
    world.run(60 * SECOND)
    assert world.published()
    return world


def test_a_corrected_record_is_tried_at_once(world):
    world.fail_next(NAMES, *MANY)
    world.push(shop(replicas=1, ttl=60))
    world.run(250 * SECOND)
    assert refused(world) == {"dnspolicy/web"}
    world.faults[NAMES].clear()
    world.push(shop(replicas=1, ttl=90))
    world.run(40 * SECOND)  # the source is polled; the next try of the refused step would come later
    assert world.outside.zones[NAMES]["example.test."].records[RecordKey("web.example.test.", "A")].ttl == 90
    assert not world.memory.ledger().step_failures


def test_refused_calls_back_off_from_five_seconds_to_five_minutes(world):
    world.fail_next(NAMES, *MANY)
    world.push(shop(replicas=1, ttl=60))
    tries: list[int] = []
    streak = 0
    for _ in range(900):
        world.run(SECOND)
        failure = next(iter(world.memory.ledger().step_failures.values()), None)
        if failure is not None and failure.streak != streak:
            streak = failure.streak
            tries.append(world.clock.now().steady // SECOND)
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert all(
        limit * 3 // 4 - 1 <= gap <= limit + 1 for gap, limit in zip(gaps, (5, 10, 20, 40, 80, 160), strict=False)
    )
    assert max(gaps) <= 301
    assert len(gaps) >= 6


def test_a_run_tries_at_its_start_what_was_refused(world):
    world.fail_next(NODE, *MANY)
    world.push(shop(replicas=2))
    world.run(200 * SECOND)
    assert refused(world) == {"workload/web/1"}
    world.faults[NODE].clear()
    assert world.once().exit is Exit.OK
    assert len(world.running()) == 2


def test_a_plan_shows_what_a_run_would_try(world):
    world.fail_next(NODE, *MANY)
    world.push(shop(replicas=2))
    world.run(200 * SECOND)
    decision, _, _ = world.observe_once()
    assert [step.id.partition(" ")[0] for step in decision.steps] == ["create"]


@pytest.mark.parametrize(
    ("key", "tried"), [("workload/web", True), ("workload/web/1", True), ("*", True), ("workload/api", False)]
)
def test_an_operator_that_resumes_an_object_tries_its_steps(world, key, tried):
    world.fail_next(NODE, *MANY)
    world.push(shop(replicas=2))
    world.run(250 * SECOND)
    world.faults[NODE].clear()
    world.memory.say("resume", key)
    world.run(3 * SECOND)
    assert (len(world.running()) == 2) is tried


def test_a_gate_still_holds_what_a_run_tries(world):
    world.memory.say("suspend", "workload/web")
    world.fail_next(NODE, *MANY)
    world.push(shop(replicas=2))
    world.run(100 * SECOND)
    world.once(within=20 * SECOND)
    assert len(world.running()) == 1


def test_an_image_that_comes_later_than_its_manifest_is_still_used(worlds):
    world = worlds(shop(replicas=1))
    world.start()
    world.run(60 * SECOND)
    world.fail_next(NODE, *[Fault.REJECTED] * 8)
    world.push(shop(replicas=1, image="v2"))
    world.run(1800 * SECOND)
    assert world.running() == [f"shop-web-{Spec(image='v2').revision[:8]}-0"]


# --- the digest ---------------------------------------------------------------------------------------------------------


RECORDS = ChangeRecords(
    "names", "example.test.", (RecordChange(RecordKey("a", "A"), None, RecordSet(60, ("1",)), "x"),)
)
DESIRED = replace(
    Shop().desired(), providers=(Provider("provider/names", "names", "powerdns", Role.DNS, {"url": "http://a"}),)
)


def test_what_a_look_observes_is_no_part_of_what_was_asked():
    before = replace(RECORDS.changes[0], before=RecordSet(30, ("2",)))
    assert digest(replace(RECORDS, changes=(before,)), DESIRED, {}) == digest(RECORDS, DESIRED, {})
    weight = SetWeight("pool", "web", Endpoint("10.0.0.1", 80), "web-0", 100, None)
    assert digest(replace(weight, before=50), DESIRED, {}) == digest(weight, DESIRED, {})
    assert digest(replace(weight, weight=50), DESIRED, {}) != digest(weight, DESIRED, {})


@pytest.mark.parametrize("part", ["content", "owner", "settings", "reference", "generation"])
def test_each_part_of_what_was_asked_counts(part):
    action, desired, references = RECORDS, DESIRED, {"provider/names": "1"}
    base = digest(action, desired, references)
    if part == "content":
        action = replace(RECORDS, changes=(replace(RECORDS.changes[0], after=RecordSet(60, ("2",))),))
    elif part == "owner":
        action = replace(RECORDS, changes=(replace(RECORDS.changes[0], owner="y"),))
    elif part == "settings":
        provider = replace(DESIRED.providers[0], settings={"url": "http://b"})
        desired = replace(DESIRED, providers=(provider,))
    elif part == "reference":
        references = {"provider/names": "2"}
    else:
        start = StartContainer("node", "web-0", Generation("id", 1))
        base, action = digest(start, desired, references), replace(start, expect=Generation("id", 2))
    assert digest(action, desired, references) != base


def test_a_failure_of_other_content_begins_a_new_streak():
    ledger = Ledger()
    for asked in ("a", "a", "b"):
        ledger = fold(ledger, (Outcome("x", OutcomeKind.REJECTED, "no", "workload/web", asked),), NOW)
    failure = ledger.step_failures["x"]
    assert (failure.streak, failure.asked, failure.object, failure.refused) == (1, "b", "workload/web", True)


def test_a_try_that_was_asked_for_waits_as_long_as_the_other_side_wants():
    failure = StepFailure(5, ago(10), True, "busy", wait=60 * SECOND)
    ledger = try_again(Ledger(step_failures={"x": failure, "y": failure._replace(wait=0)}))
    due = [step_at(step, failure, NOW) - NOW.steady for step, failure in ledger.step_failures.items()]
    assert due[0] == 50 * SECOND
    assert due[1] <= 0


def test_failures_survive_their_stored_form_and_older_ones_are_read():
    failure = StepFailure(2, ago(5), True, "no", ago(50), "digest", "workload/web", 3, True)
    assert from_rows(to_rows(Ledger(step_failures={"x": failure}))).step_failures["x"] == failure
    old = {("step_failures", "x"): '[2, [1, 2, "boot"], true, "no"]'}
    assert from_rows(old).step_failures["x"].first is None


def test_a_failure_of_an_older_version_is_not_bound():
    scene = Scene(Spec(replicas=1))
    desired = shop(replicas=1, weight=50).desired()
    (step,) = decide(desired, scene.observed(), NOW).steps
    scene.ledger = replace(scene.ledger, step_failures={step.id: StepFailure(1, ago(1), True, "no")})
    assert {hold.rule for hold in decide(desired, scene.observed(), NOW).holds} == {Rule.STEP_FAILED}
    assert step.action.provider == POOLS
