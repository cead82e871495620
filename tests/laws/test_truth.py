"""What is reported is true: random incidents in simulated worlds, and every event, hold and status line compared with the world."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Rollout, Strategy
from providers.facts import ContainerState, RecordKey
from providers.testing.faults import Fault
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from tests.laws.examples import stride
from tests.laws.helpers import LOOSE, QUICK
from tests.laws.truth import Truth
from tests.sim.manifest import NAMES, NODE, POOLS, ZONE, Shop, Spec
from tests.sim.world import World

SEEDS = range(0, 48, stride(search=1, ci=1))
INCIDENTS = 12

SHORT = Rollout(
    delay=20 * SECOND,
    precheck=10 * SECOND,
    pending_grace=60 * SECOND,
    bake=60 * SECOND,
    window=90 * SECOND,
    progress_deadline=120 * SECOND,
    steps=(CanaryStep(2_500, 20 * SECOND), CanaryStep(5_000, 20 * SECOND)),
)


class Story:
    """Random incidents in one world, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        spec = Spec(
            replicas=choose([1, 2, 3, 4, 5]),
            pools=choose([("web",), ("web",), ("web", "web-2"), ()]),
            readiness=choose([True, True, True, False]),
            startup=choose([False, False, True]),
            min_ready=choose([0, 0, 10 * SECOND]),
            max_unavailable=choose([1, 1, 2]),
            limit=choose([1, 3, 5]),
            window=choose([120, 300]) * SECOND,
            ttl=choose([5, 30]),
            drain=choose([2, 10]) * SECOND,
            strategy=choose(
                [Strategy.ROLLING, Strategy.ROLLING, Strategy.RECREATE, Strategy.ACTIVATE, Strategy.CANARY]
            ),
            rollout=SHORT,
            backoff=QUICK if choose([True, False]) else Spec().backoff,
        )
        self.world = World(Shop((spec,), guard=choose([LOOSE, Shop().guard]), look_pools=choose([1, 15]) * SECOND))
        self.truth = Truth(self.world)
        self.incidents: list[str] = []

    @property
    def spec(self) -> Spec:
        return self.world.shop.specs[0]

    def pick(self) -> str | None:
        names = sorted(name for name, item in self.world.containers().items() if item.mark is not None)
        return self.random.choice(names) if names else None

    def play(self) -> None:
        """The whole story: incidents, and the status whenever nothing has happened for a while."""
        self.truth.run(60)
        for number in range(INCIDENTS):
            name, incident = self.random.choice(INCIDENTS_BY_NAME)
            self.incidents.append(f"{self.truth.wall // SECOND}: {name}")
            incident(self)
            self.truth.incident(foreign=name in {"another_writer", "record_removed"})
            self.truth.run(self.random.choice([1, 3, 8, 20, 45]))
            if number % 3 == 2:
                self.truth.run(self.random.choice([35, 90]))
                self.truth.status()
        self.heal()
        self.truth.incident()
        self.truth.run(300)
        self.truth.status()
        self.truth.kept_promises()

    # --- incidents --------------------------------------------------------------------------------------------------

    def unready(self) -> None:
        if name := self.pick():
            self.world.apps.unready.add(self.world.generation(name))

    def most_unready(self) -> None:
        for name in self.world.running()[1:]:
            self.world.apps.unready.add(self.world.generation(name))

    def sick(self) -> None:
        if name := self.pick():
            self.world.apps.sick.add(self.world.generation(name))

    def all_sick(self) -> None:
        for name in self.world.running():
            self.world.apps.sick.add(self.world.generation(name))

    def cursed(self) -> None:
        if name := self.pick():
            self.world.apps.cursed.add(name)

    def heal(self) -> None:
        apps = self.world.apps
        apps.unready.clear()
        apps.sick.clear()
        apps.cursed.clear()
        self.world.faults.clear()
        for provider in (NODE, POOLS, NAMES):
            self.world.outside.mend_reads(provider)

    def crash(self) -> None:
        name = self.pick()
        if name and self.world.containers()[name].up:
            self.world.runtime.exit(name)

    def pause(self) -> None:
        name = self.pick()
        if name and self.world.containers()[name].state is ContainerState.RUNNING:
            self.world.runtime.pause(name)
        elif name and self.world.containers()[name].state is ContainerState.PAUSED:
            self.world.runtime.unpause(name)

    def another_writer(self) -> None:
        members = [member for of in self.world.outside.pools.get(POOLS, {}).values() for member in of.values()]
        if members:
            self.random.choice(members).weight = self.random.choice([0, 7, 100])

    def record_removed(self) -> None:
        self.world.zones.plant(ZONE, RecordKey(f"web.{ZONE}", "A"), None)

    def new_template(self) -> None:
        self.push(image=self.random.choice(["v1", "v2", "v3"]))

    def bad_template(self) -> None:
        image = f"bad-{self.random.randrange(3)}"
        revision = replace(self.spec, image=image).revision[:8]
        self.world.apps.mute |= {f"shop-web-{revision}-{n}" for n in range(6)}
        self.push(image=image)

    def new_scale(self) -> None:
        self.push(replicas=self.random.choice([1, 2, 4]))

    def push(self, **fields: object) -> None:
        self.world.push(replace(self.world.shop, specs=(replace(self.spec, **fields),)))  # type: ignore[arg-type]

    def suspended_by_manifest(self) -> None:
        self.push(suspend=not self.spec.suspend)

    def suspend(self) -> None:
        key = self.random.choice(["workload/web", "workload/web/0", "service/web", "dnspolicy/web", "*"])
        ends = self.random.choice([0, 30 * SECOND])
        self.world.memory.say("suspend", key, until_wall=self.truth.wall + ends if ends else 0)

    def resume(self) -> None:
        for key in sorted(self.world.memory.ledger().suspensions):
            self.world.memory.say("resume", key)

    def drain(self) -> None:
        self.world.memory.say("drain", f"workload/web/{self.random.randrange(self.spec.replicas)}")

    def force(self) -> None:
        value = self.random.choice(["up", "down"])
        ordinal = self.random.randrange(self.spec.replicas)
        self.world.memory.say("force", f"workload/web/{ordinal}", self.truth.wall + 40 * SECOND, value)

    def release(self) -> None:
        for key in sorted(self.world.memory.ledger().overrides):
            self.world.memory.say("release", key)

    def request(self) -> None:
        name = f"request-{self.random.randrange(10**6)}"
        self.world.memory.request(name, Request("workload/web", instant(self.world.clock.now()), "ada", "test"))

    def calls_fail(self) -> None:
        provider = self.random.choice([NODE, POOLS, NAMES])
        kinds = [Fault.UNREACHABLE, Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.REJECTED]
        self.world.fail_next(provider, *[self.random.choice(kinds) for _ in range(self.random.choice([1, 3, 8]))])
        self.unready()

    def unreadable(self) -> None:
        self.world.outside.break_reads(self.random.choice([NODE, POOLS, NAMES]))

    def restart(self) -> None:
        self.world.restart()

    def kill(self) -> None:
        self.world.kill()


INCIDENTS_BY_NAME: list[tuple[str, Callable[[Story], None]]] = [
    (name, getattr(Story, name))
    for name in (
        "unready", "unready", "most_unready", "sick", "sick", "all_sick", "cursed", "heal", "heal", "crash", "pause",
        "another_writer", "record_removed", "new_template", "bad_template", "new_scale", "suspended_by_manifest", "suspend",
        "suspend", "resume", "drain", "force", "release", "request", "calls_fail", "calls_fail", "unreadable", "restart", "kill",
    )
]  # fmt: skip


@pytest.mark.parametrize("shard", range(12))
def test_every_event_hold_and_status_line_is_true(shard: int) -> None:
    compared = []
    for seed in SEEDS[shard::12]:
        story = Story(seed)
        try:
            story.play()
        finally:
            story.world.close()
        compared.append(story.truth.compared)
        assert not story.truth.lies, "\n".join([f"seed {seed}", *story.incidents, *story.truth.lies[:10]])
    assert min(compared) >= 10, "a story that compares few lines proves little"
