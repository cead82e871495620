"""Everything by which operators stop an action is a hold of its own: a run must not wait for one while another has no end."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Guard
from manifests.values.limits import Mode
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Suspension
from reconciler.core.model.reasons import Rule
from reconciler.exits import Exit
from reconciler.shell.report.events import LastReport, changes
from reconciler.shell.report.summary import pending, summarize
from tests.builders import NOW, Scene, ago
from tests.sim.manifest import Shop, Spec

MINUTE = 60 * SECOND
HOUR = NOW.steady + 3600 * SECOND
ENDS = Suspension("ada", "a test", NOW.wall + 5 * MINUTE)


def decision(*, spec: Spec | None = None, guard: Guard | None = None, **suspensions: Suspension):
    scene = Scene(spec or Spec())
    scene.sick(0)
    scene.ledger = replace(scene.ledger, suspensions={key.replace("_", "/"): row for key, row in suspensions.items()})
    made = Shop((spec or Spec(),), **({} if guard is None else {"guard": guard}))
    return decide(made.desired(), scene.observed(), NOW)


def held(made) -> list[tuple[Rule, bool]]:
    return [(hold.rule, hold.until is not None) for hold in made.holds if hold.object == "workload/web/0"]


def test_a_suspension_alone_is_waited_for():
    made = decision(workload_web=ENDS)
    assert held(made) == [(Rule.SUSPENDED, True)]
    assert pending(made, HOUR)


@pytest.mark.parametrize(
    "behind",
    [
        {"spec": Spec(suspend=True)},
        {"guard": Guard(suspend=True)},
        {"guard": Guard(deny=frozenset({"workload/web"}))},
        {"workload_web_0": Suspension("bob", "another test", 0)},
        {"node_node-a": Suspension("bob", "another test", 0)},
    ],
)
def test_what_has_no_end_behind_it_is_seen_at_once(behind):
    made = decision(workload_web=ENDS, **behind)
    assert sorted(until for _, until in held(made)) == [False, True]
    only_held = replace(made, steps=(), waits=(), unsettled=False)
    assert not pending(only_held, HOUR)
    assert summarize(replace(made, steps=()), (), NOW).exit is Exit.MANUAL


def test_two_ends_are_waited_for_until_the_last_one():
    later = Suspension("bob", "another test", NOW.wall + 50 * MINUTE)
    made = replace(decision(workload_web=ENDS, workload_web_0=later), steps=(), waits=())
    assert pending(made, HOUR)
    assert not pending(made, NOW.steady + 10 * MINUTE)


def test_holds_of_one_rule_are_an_event_each_and_are_released_together():
    made = decision(workload_web=ENDS, spec=Spec(suspend=True))
    last, events, _ = changes(LastReport(), made, NOW)
    reported = [event.message for event in events if event.kind == "held" and event.object == "workload/web/0"]
    assert len(reported) == 2
    _, events, _ = changes(last, decision(spec=Spec(suspend=True)), NOW)
    assert [event.kind for event in events if event.kind in {"held", "released"}] == []


def test_a_rule_without_an_end_behind_a_suspension_is_seen_at_once():
    observes = replace(Guard().restarts, mode=Mode.OBSERVE)
    made = decision(workload_web=ENDS, guard=replace(Guard(), restarts=observes))
    assert held(made) == [(Rule.OBSERVE_ONLY, False), (Rule.SUSPENDED, True)]
    assert not pending(replace(made, steps=(), waits=(), unsettled=False), HOUR)


def test_a_rule_without_an_end_comes_before_one_that_ends_by_itself():
    scene = Scene(Spec())
    scene.sick(0)
    scene.ledger = replace(scene.ledger, history_lost=ago(10))
    assert held(decide(Shop((Spec(),)).desired(), scene.observed(), NOW)) == [(Rule.LEDGER_LOST, True)]
    guard = replace(Guard(), restarts=replace(Guard().restarts, mode=Mode.OBSERVE))
    assert held(decide(Shop((Spec(),), guard=guard).desired(), scene.observed(), NOW)) == [(Rule.OBSERVE_ONLY, False)]
