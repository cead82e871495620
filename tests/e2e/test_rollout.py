"""Rollouts on the real engine, behind HAProxy and BIND, with images from a real registry, and clients that watch all the time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.edge_world import until
from tests.e2e.shop_world import RegistryServer, Shop, versions

pytestmark = [
    pytest.mark.server("dockerd"),
    pytest.mark.server("docker-registry"),
    pytest.mark.server("haproxy"),
    pytest.mark.server("named"),
]

ROLLOUT = "{strategy: activate, activationDelay: 1s, precheck: 0s, pendingGrace: 5m, bake: 5m, rollbackWindow: 10m}"
IMPATIENT = ROLLOUT.replace("pendingGrace: 5m", "pendingGrace: 15s")


@pytest.fixture
def shop(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """Two replicas of version 1 that serve; a test may give another rollout."""
    rollout = getattr(request, "param", ROLLOUT)
    with RegistryServer(tmp_path / "registry", engine) as registry:
        world = Shop(engine, registry, rollout)
        try:
            world.publish("1")
            world.start_servers()
            world.once()
            world.settle(2)
            yield world
        finally:
            world.close()


def test_an_activation_at_its_time_under_load_fails_no_request(shop: Shop) -> None:
    digest = shop.publish("2")
    old = shop.of_version("1")
    with shop.watching(), shop.clients() as clients:
        until(lambda: sum(clients.pages.values()) > 50, "pages are served")
        answer = shop.deploy("2", "--activate-in", "15s")
        assert answer["success"] is True
        assert answer["activation_time"]
        until(lambda: len(shop.of_version("2")) == 2, "the new replicas run before their time")
        assert versions(clients.pages) == {"1"}
        new = set(shop.of_version("2").values())
        assert shop.standing("2") == "scheduled"
        assert not new & set(shop.pool())
        until(lambda: "2" in versions(clients.pages), "the switch")
        # Raised before the others are lowered: all of one of the two have weight at any moment that was seen.
        weighted = [{address for address in pool if pool[address]} for pool in clients.pools]
        assert all(set(old.values()) <= some or new <= some for some in weighted), clients.pools
        until(lambda: shop.serves(new), "only the new replicas serve")
        until(lambda: not shop.of_version("1"), "the old ones are stopped")
        until(lambda: shop.standing("1") == "superseded", "the old one is superseded")
        count = clients.pages.copy()
        until(lambda: sum(clients.pages.values()) > sum(count.values()) + 50, "pages go on")
        assert all(clients.pages[page] == count[page] for page in count if page.startswith("version 1"))
    clients.check_all_served(200)
    clients.check_never_empty()
    rows = shop.revisions()
    assert rows["2"]["status"] == "active"
    assert rows["2"]["revision"] == answer["revision"]
    assert rows["2"]["digest"].endswith(digest)
    assert set(rows["2"]["addresses"]) == {f"{address}:8080" for address in new}
    # The old ones are kept, stopped, to go back to.
    assert set(old) < set(shop.containers())


@pytest.mark.parametrize("shop", [IMPATIENT], indirect=True, ids=["tried for 15s"])
def test_a_revision_that_never_becomes_ready_is_never_activated(shop: Shop) -> None:
    shop.publish("2-quiet")
    with shop.watching(), shop.clients() as clients:
        before, starts, serving = shop.started_at(), len(shop.journal("start")), shop.addresses()
        shop.deploy("2-quiet")
        until(lambda: shop.standing("2-quiet") in {"expired", "failed"}, "it is given up")
        until(lambda: shop.containers() == sorted(before), "its replicas are gone")
        assert shop.revisions()["2-quiet"]["why"]
        assert shop.started_at() == before
        assert len(shop.journal("start")) == starts + 2, "both of its replicas ran"
    assert versions(clients.pages) == {"1"}
    assert all(set(pool) <= serving for pool in clients.pools)
    clients.check_all_served(100)
    clients.check_never_empty()


@pytest.mark.parametrize("shop", [IMPATIENT], indirect=True, ids=["tried for 15s"])
def test_an_image_missing_in_the_registry_changes_no_running_container(shop: Shop) -> None:
    with shop.watching(), shop.clients() as clients:
        before = shop.started_at()
        shop.deploy("no-such-version")
        until(lambda: "cannot pull image" in shop.log(), "the pull is refused")
        until(lambda: shop.standing("no-such-version") in {"expired", "failed"}, "it is given up")
        assert shop.started_at() == before
    assert versions(clients.pages) == {"1"}
    clients.check_all_served()
    clients.check_never_empty()


@pytest.mark.parametrize("shop", ["{strategy: recreate}"], indirect=True, ids=["recreate"])
def test_with_recreate_the_old_replica_stays_until_the_new_image_is_pulled(shop: Shop) -> None:
    with shop.watching(), shop.clients() as clients:
        before = shop.started_at()
        shop.deploy("2")
        until(lambda: "cannot pull image" in shop.log(), "the pull is refused")
        assert shop.started_at() == before
        shop.publish("3")
        shop.deploy("3")
        until(lambda: len(shop.of_version("3")) == 2 and not shop.of_version("1"), "both are replaced")
        until(lambda: shop.serves(set(shop.of_version("3").values())), "the new ones serve")
    clients.check_all_served()
    clients.check_never_empty()


def test_a_revision_that_fails_in_its_bake_is_rolled_back_without_a_pull(shop: Shop) -> None:
    # Its replicas must be unavailable for 30 s, which is no field of the manifests: laws test it in virtual time, this test waits.
    shop.publish("2-frail")
    first = shop.ids()
    with shop.watching(), shop.clients() as clients:
        shop.deploy("2-frail")
        until(lambda: shop.standing("2-frail") == "active", "the switch")
        until(lambda: not shop.of_version("1"), "the old ones are stopped")
        shop.registry.stop()
        creations = len(shop.journal("create"))
        for address in shop.of_version("2-frail").values():
            shop.ask(address, "/cgi-bin/unready")
        until(lambda: shop.standing("1") == "active", "it is taken back")
        until(lambda: shop.serves(set(shop.of_version("1").values())), "the old ones serve")
        until(lambda: shop.standing("2-frail") == "failed", "it has failed")
        assert len(shop.journal("create")) == creations
        assert {name: shop.ids()[name] for name in first} == first
    clients.check_all_served(100)
    clients.check_never_empty()
    # The manifest still asks for it, and it is not tried again.
    shop.once(expect=7)
    assert set(shop.of_version("1")) == set(first)


def test_a_manual_rollback_needs_no_registry_and_is_not_undone(shop: Shop) -> None:
    shop.publish("2")
    first = shop.ids()
    with shop.watching(), shop.clients() as clients:
        shop.deploy("2")
        until(lambda: shop.standing("2") == "active", "the switch")
        shop.registry.stop()
        code, out = shop.run("rollback", "workload/web", "--reason", "checkout fails")
        assert code == 0, out
        until(lambda: shop.standing("1") == "active", "it is taken back")
        until(lambda: shop.serves({shop.address(name) for name in first}), "the old ones serve")
        assert {name: shop.ids()[name] for name in first} == first
    clients.check_all_served(100)
    clients.check_never_empty()
    shop.once(expect=7)
    assert set(shop.of_version("1")) == set(first)
