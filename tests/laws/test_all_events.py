"""All events at once: in this world any event may happen at any time, and every law is checked at every write.

`HYPOTHESIS_PROFILE=search` searches for new failures for some minutes; the default profile repeats the same examples.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from manifests.values.desired import SECOND
from providers.facts import ProbeValue, RecordKey, RecordSet
from providers.testing.faults import Fault
from tests.laws.examples import examples
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import INSTANCE, NAMES, NODE, POOLS, ZONE, Shop, Spec
from tests.sim.world import World

REPLICA = st.integers(0, 9)
FAULTS = st.sampled_from([Fault.UNREACHABLE, Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.REJECTED])
PROVIDERS = st.sampled_from([NODE, POOLS, NAMES])


class Anything(RuleBasedStateMachine):
    """The rules are the events. After all of them the world must converge without further events."""

    world: World
    dog: Watchdog

    @initialize(
        replicas=st.integers(1, 3),
        startup=st.booleans(),
        readiness=st.booleans(),
        pools=st.sampled_from([("web",), ("web", "web-2"), ()]),
        ttl=st.sampled_from([5, 30]),
        limit=st.sampled_from([1, 3]),
        max_unavailable=st.integers(1, 2),
    )
    def begin(self, replicas, startup, readiness, pools, ttl, limit, max_unavailable):
        spec = Spec(
            replicas=replicas, startup=startup, readiness=readiness, pools=pools, ttl=ttl, limit=limit,
            max_unavailable=max_unavailable,
        )  # fmt: skip
        self.world = World(Shop((spec,)), nodes=(NODE, "node-b"))
        self.world.runtime.plant("neighbour", {})
        self.world.zones.plant(ZONE, RecordKey(f"by-hand.{ZONE}", "A"), RecordSet(60, ("192.0.2.9",)))
        self.dog = Watchdog(self.world)
        self.world.run(60 * SECOND)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self.calm()
        finally:
            self.world.close()

    def pick(self, number: int) -> str | None:
        here = self.world.outside.nodes.get(NODE, {})
        ours = sorted(name for name, item in here.items() if item.mark is not None)
        return ours[number % len(ours)] if ours else None

    def calm(self) -> None:
        """All faults end. In bounded time the world converges, and it stays converged without a write."""
        world = self.world
        world.apps.__init__()
        world.faults.clear()
        world.source.broken = ""
        world.memory.full = False
        for provider in (NODE, POOLS, NAMES):
            world.outside.mend_reads(provider)
        for name, item in world.outside.nodes.get(NODE, {}).items():
            if item.state == "paused":
                world.runtime.unpause(name)
        world.kill_in = -1
        world.run(1800 * SECOND)
        spec = world.shop.specs[0]
        wanted = [f"shop-web-{spec.revision[:8]}-{n}" for n in range(spec.replicas)]
        assert [name for name in world.running() if name != "neighbour"] == wanted, world.tape.last
        for pool in spec.pools:
            # By address: a member keeps its first name when its address goes to another container.
            members = world.outside.pools[POOLS][pool].items()
            weights = {end.address: member.weight for end, member in members if member.owner == INSTANCE}
            assert weights == {world.containers()[name].address: 100 for name in wanted}, world.tape.last
        assert set(world.published()) == {world.containers()[name].address for name in wanted}, world.tape.last
        before = world.memory.saves, len(world.traffic.writes), world.tape.decided_count
        world.run(600 * SECOND)
        assert (world.memory.saves, len(world.traffic.writes), world.tape.decided_count) == before

    # --- time and manifests -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3, 7, 20, 61]))
    def time_passes(self, seconds):
        self.world.run(seconds * SECOND)

    @rule(hours=st.sampled_from([-30, -1, 1, 30]))
    def the_clock_is_set(self, hours):
        self.world.clock.step_wall(hours * 3600 * SECOND)

    @rule(image=st.sampled_from(["v1", "v2", "v3"]))
    def a_new_template(self, image):
        self.world.push(replace(self.world.shop, specs=(replace(self.world.shop.specs[0], image=image),)))

    @rule(replicas=st.integers(1, 4))
    def a_new_scale(self, replicas):
        self.world.push(replace(self.world.shop, specs=(replace(self.world.shop.specs[0], replicas=replicas),)))

    @rule(nodes=st.sampled_from([(NODE,), ("node-b",), (NODE, "node-b")]))
    def replicas_move(self, nodes):
        self.world.push(replace(self.world.shop, specs=(replace(self.world.shop.specs[0], nodes=nodes),)))

    @rule(broken=st.booleans())
    def the_source_breaks_or_heals(self, broken):
        self.world.source.broken = "web.yaml:3:1: no such field" if broken else ""

    @rule()
    def the_record_is_removed(self):
        self.world.zones.plant(ZONE, RecordKey(f"web.{ZONE}", "A"), None)

    # --- containers ---------------------------------------------------------------------------------------------

    @rule(number=REPLICA)
    def a_crash(self, number):
        name = self.pick(number)
        if name and self.world.outside.nodes[NODE][name].up:
            self.world.runtime.exit(name)

    @rule(number=REPLICA)
    def a_container_is_removed(self, number):
        name = self.pick(number)
        if name:
            self.world.runtime.vanish(name)

    @rule(number=REPLICA)
    def a_container_is_started_by_hand(self, number):
        name = self.pick(number)
        if name:
            self.world.start_by_hand(name)

    @rule(number=REPLICA)
    def a_container_is_paused_or_unpaused(self, number):
        name = self.pick(number)
        state = self.world.outside.nodes[NODE][name].state if name else ""
        if state == "running":
            self.world.runtime.pause(name)
        elif state == "paused":
            self.world.runtime.unpause(name)

    @rule(number=REPLICA)
    def a_container_is_disconnected(self, number):
        name = self.pick(number)
        if name:
            self.world.runtime.disconnect(name)

    @rule(number=REPLICA)
    def a_container_fails_once(self, number):
        name = self.pick(number)
        if name:
            self.world.apps.sick.add(self.world.outside.nodes[NODE][name].generation)

    @rule(number=REPLICA)
    def a_container_is_not_ready(self, number):
        name = self.pick(number)
        if name:
            self.world.apps.unready.add(self.world.outside.nodes[NODE][name].generation)

    @rule()
    def all_recover(self):
        self.world.apps.sick.clear()
        self.world.apps.unready.clear()
        self.world.apps.lies.clear()
        self.world.apps.flaps.clear()

    @rule(probe=st.sampled_from(["liveness", "readiness", "startup"]), value=st.sampled_from(list(ProbeValue)))
    def every_probe_lies(self, probe, value):
        self.world.apps.lies["*", probe] = value

    @rule(number=REPLICA, probe=st.sampled_from(["liveness", "readiness"]), period=st.sampled_from([7, 11, 23]))
    def a_container_flaps(self, number, probe, period):
        name = self.pick(number)
        if name:
            self.world.apps.flaps[name, probe] = period * SECOND

    @rule(number=REPLICA, delay=st.sampled_from([0, 20, 90]))
    def a_container_starts_slowly(self, number, delay):
        name = self.pick(number)
        if name:
            self.world.apps.slow[name] = delay * SECOND

    # --- providers ----------------------------------------------------------------------------------------------

    @rule(provider=PROVIDERS, faults=st.lists(FAULTS, min_size=1, max_size=3))
    def calls_fail(self, provider, faults):
        self.world.fail_next(provider, *faults)

    @rule(provider=PROVIDERS)
    def a_provider_becomes_unreachable(self, provider):
        self.world.outside.break_reads(provider)

    @rule(provider=PROVIDERS)
    def a_provider_becomes_reachable(self, provider):
        self.world.outside.mend_reads(provider)

    # --- the process --------------------------------------------------------------------------------------------

    @rule()
    def a_clean_restart(self):
        self.world.restart()

    @rule(points=st.integers(0, 12), cut=st.booleans())
    def a_kill_or_a_power_cut(self, points, cut):
        self.world.kill_in, self.world.cut = points, cut

    @rule()
    def the_host_reboots(self):
        self.world.reboot_host()
        self.dog.replant()

    @rule()
    def the_probe_engine_falls_silent(self):
        if self.world.life is not None:
            self.world.life.prober.why_silent = "no results"

    @invariant()
    def health_restarts_stay_within_the_budget(self):
        if not hasattr(self, "world"):
            return
        self.world.run(2 * SECOND)
        (spec,) = self.world.shop.specs
        grants = self.world.memory.ledger().grants.values()
        healed = [grant for grant in grants if grant.cause.value in {"LivenessFailed", "StartupFailed"}]
        assert len(healed) <= spec.max_unavailable


TestAnything = Anything.TestCase
TestAnything.settings = examples(8, steps=30)
