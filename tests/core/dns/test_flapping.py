"""An address that flaps is withdrawn at once and returns more slowly with each failure, but never while nothing else is healthy."""

from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.dns import Publish, Routing, Target
from reconciler.core.dns.flapping import FIRST, FORGET, LONGEST, delay
from reconciler.core.model.instant import instant
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.reasons import Waiting
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.status.names import name_rows
from tests.core.dns.world import A1, A2, CHECK, FAIL, PASS, UNKNOWN, World, policy

QUICK = replace(CHECK, interval=SECOND)
BOTH = Target("both", Publish.ADDRESSES, addresses=(A1, A2))


def plain() -> World:
    world = World((policy(BOTH, routing=Routing.SIMPLE, check=QUICK),))
    world.set_health(a1=PASS, a2=PASS)
    world.settle()
    return world


def published(world: World) -> set[str]:
    return {value for record in world.sets.values() for value in record.values}


def act(world: World) -> None:
    while (decision := world.decide()).steps:
        world.write(decision)


def flap(world: World, down: float = 4, up: float = 2) -> None:
    world.set_health(a1=FAIL)
    act(world)
    assert published(world) == {A2}, "a withdrawal is never delayed"
    world.pass_time(down)
    world.set_health(a1=PASS)
    act(world)
    world.pass_time(up)
    act(world)


def test_a_single_failure_delays_nothing() -> None:
    world = plain()
    flap(world)
    assert published(world) == {A1, A2}


def test_few_of_many_flaps_are_written() -> None:
    world = plain()
    before = world.writes
    for _ in range(100):
        flap(world)
        world.crash()
    assert world.writes - before == 3


def test_an_address_returns_once_it_has_been_healthy_for_the_named_time() -> None:
    world = plain()
    flap(world)
    flap(world, up=0)
    decision = world.decide()
    (wait,) = decision.waits
    assert (wait.waiting, wait.until) == (Waiting.STEADY, world.now.steady + FIRST)
    assert decision.wake_at <= world.now.steady + FIRST

    world.pass_time(FIRST / SECOND - 1)
    assert not world.decide().steps
    world.pass_time(1)
    act(world)
    assert published(world) == {A1, A2}


def test_a_failure_while_it_waits_makes_the_next_wait_longer() -> None:
    waits = []
    world = plain()
    flap(world)
    for _ in range(12):
        flap(world, up=0)
        (wait,) = world.decide().waits
        assert wait.until is not None
        waits.append(wait.until - world.now.steady)
    assert waits == [min(LONGEST, FIRST << number) for number in range(12)]
    world.pass_time(LONGEST / SECOND)
    act(world)
    assert published(world) == {A1, A2}, "a healthy address always returns"


def test_slow_checks_wait_for_two_of_them() -> None:
    assert delay(2, 60 * SECOND) == 120 * SECOND
    assert delay(1, 60 * SECOND) == 0


def test_failures_that_lie_far_apart_are_single_ones() -> None:
    world = plain()
    for _ in range(5):
        flap(world)
        world.pass_time(FORGET / SECOND)
        assert published(world) == {A1, A2}
        assert not world.decide().waits


def test_the_last_healthy_address_returns_at_once() -> None:
    world = plain()
    for _ in range(4):
        flap(world)
    assert published(world) == {A2}
    world.set_health(a2=FAIL)
    act(world)
    assert A1 in published(world)
    assert not any(wait.waiting is Waiting.STEADY for wait in world.decide().waits)


def test_a_published_address_is_not_withdrawn_for_earlier_flaps() -> None:
    world = plain()
    for _ in range(4):
        flap(world)
    world.set_health(a2=FAIL)
    act(world)
    world.pass_time(61)
    act(world)
    world.set_health(a2=PASS)
    act(world)
    world.pass_time(61)
    act(world)
    assert A1 in published(world)


def test_while_all_addresses_fail_a_flap_changes_nothing() -> None:
    world = plain()
    world.set_health(a1=FAIL, a2=FAIL)
    act(world)
    before = world.writes
    for _ in range(10):
        world.set_health(a1=PASS)
        act(world)
        world.pass_time(2)
        world.set_health(a1=FAIL)
        act(world)
        world.pass_time(2)
    assert published(world) == {A1, A2}
    assert world.writes == before


def test_an_unknown_verdict_is_no_failure() -> None:
    world = plain()
    flap(world)
    for _ in range(5):
        world.set_health(a1=UNKNOWN)
        act(world)
        world.set_health(a1=PASS)
        act(world)
    assert published(world) == {A1, A2}


def test_an_operator_who_forces_an_address_up_does_not_wait() -> None:
    world = plain()
    for _ in range(4):
        flap(world)
    command = Command("force", "dnspolicy/app/both", "jo", "checked by hand", value="up", at=instant(world.now))
    world.ledger = apply_commands(world.ledger, (command,))
    act(world)
    assert published(world) == {A1, A2}


def test_status_says_why_an_address_is_out_and_until_when() -> None:
    world = plain()
    flap(world)
    flap(world, up=0)
    decision = world.decide()
    snap = Snapshot(world.desired(), world.observed(), decision.status.sight, decision.status.roster, world.now)
    rows = {row["address"]: row for row in name_rows(snap, decision.status.names)[0]["leaves"]}
    assert rows[A1]["held_until_wall"] == world.now.wall + FIRST
    assert rows[A1]["why"] == "healthy, but it failed 2 times in a row: stays out until its health has lasted"
    assert (rows[A2]["held_until_wall"], rows[A2]["why"]) == (None, "healthy")


def test_rows_of_addresses_that_left_the_policy_are_dropped() -> None:
    world = plain()
    flap(world)
    assert world.ledger.flaps
    world.policies = (policy(replace(BOTH, addresses=(A2,)), routing=Routing.SIMPLE, check=QUICK),)
    world.decide()
    assert not world.ledger.flaps
