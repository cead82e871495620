"""What is published while target addresses fail and recover: each vector of the tree, by the zone in the end."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.dns import AllUnhealthy, Publish, Routing, Target
from manifests.values.dns_names import balancer_name, target_name
from providers.facts import RecordKey
from reconciler.core.dns.publication import HOLD_DOWN
from reconciler.core.dns.target_health import target_probes
from reconciler.core.model.instant import instant
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.reasons import Rule
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.status.names import name_rows
from tests.core.dns.world import (
    A1,
    A2,
    B1,
    CHECK,
    FAIL,
    HOST,
    NAMES,
    PASS,
    TARGETS,
    UNKNOWN,
    ZONE,
    World,
    X,
    geo_world,
    policy,
)

GW1, GW3 = (target_name(HOST, name).removesuffix("." + ZONE) for name in ("gw1", "gw3"))

HEAD = ["app CNAME 300 klb.app"]
DEFAULT_EU = "klb.app CNAME/default 300 eu.klb.app"
DEFAULT_US = "klb.app CNAME/default 300 us.klb.app"
EU, US = "klb.app CNAME/EU 300 eu.klb.app", "klb.app CNAME/US 300 us.klb.app"
TO_GW1 = f"eu.klb.app CNAME/gw1 60 {GW1} weight 100"
TO_X = f"eu.klb.app CNAME/x 60 {X} weight 100"
TO_GW3 = f"us.klb.app CNAME/gw3 60 {GW3} weight 100"
AT_GW1, AT_GW3 = f"{GW1} A 60 {A1} {A2}", f"{GW3} A 60 {B1}"
EVERYTHING = sorted([*HEAD, DEFAULT_EU, EU, US, TO_GW1, TO_X, TO_GW3, AT_GW1, AT_GW3])


def test_v1_everything_healthy_publishes_everything() -> None:
    assert sorted(geo_world().lines()) == EVERYTHING


def test_v2_one_of_two_addresses_goes_and_nothing_else_changes() -> None:
    world = geo_world()
    before = world.writes
    world.set_health(a1=FAIL)
    world.settle()

    assert sorted(world.lines()) == sorted([*(set(EVERYTHING) - {AT_GW1}), f"{GW1} A 60 {A2}"])
    assert world.writes == before + 1


def test_v3_a_target_without_addresses_goes_and_its_place_keeps_the_other() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL)
    world.settle()

    assert set(world.lines()) == set(EVERYTHING) - {TO_GW1, AT_GW1}


def test_v4_a_place_without_targets_goes_and_the_default_moves() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    world.settle()

    assert set(world.lines()) == {*HEAD, DEFAULT_US, US, TO_GW3, AT_GW3}


def test_v5_another_place_goes_and_the_default_stays() -> None:
    world = geo_world()
    world.set_health(b1=FAIL)
    world.settle()

    assert set(world.lines()) == set(EVERYTHING) - {US, TO_GW3, AT_GW3}


def test_v6_everything_unhealthy_publishes_everything() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    world.settle()

    assert sorted(world.lines()) == EVERYTHING


def test_v7_everything_unhealthy_publishes_all_whatever_failed_first() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    world.settle()
    world.set_health(b1=FAIL)
    world.settle()

    assert sorted(world.lines()) == EVERYTHING


def test_v8_the_first_healthy_address_is_alone_after_the_hold_down() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    world.settle()
    world.set_health(a1=PASS)
    world.settle()

    assert set(world.lines()) == {*HEAD, DEFAULT_EU, EU, TO_GW1, f"{GW1} A 60 {A1}"}


def test_v9_a_new_target_address_joins_after_its_first_success() -> None:
    world = geo_world()
    new = Target("new", Publish.ADDRESSES, addresses=("203.0.113.9",), geo="US")
    world.policies = (policy(*TARGETS, new),)
    world.settle()
    assert sorted(world.lines()) == EVERYTHING

    world.health["203.0.113.9"] = PASS
    world.settle()
    assert RecordKey(target_name(HOST, "new"), "A") in world.sets


def test_v10_without_probe_results_all_is_published_after_one_round() -> None:
    world = World((policy(),))
    first = world.decide()
    assert not first.steps
    assert world.now.steady < first.wake_at <= world.now.steady + CHECK.interval + CHECK.timeout

    world.settle()
    assert sorted(world.lines()) == EVERYTHING


def test_v11_addresses_that_cannot_be_probed_stay_as_published() -> None:
    world = geo_world()
    world.set_health(a1=FAIL)
    world.settle()
    before = world.lines()
    world.set_health(a1=UNKNOWN, a2=UNKNOWN, b1=UNKNOWN, x=UNKNOWN)
    world.settle()

    assert world.lines() == before
    row = world.decide().status.names.policies["dnspolicy/app"]  # type: ignore[union-attr]
    assert row.answer.mode == "Kept"


def test_v12_members_of_weight_0_serve_equally_when_only_they_are_healthy() -> None:
    spare = [
        Target(name, Publish.ADDRESSES, addresses=(address,), weight=0) for name, address in (("s1", A1), ("s2", A2))
    ]
    main = Target("main", Publish.ADDRESSES, addresses=(B1,), weight=100)
    world = World((policy(*spare, main, routing=Routing.WEIGHTED),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS)
    world.settle()
    place = f"default.{balancer_name(HOST)}"
    assert {key.set_id: record.weight for key, record in world.sets.items() if key.name == place} == {
        "s1": 0,
        "s2": 0,
        "main": 100,
    }

    world.set_health(b1=FAIL)
    world.settle()
    assert {key.set_id: record.weight for key, record in world.sets.items() if key.name == place} == {"s1": 1, "s2": 1}


def test_v13_an_address_in_two_targets_has_one_probe_and_both_follow_it() -> None:
    twice = [Target(name, Publish.ADDRESSES, addresses=(A1,)) for name in ("one", "two")]
    other = Target("other", Publish.ADDRESSES, addresses=(B1,))
    world = World((policy(*twice, other, routing=Routing.WEIGHTED),))
    world.set_health(a1=PASS, b1=PASS)
    world.settle()
    assert [probe.address for probe in target_probes(world.desired())] == [A1, B1]

    world.set_health(a1=FAIL)
    world.settle()
    assert {value for key, record in world.sets.items() if key.type == "A" for value in record.values} == {B1}


def test_v15_swings_between_one_and_all_are_at_most_one_a_minute() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    world.settle()
    swings, started = 0, world.now.steady
    for health in (PASS, FAIL) * 20:
        all_before = sorted(world.lines()) == EVERYTHING
        world.set_health(a1=health)
        while (decision := world.decide()).steps:
            world.write(decision)
        swings += sorted(world.lines()) == EVERYTHING and not all_before
        if health is PASS:
            named = world.decide().status.names.policies["dnspolicy/app"]  # type: ignore[union-attr]
            assert named.published <= {A1, A2}, "no client gets only an address that fails"
        world.pass_time(20)

    assert 0 < swings <= (world.now.steady - started) / HOLD_DOWN
    world.settle()
    world.pass_time(3600)
    world.settle()
    assert sorted(world.lines()) == EVERYTHING


def test_a_place_without_healthy_addresses_is_not_the_default_place() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    world.settle()
    world.set_health(b1=PASS)
    while (decision := world.decide()).steps:
        world.write(decision)

    assert DEFAULT_US in world.lines()
    assert EU not in world.lines()


def test_a_member_without_healthy_addresses_has_no_weight_beside_another() -> None:
    members = [Target(name, Publish.ADDRESSES, addresses=(at,)) for name, at in (("one", A1), ("two", B1))]
    world = World((policy(*members, routing=Routing.WEIGHTED),))
    world.set_health(a1=PASS, b1=PASS)
    world.settle()
    world.set_health(a1=FAIL, b1=FAIL)
    world.settle()
    world.set_health(b1=PASS)
    world.write(world.decide())

    assert {key.set_id for key in world.sets if key.name == f"default.{balancer_name(HOST)}"} == {"two"}


def test_the_fallback_is_not_the_default_place_beside_a_healthy_one() -> None:
    sorry = Target("sorry", Publish.ADDRESSES, addresses=("192.0.2.99",), weight=1000)
    world = World((policy(*TARGETS, sorry, all_unhealthy=AllUnhealthy.FALLBACK, fallback="sorry"),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    world.settle()
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    world.settle()
    world.set_health(b1=PASS)
    while (decision := world.decide()).steps:
        world.write(decision)

    assert DEFAULT_US in world.lines()


def test_a_hold_down_of_a_plain_name_keeps_addresses_beside_a_healthy_one() -> None:
    both = Target("both", Publish.ADDRESSES, addresses=(A1, A2))
    world = World((policy(both, routing=Routing.SIMPLE),))
    world.set_health(a1=PASS, a2=PASS)
    world.settle()
    before = world.writes
    for _ in range(10):
        world.set_health(a1=FAIL, a2=FAIL)
        assert not world.decide().steps or world.writes == before
        world.settle()
        world.set_health(a1=PASS)
        assert not world.decide().steps
        world.pass_time(20)

    assert world.lines() == [f"app A 60 {A1} {A2}"]


def test_v16_a_plain_name_loses_one_of_two_addresses_but_never_both() -> None:
    both = Target("both", Publish.ADDRESSES, addresses=(A1, A2))
    world = World((policy(both, routing=Routing.SIMPLE),))
    world.set_health(a1=PASS, a2=PASS)
    world.settle()
    world.set_health(a1=FAIL)
    world.settle()
    assert world.lines() == [f"app A 60 {A2}"]

    world.set_health(a2=FAIL)
    world.settle()
    assert world.lines() == [f"app A 60 {A1} {A2}"]


def test_the_first_healthy_address_of_a_new_name_is_not_held_down() -> None:
    world = World((policy(),))
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    while (decision := world.decide()).steps:
        world.write(decision)
        world.crash()
    assert sorted(world.lines()) == EVERYTHING

    world.set_health(a1=PASS)
    held = world.decide()
    assert held.status.names.policies["dnspolicy/app"].answer.mode == "Healthy"  # type: ignore[union-attr]
    assert held.steps


def test_a_hold_down_adds_nothing_that_is_not_published() -> None:
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    world.settle()
    before = world.lines()
    world.set_health(b1=FAIL)
    assert world.decide().steps  # about to publish everything, and none of it written yet
    world.set_health(b1=PASS)
    decision = world.decide()

    assert not decision.steps
    assert world.lines() == before


# --- other fields of a policy --------------------------------------------------------------------------------------------


def test_freeze_keeps_the_published_records_when_the_last_target_fails() -> None:
    world = geo_world(all_unhealthy=AllUnhealthy.FREEZE)
    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    world.settle()
    before = world.lines()
    world.set_health(b1=FAIL)
    world.settle()

    assert world.lines() == before
    assert [hold.rule for hold in world.decide().holds] == [Rule.LAST_RECORD]


def test_closed_withdraws_the_whole_name_from_the_top() -> None:
    world = geo_world(all_unhealthy=AllUnhealthy.CLOSED)
    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    first = world.decide()
    assert [step.action.changes[0].key.name for step in first.steps] == [HOST]  # type: ignore[union-attr]

    world.settle()
    assert world.lines() == []


def test_the_fallback_serves_only_while_nothing_else_is_healthy() -> None:
    sorry = Target("sorry", Publish.ADDRESSES, addresses=("192.0.2.99",))
    given = {"all_unhealthy": AllUnhealthy.FALLBACK, "fallback": "sorry"}
    world = World((policy(*TARGETS, sorry, **given),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    world.settle()
    assert sorted(world.lines()) == EVERYTHING
    assert "192.0.2.99" not in {probe.address for probe in target_probes(world.desired())}

    world.set_health(a1=FAIL, a2=FAIL, b1=FAIL, x=FAIL)
    world.settle()
    addresses = {value for key, record in world.sets.items() if key.type == "A" for value in record.values}
    assert addresses == {"192.0.2.99"}

    world.set_health(b1=PASS)
    world.settle()
    assert set(world.lines()) == {*HEAD, DEFAULT_US, US, TO_GW3, AT_GW3}


def forced(name: str, force: str) -> tuple[Target, ...]:
    return tuple(replace(target, force=force) if target.name == name else target for target in TARGETS)


def test_a_target_that_is_forced_down_goes_also_with_publish_all() -> None:
    world = geo_world()
    world.policies = (policy(*forced("gw3", "down")),)
    world.settle()
    without = set(EVERYTHING) - {US, TO_GW3, AT_GW3}
    assert set(world.lines()) == without

    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    world.settle()
    assert set(world.lines()) == without
    world.policies = (policy(),)
    world.settle()
    world.pass_time(3600)
    world.settle()
    assert set(world.lines()) == {*HEAD, DEFAULT_US, US, TO_GW3, AT_GW3}


def test_a_target_that_is_forced_up_stays_whatever_its_check_says() -> None:
    world = geo_world()
    world.policies = (policy(*forced("gw3", "up")),)
    world.set_health(b1=FAIL)
    world.settle()
    assert sorted(world.lines()) == EVERYTHING

    world.set_health(a1=FAIL, a2=FAIL, x=FAIL)
    world.settle()
    assert set(world.lines()) == {*HEAD, DEFAULT_US, US, TO_GW3, AT_GW3}


def test_an_override_of_a_target_ranks_above_its_manifest_and_expires() -> None:
    world = geo_world()
    without = set(EVERYTHING) - {US, TO_GW3, AT_GW3}
    end = world.now.wall + 1800 * SECOND
    command = Command("force", "dnspolicy/app/gw3", "jo", "work on the line", end, value="down", at=instant(world.now))
    world.ledger = apply_commands(world.ledger, (command,))
    decision = world.decide()
    assert decision.wake_at <= world.now.steady + 1800 * SECOND
    world.write(decision)
    world.policies = (policy(*forced("gw3", "up")),)
    while world.now.wall < end - 60 * SECOND:
        world.write(world.decide())
        world.pass_time(30)
    assert set(world.lines()) == without
    status = world.decide().status
    snap = Snapshot(world.desired(), world.observed(), status.sight, status.roster, world.now)
    rows = name_rows(snap, status.names)
    (target_address,) = (row for row in rows[0]["leaves"] if row["target"] == "gw3")
    assert (target_address["why"], target_address["override"]["until_wall"]) == (
        "forced down by jo (work on the line)",
        end,
    )

    world.pass_time(61)
    world.settle()
    assert sorted(world.lines()) == EVERYTHING
    world.set_health(b1=FAIL)
    world.settle()
    assert sorted(world.lines()) == EVERYTHING, "the manifest counts again"

    drain = Command("drain", "dnspolicy/app/gw1", at=instant(world.now))
    assert apply_commands(world.ledger, (drain,)).overrides == world.ledger.overrides


def test_a_name_whose_targets_are_all_forced_down_keeps_what_it_has() -> None:
    world = geo_world()
    world.policies = (policy(*(replace(target, force="down") for target in TARGETS)),)
    world.settle()

    assert sorted(world.lines()) == EVERYTHING
    assert [hold.rule for hold in world.decide().holds] == [Rule.LAST_RECORD]


def test_a_host_at_the_top_of_its_zone_is_balanced_by_aliases() -> None:
    one, two = (Target(name, Publish.ADDRESSES, addresses=(at,)) for name, at in (("one", A1), ("two", B1)))
    world = World((policy(one, two, host=ZONE, routing=Routing.WEIGHTED),))
    world.set_health(a1=PASS, b1=PASS)
    world.settle()

    assert world.sets[RecordKey(ZONE, "A")].alias
    assert not any(key.type == "CNAME" for key in world.sets)


@pytest.mark.parametrize("host", [HOST, ZONE])
def test_a_provider_without_weights_places_and_aliases_gets_the_addresses(host: str) -> None:
    from providers.capabilities import PLAIN  # noqa: PLC0415

    world = World((policy(*TARGETS[:2], host=host),), can=PLAIN)
    world.set_health(a1=PASS, a2=PASS, b1=PASS)
    world.settle()
    settled = world.writes
    named = world.decide().status.names.policies["dnspolicy/app"]  # type: ignore[union-attr]

    assert named.published == {A1, A2}
    assert named.notes
    assert not world.decide().steps
    assert world.writes == settled


def test_a_host_of_another_writer_is_held_and_not_changed() -> None:
    world = World((policy(),))
    world.set_health(a1=PASS, a2=PASS, b1=PASS, x=PASS)
    from providers.facts import RecordSet  # noqa: PLC0415

    foreign = {RecordKey(HOST, "TXT"): RecordSet(60, ('"theirs"',))}
    world.zone = replace(world.zone, value=replace(world.zone.value, records=foreign))
    decision = world.decide()

    assert not decision.steps
    assert [hold.rule for hold in decision.holds] == [Rule.FOREIGN_RECORD]
    assert NAMES in world.desired().policies[0].provider
