"""One of four nodes does not answer: its replicas are unknown, and everything else goes on within the budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from manifests.values.dns import Publish
from manifests.values.rollouts import STAGED, CanaryStep, Rollout, Strategy
from providers.actions import Action, SetWeight
from providers.facts import ContainerState
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import Standing
from reconciler.core.status.objects import Condition
from tests.laws.examples import examples
from tests.laws.helpers import LOOSE, QUICK
from tests.sim.manifest import Shop, Spec
from tests.sim.world import World

NODES = ("node-a", "node-b", "node-c", "node-d")
SILENT = "node-d"
V1, V2 = (Spec(image=image).revision[:8] for image in ("v1", "v2"))
TIMES = Rollout(
    pending_grace=120 * SECOND, bake=60 * SECOND, window=120 * SECOND, steps=(CanaryStep(2_000, 20 * SECOND),)
)


def spec(**fields) -> Spec:
    return Spec(**{"replicas": 4, "nodes": NODES, "backoff": QUICK, "rollout": TIMES, **fields})


def shop(**fields) -> Shop:
    return Shop((spec(**fields),), guard=LOOSE)


@pytest.fixture
def make(request):
    """A converged world of four nodes."""

    def made(**fields) -> World:
        world = World(shop(**fields), NODES)
        request.addfinalizer(world.close)
        world.run(180 * SECOND)
        assert len(world.running()) == 4
        assert not world.tape.last.steps
        return world

    return made


def replica(ordinal: int, revision: str = V1) -> str:
    return f"shop-web-{revision}-{ordinal}"


def on(world: World, *nodes: str) -> dict[str, ContainerState]:
    return {name: item.state for node in nodes for name, item in world.outside.nodes.get(node, {}).items()}


def fewest_running(world: World, *nodes: str) -> list[int]:
    """The number of containers that run on these nodes, after each write from now on."""
    counts: list[int] = []
    world.checks.append(
        lambda _: counts.append(sum(state is ContainerState.RUNNING for state in on(world, *nodes).values()))
    )
    return counts


def guard_silent(world: World) -> None:
    """From now on no weight of a container on a silent node is changed, and none of its addresses leaves the name."""
    silent = [item for node in world.hosts.silent_since for item in world.outside.nodes[node].values()]
    published = {item.address for item in silent} & set(world.published())

    def check(action: Action) -> None:
        if world.hosts.silent_since:
            assert not (isinstance(action, SetWeight) and action.name in {item.name for item in silent}), action
            assert published <= set(world.published())

    world.checks.append(check)


def end_silence(world: World) -> None:
    """Every node answers again."""
    for node in tuple(world.hosts.silent_since):
        world.hosts.end_silence(node)


def status(world: World):
    return world.tape.last.status.workloads[0]


# --- rollouts ---------------------------------------------------------------------------------------------------------


def test_a_rolling_rollout_goes_on_for_the_other_nodes(make):
    world = make()
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    guard_silent(world)
    running = fewest_running(world, *NODES[:3])
    world.push(shop(image="v2"))
    world.run(600 * SECOND)
    assert set(on(world, *NODES[:3])) == {replica(ordinal, V2) for ordinal in range(3)}
    assert set(on(world, SILENT)) == {replica(3)}
    assert min(running) >= 3
    row = world.memory.ledger().rollouts["workload/web"]
    assert row.of(spec(image="v2").revision).standing is Standing.SCHEDULED
    end_silence(world)
    world.run(600 * SECOND)
    assert set(on(world, *NODES)) == {replica(ordinal, V2) for ordinal in range(4)}
    assert world.memory.ledger().rollouts["workload/web"].active == spec(image="v2").revision
    assert len(world.published()) == 4
    assert status(world).condition is Condition.READY


def test_a_budget_without_room_for_the_unknown_one_holds_the_rollout(make):
    world = make(max_unavailable=0)
    world.hosts.silence(SILENT)
    running = fewest_running(world, *NODES[:3])
    world.push(shop(image="v2", max_unavailable=0))
    world.run(300 * SECOND)
    assert {replica(ordinal) for ordinal in range(3)} <= set(on(world, *NODES[:3]))
    assert min(running) >= 3
    assert any(hold.rule is Rule.BUDGET for hold in world.tape.last.holds)


@pytest.mark.parametrize(("max_unavailable", "goes_on"), [(1, False), (2, True)])
def test_recreation_counts_the_unknown_replica_as_unavailable(make, max_unavailable, goes_on):
    fields = {"strategy": Strategy.RECREATE, "max_unavailable": max_unavailable}
    world = make(**fields)
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    guard_silent(world)
    running = fewest_running(world, *NODES[:3])
    world.push(shop(image="v2", **fields))
    world.run(600 * SECOND)
    assert min(running) >= 4 - max_unavailable
    up = {name for name, state in on(world, *NODES[:3]).items() if state is ContainerState.RUNNING}
    assert up == {replica(ordinal, V2 if goes_on else V1) for ordinal in range(3)}
    end_silence(world)
    world.run(900 * SECOND)
    assert set(on(world, *NODES)) == {replica(ordinal, V2) for ordinal in range(4)}


@pytest.mark.parametrize("strategy", sorted(STAGED))
def test_the_traffic_never_moves_to_a_revision_with_unknown_replicas(make, strategy):
    world = make(strategy=strategy)
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    guard_silent(world)
    world.push(shop(image="v2", strategy=strategy))
    world.run(900 * SECOND)
    assert {replica(ordinal, V2) for ordinal in range(3)} <= set(on(world, *NODES[:3]))
    assert {name for name, weight in world.weights().items() if weight} == {replica(ordinal) for ordinal in range(4)}
    history = world.memory.ledger().rollouts["workload/web"]
    assert history.active == spec().revision
    assert history.of(spec(image="v2").revision).standing is Standing.SCHEDULED
    assert any(SILENT in wait.message for wait in world.tape.last.waits)
    end_silence(world)
    world.run(900 * SECOND)
    assert set(on(world, *NODES)) == {replica(ordinal, V2) for ordinal in range(4)}
    assert world.memory.ledger().rollouts["workload/web"].active == spec(image="v2").revision


def test_a_canary_keeps_its_share_while_one_of_its_replicas_is_unknown(make):
    steps = (CanaryStep(2_000, 120 * SECOND), CanaryStep(5_000, 60 * SECOND))
    fields = {"strategy": Strategy.CANARY, "rollout": Rollout(bake=60 * SECOND, window=120 * SECOND, steps=steps)}
    world = make(**fields)
    world.push(shop(image="v2", **fields))
    world.run(60 * SECOND)
    assert world.weights()[replica(0, V2)] > 0
    world.hosts.silence(SILENT)
    before = None
    for _ in range(10):
        world.run(60 * SECOND)
        history = world.memory.ledger().rollouts["workload/web"]
        assert history.active == spec().revision
        assert history.of(spec(image="v2").revision).step == 0
        assert before in (None, world.weights())
        before = world.weights()
    end_silence(world)
    world.run(600 * SECOND)
    assert world.memory.ledger().rollouts["workload/web"].active == spec(image="v2").revision


# --- healing ----------------------------------------------------------------------------------------------------------


def test_a_crashed_and_an_unhealthy_replica_elsewhere_heal(make):
    world = make()
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    guard_silent(world)
    world.runtimes["node-a"].exit(replica(0))
    world.run(60 * SECOND)
    assert on(world, "node-a")[replica(0)] is ContainerState.RUNNING
    before = world.generation(replica(1))
    world.apps.sick.add(before)
    world.run(240 * SECOND)
    assert world.generation(replica(1)) != before
    assert {name for name, weight in world.weights().items() if weight} == {replica(ordinal) for ordinal in range(4)}


def test_an_unready_replica_loses_its_weight_and_its_address(make):
    world = make()
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    guard_silent(world)
    world.apps.mute.add(replica(1))
    world.run(60 * SECOND)
    assert world.weights() == {replica(0): 100, replica(1): 0, replica(2): 100, replica(3): 100}
    assert world.containers()[replica(1)].address not in world.published()
    world.apps.mute.clear()
    world.run(90 * SECOND)
    assert set(world.weights().values()) == {100}
    assert len(world.published()) == 4


def test_a_replica_that_vanished_is_created_where_its_node_answers(make):
    world = make()
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    guard_silent(world)
    world.runtimes["node-b"].vanish(replica(1))
    world.run(120 * SECOND)
    assert on(world, "node-b") == {replica(1): ContainerState.RUNNING}
    assert set(on(world, *NODES)) == {replica(ordinal) for ordinal in range(4)}


def test_a_scale_up_and_a_scale_down_go_on_elsewhere(make):
    world = make()
    world.hosts.silence(SILENT)
    world.push(shop(replicas=8))
    world.run(120 * SECOND)
    assert set(on(world, *NODES[:3])) == {replica(ordinal) for ordinal in (0, 1, 2, 4, 5, 6, 7)}
    world.push(shop(replicas=2))
    world.run(300 * SECOND)
    assert set(on(world, *NODES[:3])) == {replica(0), replica(1)}
    assert world.weights()[replica(3)] == 100
    end_silence(world)
    world.run(300 * SECOND)
    assert set(on(world, *NODES)) == {replica(0), replica(1)}
    assert len(world.published()) == 2


def test_a_node_that_is_added_while_another_is_silent_gets_no_copies(make):
    """With another list of nodes the place of the unknown replica may change; it may still run where it was."""
    world = make(nodes=NODES[:2], replicas=4)
    world.hosts.silence("node-b")
    world.push(shop(nodes=NODES[:3], replicas=4))
    world.run(300 * SECOND)
    names = [name for node in NODES for name in on(world, node)]
    hidden = set(on(world, "node-b"))
    assert not any(name in hidden for node in ("node-a", "node-c") for name in on(world, node)), names


# --- all of them, and again -------------------------------------------------------------------------------------------


def test_nothing_is_done_while_no_node_answers(make):
    world = make()
    for node in NODES:
        world.hosts.silence(node)
    world.push(shop(image="v2"))
    before, written = world.snapshot(), len(world.traffic.writes)
    world.run(900 * SECOND)
    assert world.snapshot() == before
    assert len(world.traffic.writes) == written
    end_silence(world)
    world.run(600 * SECOND)
    assert set(on(world, *NODES)) == {replica(ordinal, V2) for ordinal in range(4)}


def test_a_node_that_was_never_read_keeps_its_members(make):
    """The ledger is lost while a node is silent: then nothing says which members are on it."""
    world = make()
    world.kill()
    world.memory.rows.clear()
    world.hosts.silence(SILENT)
    before = world.published(), world.weights()
    world.run(600 * SECOND)
    assert (world.published(), world.weights()) == before
    assert set(on(world, *NODES)) == {replica(ordinal) for ordinal in range(4)}


def test_the_program_knows_after_a_restart_what_is_on_a_silent_node(make):
    world = make()
    world.hosts.silence(SILENT)
    world.restart()
    guard_silent(world)
    world.runtimes["node-b"].vanish(replica(1))
    world.push(shop(image="v2"))
    world.run(600 * SECOND)
    assert set(on(world, *NODES[:3])) == {replica(ordinal, V2) for ordinal in range(3)}


def test_the_hold_names_the_node_the_replicas_and_since_when(make):
    world = make()
    world.hosts.silence(SILENT)
    world.run(30 * SECOND)
    began = world.clock.now().steady
    world.run(300 * SECOND)
    hold = next(hold for hold in world.tape.last.holds if hold.object == "workload/web")
    assert hold.rule is Rule.UNKNOWN_RUNTIME
    assert SILENT in hold.message
    assert "replica 3" in hold.message
    assert "the other replicas go on" in hold.message
    assert hold.since <= began
    assert status(world).condition is Condition.UNKNOWN
    assert (status(world).available, status(world).unknown) == (3, 1)


def test_a_balancer_address_stays_while_its_endpoints_may_live(make):
    """All known endpoints fail, but the one on the silent node may serve: its balancer's address is not withdrawn."""
    world = make(publish=Publish.BALANCER)
    before = world.published()
    world.hosts.silence(SILENT)
    world.run(60 * SECOND)
    world.apps.mute |= {replica(ordinal) for ordinal in range(3)}
    world.run(300 * SECOND)
    assert world.published() == before != ()
    assert world.weights()[replica(3)] == 100


events = st.one_of(
    st.tuples(st.just("silent"), st.sampled_from(NODES)),
    st.tuples(st.just("answers"), st.sampled_from(NODES)),
    st.tuples(st.just("image"), st.sampled_from(["v1", "v2", "v3"])),
    st.tuples(st.just("exit"), st.integers(0, 3)),
    st.tuples(st.just("vanish"), st.integers(0, 3)),
    st.tuples(st.just("sick"), st.integers(0, 3)),
    st.tuples(st.just("kill"), st.integers(0, 20)),
    st.tuples(st.just("run"), st.sampled_from([60, 300])),
)


def happen(world: World, event: tuple[str, object], strategy: Strategy) -> None:
    kind, value = event
    if kind == "silent":
        world.hosts.silence(str(value))
    elif kind == "answers":
        world.hosts.end_silence(str(value))
    elif kind == "image":
        world.push(shop(image=value, strategy=strategy))
    elif kind == "kill":
        world.kill_in = int(str(value))
    elif kind in ("exit", "vanish", "sick"):
        for node in NODES:
            for name, item in list(world.outside.nodes.get(node, {}).items()):
                if name.endswith(f"-{value}") and item.up:
                    if kind == "exit":
                        world.runtimes[node].exit(name)
                    elif kind == "sick":
                        world.apps.sick.add(item.generation)
                    elif not world.hosts.is_silent(node):
                        world.runtimes[node].vanish(name)
    world.run((int(str(value)) if kind == "run" else 20) * SECOND)


@pytest.mark.parametrize("strategy", list(Strategy))
@examples(6)
@given(st.lists(events, min_size=4, max_size=10))
def test_no_story_of_silent_nodes_doubles_a_replica_or_ends_unconverged(strategy, story):
    world = World(shop(strategy=strategy), NODES)
    world.run(180 * SECOND)

    def check(_: Action) -> None:
        names = [name for node in NODES for name in world.outside.nodes.get(node, {})]
        assert len(names) == len(set(names)), "two containers of one replica and revision"
        running = [name.rpartition("-")[2] for name in world.running()]
        if strategy is Strategy.RECREATE:
            assert len(running) == len(set(running)), "the old one goes first"

    world.checks.append(check)
    try:
        for event in story:
            happen(world, event, strategy)
        end_silence(world)
        world.apps.sick.clear()
        world.run(3600 * SECOND)
        wanted = world.shop.specs[0].revision[:8]
        up = set(world.running())
        assert up == {replica(ordinal, wanted) for ordinal in range(4)}
        assert {name for name, weight in world.weights().items() if weight} == up
        assert len(world.published()) == 4
    finally:
        world.close()
