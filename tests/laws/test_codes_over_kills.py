"""A state that is not converged stays that over kill -9: no exit code becomes 0 because the next process has forgotten something.

Before the kill, at each second after it and in the end, the code of the stored decision is compared with what the world shows.
"""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.limits import Held, Window
from manifests.values.rollouts import Rollout, Strategy
from reconciler.exits import Exit
from reconciler.shell.report.stored_exit import judge
from tests.laws.helpers import LOOSE, QUICK, WEB
from tests.sim.manifest import NODE, Shop, Spec
from tests.sim.world import World

HOUR = 3_600 * SECOND
SPEC = Spec(backoff=QUICK, drain=600 * SECOND)


def code(world: World) -> Exit:
    """The code that `reconcile status --exit-code` has now, with a running process."""
    return judge(json.loads(world.memory.decision), world.clock.now().wall, live=True, max_age=HOUR)[0]


def draining(world: World) -> None:
    """The exit of a replica that failed its liveness probe."""
    world.apps.sick.add(world.generation(WEB.format(0)))


def verifying(world: World) -> None:
    """A new revision that does not become ready before its activation."""
    world.apps.mute |= {f"shop-web-{Spec(image='v2').revision[:8]}-{ordinal}" for ordinal in range(3)}
    world.push(Shop((staged("v2"),), guard=LOOSE))


def on_trial(world: World) -> None:
    """A new revision that has the traffic on trial, and a replica that is not ready."""
    world.push(Shop((staged("v2"),), guard=LOOSE))
    world.run(300 * SECOND)
    world.apps.mute.add(f"shop-web-{Spec(image='v2').revision[:8]}-0")


def windowed(world: World) -> None:
    """A restart that a window of the Guard holds."""
    minute = world.clock.now().wall // (60 * SECOND) % 60
    window = Window("freeze", frozenset({Held.HEAL}), f"{minute} * * * *", 1800 * SECOND, "UTC")
    world.push(Shop((SPEC,), guard=replace(LOOSE, windows=(window,))))
    world.run(5 * SECOND)
    draining(world)


def suspended(world: World) -> None:
    """A start that a suspension holds."""
    world.memory.say("suspend", "workload/web")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(1))


def healing_suspended(world: World) -> None:
    """The same for healing alone."""
    world.memory.say("suspend", "healing:workload/web")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(1))


def unready(world: World) -> None:
    """A replica that is not ready."""
    world.apps.mute.add(WEB.format(2))


def failed(world: World) -> None:
    """A replica that restarts do not help."""
    world.apps.cursed.add(WEB.format(2))
    world.run(3 * HOUR)


def crashing(world: World) -> None:
    """A replica that waits for its next start."""
    world.apps.mute.add(WEB.format(1))
    world.apps.crash_after[WEB.format(1)] = 3 * SECOND
    world.run(120 * SECOND)


def unreadable(world: World) -> None:
    """A node that cannot be read."""
    world.outside.break_reads(NODE)


def staged(image: str) -> Spec:
    times = Rollout(delay=10 * SECOND, bake=600 * SECOND)
    return replace(SPEC, image=image, strategy=Strategy.ACTIVATE, rollout=times)


STATES = [draining, verifying, on_trial, windowed, suspended, healing_suspended, unready, failed, crashing, unreadable]


@pytest.mark.parametrize("state", STATES, ids=[state.__name__ for state in STATES])
@pytest.mark.parametrize("down", [0, 20 * SECOND], ids=["at once", "later"])
def test_no_state_is_converged_because_a_process_forgot_it(state: Callable[[World], None], down):
    world = World(Shop((staged("v1") if state in (verifying, on_trial) else SPEC,), guard=LOOSE))
    try:
        world.run(900 * SECOND)
        assert code(world) is Exit.OK
        state(world)
        world.run(60 * SECOND)
        before = code(world)
        assert before is not Exit.OK
        world.kill()
        world.clock.advance(down)
        assert code(world) is not Exit.OK
        after = []
        for _ in range(25):
            world.run(SECOND)
            after.append(code(world))
        assert Exit.OK not in after, after
        assert after[-1] is before
    finally:
        world.close()
