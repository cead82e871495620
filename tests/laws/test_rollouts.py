"""Whole runs of staged rollouts: after any declaration, failure, clock step or kill, traffic follows the rollout history."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from manifests.values.rollouts import STAGED, CanaryStep, Rollout, Strategy, Supersede
from providers.actions import SetWeight
from reconciler.core.model.revision import ENDED, Standing
from tests.laws.examples import examples
from tests.laws.watchdog import Watchdog
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

IMAGES = ("v1", "v2", "v3")
SHORT = {spec.revision[:8]: spec.revision for spec in (Spec(image=image) for image in IMAGES)}
TIMES = Rollout(
    precheck=20 * SECOND,
    pending_grace=120 * SECOND,
    bake=60 * SECOND,
    window=120 * SECOND,
    steps=(CanaryStep(2_000, 20 * SECOND),),
)

shops = st.builds(
    lambda image, strategy, delay, supersede: shop(
        image=image,
        replicas=2,
        strategy=strategy,
        rollout=replace(TIMES, delay=delay * SECOND, supersede=supersede),
    ),
    st.sampled_from(IMAGES),
    st.sampled_from(sorted(STAGED)),
    st.sampled_from([0, 30, 90]),
    st.sampled_from(list(Supersede)),
)
events = st.one_of(
    st.tuples(st.just("declare"), shops),
    st.tuples(st.just("ill"), st.sampled_from(IMAGES)),
    st.tuples(st.just("well"), st.just("")),
    st.tuples(st.just("rollback"), st.just("")),
    st.tuples(st.just("kill"), st.integers(0, 8)),
    st.tuples(st.just("clock"), st.sampled_from([-3600, 600])),
    st.tuples(st.just("run"), st.sampled_from([15, 60, 150])),
)


def revision_in(name: str) -> str:
    return SHORT[name.split("-")[2]]


def watch(world: World) -> None:
    """Each raised weight belongs to the active revision or to one that is being opened, by the stored rollout history."""

    def check(action: object) -> None:
        if not isinstance(action, SetWeight) or not action.weight:
            return
        history = world.memory.ledger().rollouts["workload/web"]
        row = history.of(revision_in(action.name))
        assert row is not None
        first = not history.active
        assert first or row.revision == history.active or row.opened is not None, (action, history)

    world.checks.append(check)


def happen(world: World, event: tuple[str, object]) -> None:
    kind, value = event
    if kind == "declare":
        assert isinstance(value, Shop)
        world.push(value)
    elif kind == "ill":
        revision = Spec(image=str(value)).revision[:8]
        world.apps.mute |= {f"shop-web-{revision}-{ordinal}" for ordinal in range(2)}
    elif kind == "well":
        world.apps.mute.clear()
    elif kind == "rollback":
        world.memory.say("rollback", "workload/web")
    elif kind == "kill":
        world.kill_in = int(str(value))
    elif kind == "clock":
        world.clock.step_wall(int(str(value)) * SECOND)
    world.run((int(str(value)) if kind == "run" else 20) * SECOND)


@examples(8)
@given(st.lists(events, min_size=4, max_size=12))
def test_traffic_follows_the_rollout_history_and_the_world_converges(story):
    world = World(shop(replicas=2, strategy=Strategy.ACTIVATE, rollout=TIMES))
    world.dog = Watchdog(world)
    watch(world)
    try:
        world.run(60 * SECOND)
        numbers: list[tuple[int, str]] = []
        for event in story:
            happen(world, event)
            assert any(world.weights().values()), "a pool that served is empty"
            history = world.memory.ledger().rollouts["workload/web"]
            active = history.of(history.active)
            assert active is not None
            numbers.append((active.number, active.revision))
            assert sum(row.standing is Standing.ACTIVE for row in history.rows) <= 1
        world.apps.mute.clear()
        world.kill_in = -1
        world.run(900 * SECOND)
        history = world.memory.ledger().rollouts["workload/web"]
        wanted = history.of(world.shop.specs[0].revision)
        assert wanted is not None
        assert wanted.revision == history.active or wanted.standing in ENDED
        assert all(weight == 100 for weight in world.weights().values()), world.weights()
        assert {revision_in(name) for name in world.weights()} == {history.active}
        assert {revision_in(name) for name in world.running()} == {history.active}
        assert not world.tape.last.steps
        assert not history.back
    finally:
        world.close()
