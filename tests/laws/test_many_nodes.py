"""Nodes that fall silent, answer slowly, reboot and return with old containers, at random, in worlds of 2, 4 and 50 nodes.

The checks hold at every write, and after all faults the world converges. `HYPOTHESIS_PROFILE=search` searches for long.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from manifests.values.desired import SECOND
from manifests.values.rollouts import Strategy
from providers.facts import ProbeValue
from tests.laws.examples import examples
from tests.laws.helpers import LOOSE, MINUTE
from tests.laws.many_nodes import REACH, quick, used
from tests.laws.node_watch import NodeWatch, converged
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop, Spec, some_nodes
from tests.sim.world import World

NUMBER = st.integers(0, 49)


class Nodes(RuleBasedStateMachine):
    """The rules are what happens to nodes, containers, manifests and the process; `count` nodes."""

    count = 2
    rest = 40
    """Minutes after which the world has converged."""

    world: World

    @initialize(
        strategy=st.sampled_from(list(Strategy)),
        budget=st.integers(1, 3),
        policy=st.booleans(),
        readiness=st.booleans(),
    )
    def begin(self, strategy, budget, policy, readiness):
        nodes = some_nodes(self.count)
        restart = "unless-stopped" if policy else ""
        web = quick(self.count, strategy=strategy, max_unavailable=budget, readiness=readiness, restart=restart)
        data = quick(
            self.count, name="data", replicas=1, max_unavailable=1, volume="data", pools=("data",), restart=restart
        )
        self.world = World(Shop((web, data), guard=LOOSE), nodes)
        for node, runtime in self.world.runtimes.items():
            runtime.in_place = policy
            runtime.plant(f"neighbour-{node}", {})
        self.dog = Watchdog(self.world)
        NodeWatch(self.world)
        self.world.run(90 * SECOND)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        try:
            for node in world.hosts.silent_since.copy():
                world.hosts.start_engine(node)
            world.hosts.end_all()
            world.apps.__init__()
            world.faults.clear()
            world.kill_in = -1
            self.dog.replant()
            world.run(self.rest * MINUTE)
            converged(world)
            before = world.memory.saves, len(world.traffic.writes)
            world.run(10 * MINUTE)
            assert (world.memory.saves, len(world.traffic.writes)) == before
        finally:
            world.close()

    # --- what is picked ---------------------------------------------------------------------------------------

    def node(self, number: int) -> str:
        """One of the nodes that have replicas, or any where none has."""
        nodes = [node for node in used(self.world) if len(self.world.outside.nodes[node]) > 1] or self.world.nodes
        return nodes[number % len(nodes)]

    def container(self, number: int) -> tuple[str, str] | None:
        """Node and name of one container of ours."""
        ours = [(node, item.name) for node, item in self.world.placed() if item.mark is not None]
        return ours[number % len(ours)] if ours else None

    def declare(self, name: str, **fields: object) -> None:
        world = self.world
        specs: tuple[Spec, ...] = tuple(replace(s, **fields) if s.name == name else s for s in world.shop.specs)
        world.push(replace(world.shop, specs=specs))

    # --- nodes ------------------------------------------------------------------------------------------------

    @rule(numbers=st.sets(NUMBER, min_size=1, max_size=3), probes=st.sampled_from(REACH), lost=st.integers(0, 2))
    def nodes_fall_silent(self, numbers, probes, lost):
        for number in numbers:
            self.world.hosts.silence(self.node(number), probes, lost)

    @rule(number=NUMBER, live_restore=st.booleans())
    def an_engine_is_killed(self, number, live_restore):
        self.world.hosts.end_engine(self.node(number), live_restore)
        self.dog.replant()

    @rule(number=NUMBER)
    def a_node_returns(self, number):
        silent = sorted(self.world.hosts.silent_since)
        if silent:
            self.world.hosts.start_engine(silent[number % len(silent)])

    @rule(number=NUMBER, seconds=st.sampled_from([0, 5, 20, 40]), old=st.booleans())
    def a_node_is_slow_or_quick(self, number, seconds, old):
        self.world.hosts.slow(self.node(number), seconds * SECOND, old)

    @rule(number=NUMBER, revive=st.booleans())
    def a_host_reboots(self, number, revive):
        self.world.hosts.reboot(self.node(number), revive)
        self.dog.replant()

    @rule(number=NUMBER)
    def a_host_is_copied(self, number):
        self.world.hosts.keep(self.node(number))

    @rule(number=NUMBER, revive=st.booleans())
    def a_host_starts_from_its_copy(self, number, revive):
        self.world.hosts.restore(self.node(number), revive)
        self.dog.replant()

    # --- containers -------------------------------------------------------------------------------------------

    @rule(number=NUMBER)
    def one_crashes(self, number):
        if picked := self.container(number):
            node, name = picked
            if self.world.outside.nodes[node][name].up:
                self.world.runtimes[node].exit(name)

    @rule(number=NUMBER, silent=st.booleans())
    def one_is_removed(self, number, silent):
        if picked := self.container(number):
            node, name = picked
            if silent or not self.world.hosts.is_silent(node):
                self.world.runtimes[node].vanish(name)

    @rule(number=NUMBER, probe=st.sampled_from(["sick", "unready"]))
    def one_fails_once(self, number, probe):
        if picked := self.container(number):
            node, name = picked
            getattr(self.world.apps, probe).add(self.world.outside.nodes[node][name].generation)

    @rule()
    def all_recover(self):
        self.world.apps.sick.clear()
        self.world.apps.unready.clear()
        self.world.apps.lies.clear()

    @rule(value=st.sampled_from([ProbeValue.FAIL, ProbeValue.UNKNOWN]))
    def every_readiness_probe_says(self, value):
        self.world.apps.lies["*", "readiness"] = value

    # --- manifests --------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(["web", "data"]), image=st.sampled_from(["v1", "v2", "v3"]))
    def a_new_template(self, name, image):
        self.declare(name, image=image)

    @rule(fewer=st.integers(0, 2))
    def a_new_scale(self, fewer):
        self.declare("web", replicas=max(1, quick(self.count).replicas - fewer))

    @rule(number=NUMBER)
    def a_node_is_taken_off_the_list_of_web(self, number):
        out = self.node(number)
        self.declare("web", nodes=tuple(node for node in self.world.nodes if node != out))

    @rule()
    def every_node_is_on_the_list_of_web(self):
        self.declare("web", nodes=self.world.nodes)

    @rule(number=NUMBER)
    def data_moves(self, number):
        self.declare("data", nodes=(self.world.nodes[number % self.count],))

    # --- time and the process ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 7, 20, 61, 200]))
    def time_passes(self, seconds):
        self.world.run(seconds * SECOND)

    @rule(points=st.integers(0, 12), cut=st.booleans())
    def the_process_is_killed(self, points, cut):
        self.world.kill_in, self.world.cut = points, cut
        self.world.run(5 * SECOND)

    @rule()
    def the_process_restarts(self):
        self.world.restart()


class TwoNodes(Nodes):
    count = 2


class FourNodes(Nodes):
    count = 4


class FiftyNodes(Nodes):
    count = 50
    rest = 15


TestTwoNodes = TwoNodes.TestCase
TestTwoNodes.settings = examples(20, steps=12)
TestFourNodes = FourNodes.TestCase
TestFourNodes.settings = examples(20, steps=12)
TestFiftyNodes = FiftyNodes.TestCase
TestFiftyNodes.settings = examples(5, steps=5)
