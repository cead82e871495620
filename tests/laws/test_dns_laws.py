"""Laws of DNS names over random policies, kills and orders: history does not count, and no name dangles or becomes empty."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.dns import AllUnhealthy, DNSPolicy, Publish, Routing, Target
from providers.capabilities import PLAIN
from providers.facts import ProbeValue
from reconciler.core.decide import decide
from tests.core.dns.world import ABLE, FAIL, HOST, PASS, UNKNOWN, ZONE, World, policy
from tests.laws.examples import examples

ADDRESSES = [f"198.51.100.{number}" for number in range(1, 6)] + ["2001:db8::1", "2001:db8::2"]
HOSTS = ["one.example.net.", "two.example.net."]
GEOS = ["EU", "US", "DE"]


@st.composite
def policies(draw: st.DrawFn, mode: AllUnhealthy | None = None) -> DNSPolicy:
    """A balanced name with one to five targets."""
    geos = draw(st.lists(st.sampled_from(GEOS), min_size=1, max_size=3, unique=True))
    top = draw(st.booleans())
    targets = []
    for number in range(draw(st.integers(1, 5))):
        geo = draw(st.sampled_from(geos))
        common = {"weight": draw(st.integers(0, 3)), "geo": geo, "default": geo == geos[0]}
        if draw(st.booleans()) or top:
            addresses = draw(st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=3, unique=True))
            targets.append(Target(f"t{number}", Publish.ADDRESSES, addresses=tuple(sorted(addresses)), **common))  # type: ignore[arg-type]
        else:
            name = draw(st.sampled_from(HOSTS))
            targets.append(Target(f"t{number}", Publish.HOSTNAME, hostname=name, **common))  # type: ignore[arg-type]
    routing = draw(st.sampled_from([Routing.WEIGHTED, Routing.GEO_WEIGHTED]))
    if routing is Routing.WEIGHTED:
        targets = [replace(target, geo="", default=True) for target in targets]
    chosen = mode or draw(st.sampled_from([AllUnhealthy.PUBLISH_ALL, AllUnhealthy.FREEZE, AllUnhealthy.CLOSED]))
    return policy(*targets, routing=routing, all_unhealthy=chosen, host=ZONE if top else HOST)


def addresses_of(dns_policy: DNSPolicy) -> list[str]:
    return sorted({at for target in dns_policy.targets for at in (*target.addresses, target.hostname) if at})


@st.composite
def histories(
    draw: st.DrawFn, mode: AllUnhealthy | None, values: list[ProbeValue]
) -> tuple[DNSPolicy, list[dict[str, ProbeValue]]]:
    """A policy, and the verdicts of its target addresses from one moment to the next."""
    dns_policy = draw(policies(mode))
    verdict = st.fixed_dictionaries({at: st.sampled_from(values) for at in addresses_of(dns_policy)})
    return dns_policy, draw(st.lists(verdict, min_size=1, max_size=4))


CAN = st.sampled_from([ABLE, PLAIN])
COMMON = examples(60)


@COMMON
@given(histories(AllUnhealthy.PUBLISH_ALL, [PASS, FAIL]), CAN)
def test_published_names_depend_only_on_the_last_verdicts(
    history: tuple[DNSPolicy, list[dict[str, ProbeValue]]], can: object
) -> None:
    dns_policy, moments = history
    world = World((dns_policy,), can=can)  # type: ignore[arg-type]
    for health in moments:
        world.health = dict(health)
        world.settle()
        world.pass_time(3600)
        world.settle()
    fresh = World((dns_policy,), dict(moments[-1]), can=can)  # type: ignore[arg-type]
    fresh.settle()

    assert world.sets == fresh.sets
    assert world.sets


@COMMON
@given(histories(None, [PASS, FAIL, UNKNOWN]), CAN, st.data())
def test_a_kill_between_any_two_writes_leaves_no_dangling_name(
    history: tuple[DNSPolicy, list[dict[str, ProbeValue]]], can: object, data: st.DataObject
) -> None:
    """`World.write` checks after each single write. Here the process also dies after any of them, with or without a pause."""
    dns_policy, moments = history
    world = World((dns_policy,), dict.fromkeys(addresses_of(dns_policy), PASS), can=can)  # type: ignore[arg-type]
    world.settle()
    for health in moments:
        world.health = dict(health)
        for _ in range(data.draw(st.integers(0, 8))):
            world.write(world.decide(), data.draw(st.integers(0, 2)))
            if data.draw(st.booleans()):
                world.crash()
            world.pass_time(data.draw(st.sampled_from([0.01, 1, 61, 400])))
    if UNKNOWN in moments[-1].values() or dns_policy.all_unhealthy is AllUnhealthy.FREEZE:
        world.settle()
        return
    world.settle()
    world.pass_time(3600)
    world.settle()
    fresh = World((dns_policy,), dict(moments[-1]), can=can)  # type: ignore[arg-type]
    fresh.settle()
    assert world.sets == fresh.sets


@COMMON
@given(histories(AllUnhealthy.PUBLISH_ALL, [PASS, FAIL]))
def test_unknown_verdicts_withdraw_no_address(history: tuple[DNSPolicy, list[dict[str, ProbeValue]]]) -> None:
    dns_policy, moments = history
    world = World((dns_policy,), dict(moments[0]))
    world.settle()
    world.pass_time(3600)
    world.settle()
    reached = _clients_get(world)
    world.health = {}
    world.settle()

    assert reached <= _clients_get(world)


@COMMON
@given(histories(None, [PASS, FAIL, UNKNOWN]))
def test_a_decision_on_names_does_not_change_before_its_wake_at(
    history: tuple[DNSPolicy, list[dict[str, ProbeValue]]],
) -> None:
    dns_policy, moments = history
    world = World((dns_policy,), dict.fromkeys(addresses_of(dns_policy), PASS))
    world.settle()
    world.health = dict(moments[0])
    observed, first = world.observed(), world.decide()
    between = world.now.steady + (first.wake_at - world.now.steady) // 2
    later = world.now._replace(wall=world.now.wall + between - world.now.steady, steady=between)
    if between == world.now.steady:
        return
    again = decide(world.desired(), observed, later)
    assert [step.id for step in again.steps] == [step.id for step in first.steps]
    assert [hold.rule for hold in again.holds] == [hold.rule for hold in first.holds]


def _clients_get(world: World) -> frozenset[str]:
    named = world.decide().status.names.policies["dnspolicy/app"]  # type: ignore[union-attr]
    assert named.published is not None
    return named.published
