"""While a call takes long, everything else goes on: manifests, orders, verdicts, and providers with new settings."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from manifests.values.desired import SECOND, Provider, Role
from providers.actions import Action, CreateContainer, StopContainer
from reconciler.core.model.reasons import Rule
from reconciler.core.model.step import Step
from reconciler.shell.providers import Providers
from tests.inline_runner import InlineRunner
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import NODE, Shop, Spec, shop
from tests.sim.world import World

T = TypeVar("T")
MINUTE = 60 * SECOND


class SlowCalls(InlineRunner):
    """Calls in place, but those of one kind of action take until the test lets them go on."""

    def __init__(self, world: World, kind: type[Action]) -> None:
        self.world, self.kind, self.held, self.go_on = world, kind, 0, asyncio.Event()
        self._next = False
        world.tape.watch = self._begins
        world.life.loop.applier.runner = self

    def _begins(self, step: Step) -> None:
        self._next = isinstance(step.action, self.kind)

    async def run(self, call: Callable[[], T]) -> T:
        slow, self._next = self._next, False
        if slow:
            self.held += 1
            self.world.clock.base_tasks += 10  # calls that take time
            await self.go_on.wait()
            self.world.clock.base_tasks -= 10
        return await super().run(call)

    def until_held(self) -> None:
        while not self.held:
            self.world.run(SECOND)


def other_settings(world: World, wanted: Shop) -> None:
    """A new revision in which the settings of the runtime are others too."""
    life = world.life
    life.loop.parts = replace(life.loop.parts, providers_for=lambda desired: life._providers(plan=False))
    desired = wanted.desired()
    changed = Provider(f"provider/{NODE}", NODE, "memory", Role.RUNTIME, {"other": "setting"})
    world.shop, world.source.next = wanted, replace(desired, providers=(*desired.providers, changed))


@pytest.mark.parametrize("kind", [CreateContainer, StopContainer])
def test_everything_else_goes_on_during_a_long_call(kind, worlds):
    world = ready(worlds(Shop((Spec(drain=SECOND, ttl=1), Spec(name="api", pools=("api",), publish=None)))))
    slow = SlowCalls(world, kind)
    world.push(Shop((Spec(image="v2", drain=SECOND, ttl=1), Spec(name="api", pools=("api",), publish=None))))
    slow.until_held()
    loop = world.life.loop
    wanted = Shop((Spec(image="v2", drain=SECOND, ttl=1), Spec(name="api", pools=("api",), publish=None, replicas=4)))
    other_settings(world, wanted)
    world.run(30 * SECOND)
    assert loop.desired.workloads[-1].replicas == 4 or loop.desired.workloads[0].replicas == 4
    sick = sorted(world.weights("api"))[0]
    world.apps.mute.add(sick)
    world.run(15 * SECOND)
    assert world.weights("api")[sick] == 0
    world.memory.say("suspend", "workload/web")
    world.run(SECOND)
    assert not world.memory.inbox
    assert slow.held, "the call still takes"
    held = len(world.traffic.writes)
    slow.go_on.set()
    world.run(30 * SECOND)
    later = {type(write.action) for write in world.traffic.writes[held:] if "-web-" in str(write.action)}
    assert later <= {kind}, "the order came before the rest"
    world.apps.mute.clear()
    world.memory.say("resume", "workload/web")
    world.run(10 * MINUTE)
    assert not world.tape.last.steps
    assert not [hold for hold in world.tape.last.holds if hold.rule is not Rule.BUSY]
    assert sorted(world.weights().values()) == [100] * 3
    assert all("77e94671" not in name for name in world.running() if "-web-" in name)
    assert not loop._retired


def test_providers_that_cannot_be_made_leave_the_manifests_in_force(worlds):
    world = ready(worlds(shop()))
    life = world.life

    def refuse(desired: object) -> Providers:
        raise OSError(24, "Too many open files")

    other_settings(world, shop(replicas=2))
    life.loop.parts = replace(life.loop.parts, providers_for=refuse)
    world.run(MINUTE)
    assert len(world.weights()) == 3
    hold = next(hold for hold in world.tape.last.holds if hold.rule is Rule.SOURCE_UNREADABLE)
    assert "Too many open files" in hold.message
    life.loop.parts = replace(life.loop.parts, providers_for=lambda desired: life._providers(plan=False))
    world.run(2 * MINUTE)
    assert sorted(world.weights()) == [WEB.format(0), WEB.format(1)]
    assert not world.tape.last.holds
