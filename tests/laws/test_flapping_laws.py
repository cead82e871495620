"""Laws of names whose addresses flap: at random times and in random orders, with kills, for plain names and trees."""

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from manifests.values.dns import AllUnhealthy, Publish, Routing, Target
from providers.capabilities import PLAIN as PLAIN_PROVIDER
from providers.capabilities import DNSCapabilities
from providers.facts import ProbeValue
from reconciler.core.decide import decide
from reconciler.core.dns.flapping import LONGEST
from tests.core.dns.world import A1, A2, ABLE, B1, FAIL, PASS, UNKNOWN, World, policy
from tests.laws.examples import examples

ADDRESSES = (A1, A2, B1)
PLAIN = (Target("all", Publish.ADDRESSES, addresses=ADDRESSES),)
WEIGHTED = tuple(Target(f"t{number}", Publish.ADDRESSES, addresses=(at,)) for number, at in enumerate(ADDRESSES))
PLACES = (
    Target("eu", Publish.ADDRESSES, addresses=(A1, A2), geo="EU", default=True),
    Target("us", Publish.ADDRESSES, addresses=(B1,), geo="US"),
)
FORMS = st.sampled_from([(PLAIN, Routing.SIMPLE), (WEIGHTED, Routing.WEIGHTED), (PLACES, Routing.GEO_WEIGHTED)])


def moments(values: list[ProbeValue]) -> st.SearchStrategy[list[tuple[dict[str, ProbeValue], float]]]:
    health = st.fixed_dictionaries({at: st.sampled_from(values) for at in ADDRESSES})
    return st.lists(st.tuples(health, st.sampled_from([1.0, 20.0, 61.0, 1000.0])), min_size=1, max_size=12)


def named(world: World) -> frozenset[str]:
    published = world.decide().status.names.policies["dnspolicy/app"].published  # type: ignore[union-attr]
    assert published is not None
    return published


def start(form: tuple[tuple[Target, ...], Routing], can: DNSCapabilities = ABLE) -> World:
    targets, routing = form
    world = World((policy(*targets, routing=routing, all_unhealthy=AllUnhealthy.PUBLISH_ALL),), can=can)
    world.health = dict.fromkeys(ADDRESSES, PASS)
    world.settle()
    return world


def act(world: World) -> None:
    for _ in range(50):
        decision = world.decide()
        if not decision.steps:
            return
        world.write(decision)
    raise AssertionError("the world never settles")


@examples(150)
@given(FORMS, st.sampled_from([ABLE, PLAIN_PROVIDER]), moments([PASS, FAIL]), st.booleans())
def test_a_name_has_a_healthy_address_whenever_there_is_one(
    form: tuple[tuple[Target, ...], Routing],
    can: DNSCapabilities,
    history: list[tuple[dict[str, ProbeValue], float]],
    crash: bool,
) -> None:
    world = start(form, can)
    for health, pause in history:
        world.health = dict(health)
        act(world)
        published = named(world)
        healthy = {at for at, value in health.items() if value is PASS}
        assert published
        assert not healthy or published & healthy
        if crash:
            world.crash()
        world.pass_time(pause)


@examples(150)
@given(FORMS, moments([PASS, FAIL, UNKNOWN]))
def test_the_decision_stays_the_same_until_its_wake_at(
    form: tuple[tuple[Target, ...], Routing], history: list[tuple[dict[str, ProbeValue], float]]
) -> None:
    world = start(form)
    for health, pause in history:
        world.health = dict(health)
        act(world)
        observed, first = world.observed(), world.decide()
        span = first.wake_at - world.now.steady
        assert span > 0
        late = world.now._replace(wall=world.now.wall + span - 1, steady=world.now.steady + span - 1)
        again = decide(world.desired(), observed, late)
        assert again.steps == first.steps
        assert {(hold.rule, hold.until) for hold in again.holds} == {(hold.rule, hold.until) for hold in first.holds}
        assert {(wait.waiting, wait.until) for wait in again.waits} == {
            (wait.waiting, wait.until) for wait in first.waits
        }
        world.pass_time(pause)


@examples(100)
@given(FORMS, moments([PASS, FAIL, UNKNOWN]))
def test_a_healthy_world_converges_within_the_longest_delay(
    form: tuple[tuple[Target, ...], Routing], history: list[tuple[dict[str, ProbeValue], float]]
) -> None:
    world = start(form)
    for health, pause in history:
        world.health = dict(health)
        act(world)
        world.pass_time(pause)
    world.health = dict.fromkeys(ADDRESSES, PASS)
    act(world)
    world.pass_time(LONGEST / SECOND)
    world.settle()
    assert named(world) == frozenset(ADDRESSES)
    assert not world.decide().waits


@examples(60)
@given(FORMS, st.integers(1, 59))
def test_writes_of_an_address_that_flaps_grow_with_the_logarithm_of_time(
    form: tuple[tuple[Target, ...], Routing], period: int
) -> None:
    world = start(form)
    per_write = 4 if form[1] is not Routing.SIMPLE else 1
    before = world.writes
    for _ in range(3600 // period):
        world.health[A1] = FAIL
        act(world)
        world.pass_time(period / 2)
        world.health[A1] = PASS
        act(world)
        world.pass_time(period / 2)
    assert world.writes - before <= 12 * per_write
