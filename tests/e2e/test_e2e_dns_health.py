"""Leaf health on real name servers: a gateway that fails leaves the name, comes back to it, and never takes the name along."""

import json
import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from dns_world import NameServer, World

KINDS = [
    pytest.param("named", marks=pytest.mark.server("named")),
    pytest.param("knot", marks=pytest.mark.server("knotd")),
    pytest.param("powerdns", marks=pytest.mark.server("pdns_server")),
]
pytestmark = pytest.mark.server("dig")


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
    one, other, third = world.addresses
    return [
        {"name": "one", "addresses": [one], "geo": "EU", "weight": 100, "default": True},
        {"name": "other", "addresses": [other], "geo": "EU", "weight": 50, "default": True},
        {"name": "third", "addresses": [third], "geo": "US"},
    ]


def test_a_gateway_that_fails_is_withdrawn_and_comes_back(names: World) -> None:
    names.write(simple(names))
    names.watch()
    one, other, third = names.gateways
    names.until_published(one, other, third)
    other.fail()
    names.until_published(one, third)
    other.recover()
    names.until_published(one, other, third)
    assert one.hosts == {names.host.removesuffix(".")}


def test_all_failing_keeps_all(names: World) -> None:
    names.write(simple(names))
    names.watch()
    one, other, third = names.gateways
    names.until_published(one, other, third)
    one.fail()
    names.until_published(other, third)
    other.fail()
    third.fail()
    names.until_published(one, other, third)
    one.recover()
    names.until(lambda: one.address in names.published())
    assert names.published()


def test_a_balanced_name_answers_and_dangles_at_no_moment_of_a_withdrawal_that_is_killed(names: World) -> None:
    names.write(balanced(names))
    names.watch()
    names.until(lambda: bool(names.published()))
    one, other, third = names.gateways
    moments = random.Random(3)
    for failing in ([one, other], [third], [one], []):
        for gateway in names.gateways:
            (gateway.fail if gateway in failing else gateway.recover)()
        down = {gateway.address for gateway in failing}
        for _ in range(2):
            end = moments.uniform(0.3, 1.2)
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


def test_a_single_run_publishes_what_passes_and_says_who_does_not(names: World) -> None:
    names.write(simple(names))
    one, other, third = names.gateways
    third.fail()
    names.run("--once", "--timeout", "30s")
    assert names.published() == sorted([one.address, other.address])
    code, out = names.run("get", "records", "-o", "json")
    assert code == 0
    leaves = {row["address"]: row for row in json.loads(out)["names"][0]["leaves"]}
    assert leaves[third.address]["healthy"] is False
    assert leaves[third.address]["published"] is False
    assert leaves[one.address]["healthy"] is True
    assert leaves[one.address]["published"] is True


def test_addresses_that_are_not_allowed_are_not_asked_and_nothing_published_is_lost(names: World) -> None:
    names.write(simple(names))
    names.run("--once", "--timeout", "30s")
    before = names.published()
    assert before == names.addresses
    for gateway in names.gateways:
        gateway.hosts.clear()
        gateway.fail()
    names.write(simple(names), allowed=False)
    names.run("--once", "--timeout", "10s")
    assert names.published() == before
    assert all(not gateway.hosts for gateway in names.gateways)
    _, out = names.run("get", "records")
    assert "loopback" in out
