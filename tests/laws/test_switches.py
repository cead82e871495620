"""New commits and healing are held apart: one goes on while the other waits, and each wait ends by itself or by an operator."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.limits import Held, Window
from manifests.values.rollouts import Strategy
from providers.facts import ContainerState
from reconciler.core.model.reasons import Rule
from reconciler.core.model.source_problem import OBJECT
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

COMMITS, HEALING = "commits:*", "healing:workload/web"
V2 = shop(image="v2")
NEW = Spec(image="v2").revision[:8]


@pytest.fixture
def world():
    made = World(shop())
    ready(made)
    yield made
    made.close()


def revisions(world: World) -> set[str]:
    return {name.split("-")[2] for name in world.running()}


def held(world: World) -> list[tuple[str, Rule, int | None]]:
    return [(hold.message, hold.rule, hold.until) for hold in world.tape.last.holds if hold.object == OBJECT]


def guarded(made: Shop, **fields: object) -> Shop:
    return replace(made, guard=replace(Guard(mass_change=MassChange(100, 50)), **fields))  # type: ignore[arg-type]


def window(world: World, kind: Held, minutes: int) -> Window:
    """A window that is open now and for some minutes more."""
    minute = world.clock.now().wall // (60 * SECOND) % 60
    return Window("freeze", frozenset({kind}), f"{minute} * * * *", minutes * 60 * SECOND, "UTC")


def test_while_new_commits_are_suspended_healing_goes_on(world):
    world.memory.say("suspend", COMMITS)
    world.run(5 * SECOND)
    world.push(V2)
    world.run(60 * SECOND)
    [(message, rule, until)] = held(world)
    assert (rule, until) == (Rule.SUSPENDED, None)
    assert "stays in force" in message
    assert "waits" in message
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    assert world.containers()[WEB.format(0)].state is ContainerState.RUNNING, "the replica is healed"
    assert NEW not in revisions(world)
    world.memory.say("resume", COMMITS)
    world.run(240 * SECOND)
    assert revisions(world) == {NEW}
    assert held(world) == []


def test_a_commit_of_a_window_comes_into_force_when_it_closes(world):
    world.push(guarded(V2, windows=(window(world, Held.COMMITS, 10),)))
    world.run(30 * SECOND)
    [(_, rule, until)] = held(world)
    assert rule is Rule.WINDOW
    assert until is not None
    left = until - world.now().steady
    assert 0 < left <= 600 * SECOND
    world.run(left - 20 * SECOND)
    assert NEW not in revisions(world)
    world.run(300 * SECOND)
    assert revisions(world) == {NEW}, "no new push is needed"


def test_the_newest_of_several_waiting_commits_comes_into_force(world):
    world.memory.say("suspend", COMMITS)
    world.run(5 * SECOND)
    for image in ("v2", "v3", "v4"):
        world.push(shop(image=image))
        world.run(20 * SECOND)
    world.memory.say("resume", COMMITS)
    world.run(300 * SECOND)
    assert revisions(world) == {Spec(image="v4").revision[:8]}
    history = world.memory.ledger().rollouts["workload/web"]
    assert history.of(Spec(image="v3").revision) is None, "a commit that never came into force has no history"


def test_a_guard_that_suspends_commits_is_lifted_by_the_next_commit(world):
    world.push(guarded(V2, suspend_commits=True))
    world.run(30 * SECOND)
    [(message, _, until)] = held(world)
    assert message.startswith("the Guard suspends new commits")
    assert until is None
    world.push(V2)
    world.run(240 * SECOND)
    assert revisions(world) == {NEW}


def test_while_healing_is_suspended_new_commits_are_taken(world):
    world.memory.say("suspend", HEALING)
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    assert not world.containers()[WEB.format(0)].up, "it is not started again"
    holds = [hold for hold in world.tape.last.holds if hold.rule is Rule.SUSPENDED]
    assert [hold.object for hold in holds] == ["workload/web/0"]
    assert "suspended healing of workload/web" in holds[0].message
    assert holds[0].next_step == "reconcile resume --healing workload/web"
    assert world.weights()[WEB.format(1)] == 100
    world.push(V2)
    world.run(300 * SECOND)
    assert {name for name in world.running() if NEW in name} == {f"shop-web-{NEW}-{n}" for n in range(3)}


def test_a_suspension_of_healing_holds_a_restart_for_health(world):
    world.memory.say("suspend", HEALING)
    world.run(5 * SECOND)
    before = world.generation(WEB.format(1))
    world.apps.sick.add(before)
    world.run(120 * SECOND)
    assert world.generation(WEB.format(1)) == before
    assert world.weights()[WEB.format(1)] == 0, "weights follow health"
    world.memory.say("resume", HEALING)
    world.run(120 * SECOND)
    assert world.generation(WEB.format(1)) != before


def test_a_suspension_of_healing_ends_at_its_time(world):
    world.push(guarded(shop(), suspend_healing=True))
    world.run(30 * SECOND)
    world.runtime.exit(WEB.format(2))
    world.run(60 * SECOND)
    assert not world.containers()[WEB.format(2)].up
    world.push(shop())
    world.run(60 * SECOND)
    assert world.containers()[WEB.format(2)].up


@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RECREATE])
def test_a_rollout_that_has_begun_ends_also_when_a_window_opens(strategy):
    made = World(shop(strategy=strategy))
    try:
        ready(made)
        # The window opens two minutes from now; three replicas take longer than that.
        minute = (made.clock.now().wall // (60 * SECOND) + 2) % 60
        freeze = Window("freeze", frozenset({Held.ROLLOUT}), f"{minute} * * * *", 1800 * SECOND, "UTC")
        made.push(guarded(shop(image="v2", strategy=strategy), windows=(freeze,)))
        made.run(130 * SECOND)
        assert len(revisions(made)) == 2, "it is half done when the window opens"
        made.run(400 * SECOND)
        assert revisions(made) == {NEW}, "what has begun is finished"
        made.push(guarded(shop(image="v3", strategy=strategy), windows=(freeze,)))
        made.run(300 * SECOND)
        assert revisions(made) == {NEW}, "another one does not begin"
        made.run(1800 * SECOND)
        assert revisions(made) == {Spec(image="v3").revision[:8]}, "it begins when the window closes"
    finally:
        made.close()
