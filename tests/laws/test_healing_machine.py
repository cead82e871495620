"""Healing under all events at once: budget, rate limits, canary, clock steps, lost ledgers and operator commands, in a world of several workloads.

`HYPOTHESIS_PROFILE=search` searches for new failures for some minutes; without it the same few examples are repeated.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.limits import Rate, RestartLimits
from providers.actions import StopContainer
from providers.facts import ContainerState, ProbeValue
from providers.testing.faults import Fault
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from tests.laws.examples import examples
from tests.laws.helpers import QUICK, within
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import NODE, POOLS, Shop, Spec
from tests.sim.world import World

REPLICA = st.integers(0, 9)


class Healing(RuleBasedStateMachine):
    """The rules are the events. The checks hold at every single write, and the world converges in the end."""

    world: World

    @initialize(
        replicas=st.integers(1, 5),
        others=st.integers(0, 2),
        budget=st.integers(0, 3),
        burst=st.integers(1, 3),
        limit=st.integers(1, 4),
        min_ready=st.sampled_from([0, 10]),
        outside=st.sampled_from([{}, {"publish": None}, {"publish": None, "pools": ()}]),
        readiness=st.booleans(),
    )
    def begin(self, replicas, others, budget, burst, limit, min_ready, outside, readiness):
        spec = Spec(
            replicas=replicas, max_unavailable=budget, backoff=QUICK, drain=2 * SECOND, ttl=2, limit=limit,
            min_ready=min_ready * SECOND, readiness=readiness, **outside,
        )  # fmt: skip
        specs = (spec, *(Spec(name=f"o{n}", replicas=1, pools=(), publish=None) for n in range(others)))
        self.rate, self.node = Rate(2, burst), Rate(6, 3)
        limits = RestartLimits(workload=self.rate, node=self.node, in_flight=2)
        self.budget, self.spec = budget, spec
        self.world = World(Shop(specs, guard=Guard(mass_change=MassChange(100, 50), restarts=limits)))
        self.dog = Watchdog(self.world)
        self.stopped: dict[str, str] = {}
        self.moves = 0

        self.world.checks.append(self.check)
        self.world.run(60 * SECOND)

    def check(self, action):
        """Own stops never exceed the budget, and the rate limits hold in every span."""
        if isinstance(action, StopContainer) and action.name.startswith("shop-web-"):
            item = self.world.containers()[action.name]
            if item.state is not ContainerState.RUNNING:
                self.stopped[action.name] = item.id
        down = {
            name
            for name, container_id in self.stopped.items()
            if (item := self.world.containers().get(name)) is not None
            and item.id == container_id
            and item.state is ContainerState.EXITED
        }
        assert len(down) <= max(1, self.budget), f"stopped by the program: {sorted(down)}"
        mine = [at for at, replica, _ in self.dog.restarts if replica.startswith("workload/web/")]
        within(self.rate, mine)
        within(self.node, [at for at, _, _ in self.dog.restarts])

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        try:
            world.apps.__init__()
            world.faults.clear()
            world.outside.mend_reads(NODE)
            world.outside.mend_reads(POOLS)
            for name, item in world.containers().items():
                if item.state is ContainerState.PAUSED:
                    world.runtime.unpause(name)
            for key in ("*", "workload/web", "workload/web/0"):
                world.memory.say("resume", key)
            world.run(3600 * SECOND)
            spec = world.shop.specs[0]
            wanted = {
                f"shop-{spec.name}-{spec.revision[:8]}-{n}" for spec in world.shop.specs for n in range(spec.replicas)
            }
            assert set(world.running()) == wanted, world.tape.last
            weights = {name: 100 for name in wanted if name.startswith("shop-web-")} if spec.pools else {}
            assert world.weights() == weights, world.tape.last
            ledger = world.memory.ledger()
            assert not ledger.grants, ledger.grants
            assert not world.tape.last.holds, world.tape.last.holds
            assert all(request.finished is not None for request in ledger.requests.values()), ledger.requests
        finally:
            world.close()

    def pick(self, number: int) -> str | None:
        ours = sorted(name for name, item in self.world.containers().items() if item.mark is not None)
        return ours[number % len(ours)] if ours else None

    @rule(seconds=st.sampled_from([1, 3, 11, 40, 130, 400]))
    def time_passes(self, seconds):
        self.world.run(seconds * SECOND)

    @rule(hours=st.sampled_from([-30, -1, 1, 30]), seconds=st.sampled_from([0, 5]))
    def the_clock_is_set(self, hours, seconds):
        self.world.clock.step_wall(hours * 3600 * SECOND)
        self.world.run(seconds * SECOND)

    @rule(numbers=st.sets(REPLICA, min_size=1))
    def some_fail_once(self, numbers):
        for number in numbers:
            if name := self.pick(number):
                self.world.apps.sick.add(self.world.generation(name))
        self.world.run(SECOND)

    @rule(number=REPLICA)
    def one_always_fails(self, number):
        if name := self.pick(number):
            self.world.apps.cursed.add(name)

    @rule(number=REPLICA)
    def one_is_not_ready(self, number):
        if name := self.pick(number):
            self.world.apps.unready.add(self.world.generation(name))

    @rule(
        probe=st.sampled_from(["liveness", "readiness"]), value=st.sampled_from([ProbeValue.FAIL, ProbeValue.UNKNOWN])
    )
    def every_probe_lies(self, probe, value):
        self.world.apps.lies["*", probe] = value

    @rule(number=REPLICA, probe=st.sampled_from(["liveness", "readiness"]), period=st.sampled_from([7, 11, 23]))
    def one_flaps(self, number, probe, period):
        if name := self.pick(number):
            self.world.apps.flaps[name, probe] = period * SECOND

    @rule()
    def all_recover(self):
        self.world.apps.__init__()

    @rule(number=REPLICA)
    def one_crashes(self, number):
        name = self.pick(number)
        if name and self.world.containers()[name].up:
            self.world.runtime.exit(name)
            self.stopped.pop(name, None)

    @rule(number=REPLICA)
    def one_is_paused_or_unpaused(self, number):
        name = self.pick(number)
        state = self.world.containers()[name].state if name else None
        if state is ContainerState.RUNNING:
            self.world.runtime.pause(name)
        elif state is ContainerState.PAUSED:
            self.world.runtime.unpause(name)

    @rule(image=st.sampled_from(["v1", "v2"]))
    def a_new_template(self, image):
        first, *others = self.world.shop.specs
        self.world.push(replace(self.world.shop, specs=(replace(first, image=image), *others)))

    @rule(number=st.integers(0, 5), ordered=st.booleans())
    def a_restart_is_requested(self, number, ordered):
        obj = "workload/web" if number == 5 else f"workload/web/{number}"
        count = len(self.world.memory.ledger().requests) + self.world.memory.commands_made
        request = Request(obj, instant(self.world.clock.now()), "ada", "", ordered=ordered)
        self.world.memory.request(f"r{count}", request)

    @rule(verb=st.sampled_from(["suspend", "resume"]), key=st.sampled_from(["*", "workload/web", "workload/web/0"]))
    def healing_is_suspended_or_resumed(self, verb, key):
        self.world.memory.say(verb, key)

    @rule(provider=st.sampled_from([NODE, POOLS]))
    def a_provider_becomes_unreachable(self, provider):
        self.world.outside.break_reads(provider)

    @rule(provider=st.sampled_from([NODE, POOLS]))
    def a_provider_becomes_reachable(self, provider):
        self.world.outside.mend_reads(provider)

    @rule(
        faults=st.lists(
            st.sampled_from([Fault.UNREACHABLE, Fault.LOST_REQUEST, Fault.LOST_REPLY]), min_size=1, max_size=3
        )
    )
    def calls_fail(self, faults):
        self.world.fail_next(NODE, *faults)

    @rule(points=st.integers(0, 12), cut=st.booleans())
    def a_kill_or_a_power_cut(self, points, cut):
        self.world.kill_in, self.world.cut = points, cut

    @rule()
    def the_host_reboots(self):
        self.world.reboot_host()
        self.stopped.clear()
        self.dog.replant()

    @rule(days=st.sampled_from([1, 30, 400]), hours=st.sampled_from([-30, -1, 0, 0]))
    def another_host_takes_over(self, days, hours):
        """With its own boot id and uptime. A wall clock that is ahead is time that has passed, so only others are tried."""
        self.moves += 1
        steady = self.world.clock.now().steady % (3600 * SECOND) + (self.moves * 500 + days) * 86_400 * SECOND
        self.world.move_to_host(f"machine {self.moves}", steady, hours * 3600 * SECOND)

    @rule()
    def the_ledger_is_lost(self):
        self.world.kill()
        self.world.memory.rows.clear()
        self.world.memory.clock = None
        self.dog.restarts.clear()


TestHealing = Healing.TestCase
TestHealing.settings = examples(6, steps=12)
