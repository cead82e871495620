"""Leaf health on real name servers: a gateway that fails leaves the name, comes back to it, and never takes the name along."""

import json
import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.dns_world import Gateway, NameServer, World, document
from tests.e2e.quickstart_world import World as Quickstart

KINDS = [
    pytest.param("named", marks=pytest.mark.server("named")),
    pytest.param("knot", marks=pytest.mark.server("knotd")),
    pytest.param("powerdns", marks=pytest.mark.server("pdns_server")),
]
pytestmark = pytest.mark.server("dig")
on_one = pytest.mark.parametrize("server", KINDS[:1], indirect=True)
"""For what does not depend on the kind of server."""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    made = NameServer(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.kill()


@pytest.fixture
def names(server: NameServer, tmp_path: Path) -> Iterator[World]:
    server.new_zone()
    world = World(tmp_path, server)
    yield world
    world.close()


def simple(world: World) -> list[dict[str, object]]:
    return [{"name": "all", "addresses": world.addresses}]


def balanced(world: World) -> list[dict[str, object]]:
    """Two gateways in Europe, of different weight, and one in America."""
    first, second, third = world.addresses
    return [
        {"name": "first", "addresses": [first], "geo": "EU", "weight": 100, "default": True},
        {"name": "second", "addresses": [second], "geo": "EU", "weight": 50, "default": True},
        {"name": "third", "addresses": [third], "geo": "US"},
    ]


def test_a_gateway_that_fails_is_withdrawn_and_comes_back(names: World) -> None:
    names.write(simple(names))
    names.watch()
    first, second, third = names.gateways
    names.until_published(first, second, third)
    second.fail()
    names.until_published(first, third)
    second.recover()
    names.until_published(first, second, third)
    assert first.hosts == {names.host.removesuffix(".")}


def test_all_failing_keeps_all(names: World) -> None:
    names.write(simple(names))
    names.watch()
    first, second, third = names.gateways
    names.until_published(first, second, third)
    first.fail()
    names.until_published(second, third)
    second.fail()
    third.fail()
    names.until_published(first, second, third)
    first.recover()
    names.until(lambda: first.address in names.published())
    assert names.published()


def test_a_balanced_name_always_answers_during_a_killed_withdrawal(names: World) -> None:
    names.write(balanced(names))
    names.watch()
    names.until(lambda: bool(names.published()))
    first, second, third = names.gateways
    moments = random.Random(3)
    for failing in ([first, second], [third], [first], []):
        for gateway in names.gateways:
            (gateway.fail if gateway in failing else gateway.recover)()
        down = {gateway.address for gateway in failing}
        for _ in range(2):
            end = moments.uniform(0.5, 3.0)
            _watch_for(names, end)
            names.stop(signal.SIGKILL)
            assert names.dangling() == set()
            assert names.published()
            names.watch()
        names.until(partial(names.published_without, down))
        assert names.dangling() == set()


def _watch_for(names: World, seconds: float) -> None:
    """The name always has an answer, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert names.published()


@on_one
def test_a_single_run_publishes_passing_addresses_and_reports_the_others(names: World) -> None:
    names.write(simple(names))
    first, second, third = names.gateways
    third.fail()
    names.run("--once", "--timeout", "30s")
    assert names.published() == sorted([first.address, second.address])
    code, out = names.run("get", "records", "-o", "json")
    assert code == 0
    leaves = {row["address"]: row for row in json.loads(out)["names"][0]["leaves"]}
    assert leaves[third.address]["healthy"] is False
    assert leaves[third.address]["published"] is False
    assert leaves[first.address]["healthy"] is True
    assert leaves[first.address]["published"] is True


@on_one
def test_addresses_that_are_not_allowed_are_not_probed_and_stay_published(names: World) -> None:
    names.write(simple(names))
    names.run("--once", "--timeout", "30s")
    before = names.published()
    assert before == names.addresses
    for gateway in names.gateways:
        gateway.hosts.clear()
        gateway.fail()
    names.write(simple(names), allowed=())
    code, out = names.run("--once", "--timeout", "10s")
    assert (code, "allowAddresses of the Instance" in out) == (6, True), out
    assert names.published() == before
    assert all(not gateway.hosts for gateway in names.gateways)
    _, out = names.run("get", "records")
    assert "loopback" in out


SLOW = {"interval": "60s", "failureThreshold": 5}


@on_one
def test_a_plan_asks_each_gateway_once_and_changes_nothing(names: World) -> None:
    names.write(simple(names))
    first, second, third = names.gateways
    third.fail()
    code, out = names.run("plan")
    assert code in {0, 2, 6}, out
    assert first.address in out
    assert second.address in out
    assert third.address not in out
    assert names.published() == []


@on_one
def test_a_single_run_waits_for_the_last_verdict_when_nothing_passes(names: World) -> None:
    names.write(simple(names))
    for gateway in names.gateways:
        gateway.fail()
    names.run("--once", "--timeout", "30s")
    assert names.published() == names.addresses


@on_one
def test_a_verdict_that_is_not_reached_in_time_is_unknown(names: World) -> None:
    check = {"protocol": "HTTP", "port": names.port, "path": "/up", **SLOW}
    names.write(simple(names), healthCheck=check)
    for gateway in names.gateways:
        gateway.fail()
    code, out = names.run("--once", "--timeout", "6s")
    assert code == 6, out
    _, out = names.run("get", "records", "-o", "json")
    leaves = json.loads(out)["names"][0]["leaves"]
    assert [row["healthy"] for row in leaves] == [None] * 3
    assert [row["check"]["consecutive_failures"] for row in leaves] == [1] * 3


@on_one
def test_a_host_name_target_follows_its_health_check(names: World) -> None:
    cloud = Gateway("127.0.0.1", names.port)
    try:
        check = {"address": "localhost", "protocol": "HTTP", "port": names.port, "interval": "800ms"}
        check |= {"failureThreshold": 2, "host": "cloud.example"}
        names.write(
            [
                {"name": "cloud", "hostname": "localhost", "healthCheck": "cloud"},
                {"name": "own", "addresses": [names.gateways[0].address]},
            ],
            allowed=["127.0.0.0/8"],
            more=[document("HealthCheck", "cloud", **check)],
        )
        names.watch()
        names.until(lambda: cloud.hosts == {"cloud.example"} and "HEALTHY" in _check(names))
        cloud.fail()
        names.until(lambda: "unhealthy" in _check(names))
        names.until(lambda: names.published() == [names.gateways[0].address])
    finally:
        cloud.close()


def _check(names: World) -> str:
    _, out = names.run("get", "healthchecks", "-o", "json")
    rows = json.loads(out).get("healthchecks", ())
    return {True: "HEALTHY", False: "unhealthy", None: "unknown"}[rows[0]["healthy"]] if rows else ""


def test_endpoints_of_a_service_are_asked_as_well(world: Quickstart) -> None:
    instance, web = world.manifests / "instance.yaml", world.manifests / "web.yaml"
    check = (
        "  healthCheck: {protocol: HTTP, port: 8080, path: /, interval: 800ms}\n  whenAllUnhealthy: freeze\n  targets:"
    )
    instance.write_text(
        instance.read_text().replace(f"  id: {world.id}\n", f"  id: {world.id}\n  allowAddresses: [127.0.0.0/8]\n")
    )
    text = web.read_text()
    assert text.count("  targets:") == 1
    web.write_text(text.replace("  targets:", check))
    code, out = world.run("--once", "--timeout", "40s")
    assert code == 0, out
    addresses = {replica["address"] for replica in world.replicas().values()}
    assert world.records() == addresses
    code, out = world.run("get", "records", "-o", "json")
    leaves = json.loads(out)["names"][0]["leaves"]
    assert {(leaf["address"], leaf["service"], leaf["check"]["healthy"]) for leaf in leaves} == {
        (address, "pass", True) for address in addresses
    }
