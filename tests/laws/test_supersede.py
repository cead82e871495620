"""A commit that corrects a rollout replaces it within one poll, whatever it waits for; a rejected revision stays rejected, and a
commit that concerns something else causes no action."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.limits import Held, Window
from manifests.values.rollouts import CanaryStep, Rollout, Strategy
from providers.actions import CreateContainer
from providers.testing.faults import Fault
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import Standing
from tests.sim.manifest import NODE, Shop, Spec, shop
from tests.sim.world import World

LONG = 3000 * SECOND
TIMES = Rollout(precheck=20 * SECOND, pending_grace=LONG, bake=LONG, window=LONG, progress_deadline=LONG)
STAGED = (Strategy.ACTIVATE, Strategy.CANARY)
POLL = 15 * SECOND


def declared(image: str, strategy: Strategy, **fields: object) -> Shop:
    steps = (CanaryStep(2_000, 60 * SECOND),) if strategy is Strategy.CANARY else ()
    times = replace(
        TIMES, steps=steps, **{name: fields.pop(name) for name in tuple(fields) if name in ("delay", "bake")}
    )
    return shop(image=image, replicas=2, strategy=strategy, rollout=times, **fields)


def short(image: str) -> str:
    return Spec(image=image).revision[:8]


def serving(world: World) -> set[str]:
    """The revisions of the workload `web` that have traffic."""
    weights = world.weights()
    return {name.split("-")[2] for name in weights if weights[name] and name.startswith("shop-web-")}


def containers(world: World, image: str) -> list[str]:
    return [f"shop-web-{short(image)}-{ordinal}" for ordinal in range(2)]


class Always(list):
    def pop(self, index: int = -1) -> Fault:
        return self[index]


def not_created(world: World) -> None:
    """As an image that cannot be pulled: every create of the revision is refused."""
    world.faults[NODE] = Always([Fault.REJECTED])


def not_started(world: World) -> None:
    world.runtime.refuse_starts("exec: no such file")


def exits(world: World) -> None:
    world.apps.crash_after.update(dict.fromkeys(containers(world, "v2"), SECOND))


def never_ready(world: World) -> None:
    world.apps.mute |= set(containers(world, "v2"))


def corrected(world: World) -> None:
    """What the fix does not have: the fault is of the revision."""
    world.faults.pop(NODE, None)
    world.runtime.refuse_starts("")


@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RECREATE, *STAGED])
@pytest.mark.parametrize("stuck", [not_created, not_started, exits, never_ready])
def test_a_fix_replaces_a_stuck_rollout_within_one_poll(stuck, strategy):
    world = World(declared("v1", strategy))
    try:
        world.run(120 * SECOND)
        stuck(world)
        world.push(declared("v2", strategy))
        world.run(200 * SECOND)
        assert short("v2") not in serving(world)
        corrected(world)
        created: list[int] = []
        world.tape.watch = lambda step: (
            created.append(world.clock.now().steady)
            if isinstance(step.action, CreateContainer) and short("v3") in step.action.name
            else None
        )
        began = world.clock.now().steady
        world.push(declared("v3", strategy))
        world.run(600 * SECOND)
        assert created, "the fix was begun"
        assert created[0] - began <= 2 * POLL
        assert serving(world) == {short("v3")}
        assert not any(short("v2") in name for name in world.running())
    finally:
        world.close()


@pytest.mark.parametrize("strategy", STAGED)
@pytest.mark.parametrize("held", ["delay", "window", "suspended"])
def test_a_fix_replaces_a_revision_whose_activation_is_held(held, strategy):
    world = World(declared("v1", strategy))
    guard = Guard(mass_change=MassChange(100, 50))
    try:
        world.run(120 * SECOND)
        if held == "suspended":
            world.memory.say("suspend", "workload/web")
        minute = world.clock.now().wall // (60 * SECOND) % 60
        window = Window("night", frozenset({Held.ROLLOUT}), f"{minute} * * * *", 1500 * SECOND, "UTC")
        guard = replace(guard, windows=(window,)) if held == "window" else guard
        delay = LONG if held == "delay" else 0
        world.push(replace(declared("v2", strategy, delay=delay), guard=guard))
        world.run(200 * SECOND)
        assert serving(world) == {short("v1")}
        world.push(declared("v3", strategy))
        world.run(2 * POLL)
        if held == "suspended":
            world.memory.say("resume", "workload/web")
        world.run(600 * SECOND)
        assert serving(world) == {short("v3")}
        history = world.memory.ledger().rollouts["workload/web"]
        row = history.of(Spec(image="v2").revision)
        assert row is None or row.standing in {Standing.SUPERSEDED, Standing.FAILED}
        assert row is None or row.activated is None
    finally:
        world.close()


@pytest.mark.parametrize("strategy", STAGED)
def test_a_fix_replaces_a_revision_in_its_bake(strategy):
    world = World(declared("v1", strategy))
    try:
        world.run(120 * SECOND)
        world.push(declared("v2", strategy))
        world.run(300 * SECOND)
        assert serving(world) == {short("v2")}
        world.push(declared("v3", strategy))
        world.run(300 * SECOND)
        assert serving(world) == {short("v3")}, "the bake of an hour was not waited for"
    finally:
        world.close()


UNRELATED = {
    "nothing": lambda made: made,
    "another workload": lambda made: replace(made, specs=(*made.specs, Spec(name="api", replicas=1))),
    "more replicas": lambda made: replace(made, specs=(replace(made.specs[0], replicas=3),)),
    "a budget": lambda made: replace(made, specs=(replace(made.specs[0], max_unavailable=2),)),
    "a weight": lambda made: replace(made, specs=(replace(made.specs[0], weight=50),)),
    "a bake": lambda made: replace(made, specs=(replace(made.specs[0], rollout=replace(TIMES, bake=60 * SECOND)),)),
    "a delay": lambda made: replace(made, specs=(replace(made.specs[0], rollout=replace(TIMES, delay=5 * SECOND)),)),
}


@pytest.mark.parametrize("after", ["poll", "kill", "reboot"])
@pytest.mark.parametrize("commit", list(UNRELATED))
def test_a_rollback_lasts_until_a_commit_changes_the_template(commit, after):
    world = World(declared("v1", Strategy.ACTIVATE))
    try:
        world.run(120 * SECOND)
        second = declared("v2", Strategy.ACTIVATE)
        world.push(second)
        world.run(200 * SECOND)
        assert serving(world) == {short("v2")}
        world.memory.say("rollback", "workload/web")
        world.run(120 * SECOND)
        assert serving(world) == {short("v1")}
        if after == "kill":
            world.kill()
        elif after == "reboot":
            world.reboot_host()
        world.push(UNRELATED[commit](second))
        world.run(900 * SECOND)
        assert {name for name in serving(world) if name != "api"} >= {short("v1")}
        assert short("v2") not in serving(world)
        [hold] = [hold for hold in world.tape.last.holds if hold.rule is Rule.REVISION_NOT_ELIGIBLE]
        assert f"revision {short('v2')} has failed: rolled back by" in hold.message
        world.push(declared("v3", Strategy.ACTIVATE))
        world.run(300 * SECOND)
        assert serving(world) == {short("v3")}, "a commit that changes the template is tried"
    finally:
        world.close()


def test_the_rejected_template_is_tried_again_when_a_commit_brings_it_back():
    world = World(declared("v1", Strategy.ACTIVATE))
    try:
        world.run(120 * SECOND)
        world.push(declared("v2", Strategy.ACTIVATE))
        world.run(200 * SECOND)
        world.memory.say("rollback", "workload/web")
        world.run(120 * SECOND)
        world.push(declared("v1", Strategy.ACTIVATE))
        world.run(120 * SECOND)
        world.push(declared("v2", Strategy.ACTIVATE))
        world.run(300 * SECOND)
        assert serving(world) == {short("v2")}
    finally:
        world.close()


@pytest.mark.parametrize("commit", [name for name in UNRELATED if name not in {"more replicas", "a weight"}])
def test_an_unrelated_commit_touches_nothing_and_starts_nothing(commit):
    first = declared("v1", Strategy.ROLLING)
    first = replace(first, specs=(*first.specs, Spec(name="db", replicas=1)))
    world = World(first)
    try:
        world.run(120 * SECOND)
        world.memory.say("suspend", "workload/db")
        world.run(5 * SECOND)
        database = next(name for name in world.containers() if "-db-" in name)
        world.runtime.exit(database)
        world.run(60 * SECOND)
        begun: list[str] = []
        world.tape.watch = lambda step: begun.append(step.id) if "-api-" not in step.id else None
        changed = UNRELATED[commit](first)
        kept = {spec.name for spec in changed.specs}
        world.push(replace(changed, specs=(*changed.specs, *[spec for spec in first.specs if spec.name not in kept])))
        world.run(300 * SECOND)
        assert [step for step in begun if "/api" not in step and "api." not in step and ":8080" not in step] == []
        assert not world.containers()[database].up, "a suspended container is not started by a commit"
    finally:
        world.close()
