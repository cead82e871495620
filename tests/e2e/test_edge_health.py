"""Health on real containers, a real balancer and a real name server: one decision drives all three."""

import pytest

from tests.e2e.edge_world import World, until

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy"), pytest.mark.server("named")]


def test_an_unhealthy_container_leaves_service_is_restarted_and_returns(converged: World):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    address = world.address(victim)
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        world.ask(address, "/cgi-bin/break")
        until(lambda: world.started_at()[victim] != before[victim], "it was restarted")
        until(lambda: world.serves(everyone), "all three serve again")
    clients.check_all_served()
    clients.check_never_empty()
    assert any(not pool.get(address) for pool in clients.pools), clients.pools
    assert everyone - {address} in clients.names, clients.names
    after = world.started_at()
    assert {name for name in after if after[name] != before[name]} == {victim}
    log = world.log()
    assert log.index(f"weight 100 -> 0 {address}") < log.index(f": stop {victim}") < log.index(f": start {victim}")


def test_failing_readiness_ends_service_of_a_replica_without_a_restart(
    converged: World,
):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    address = world.address(victim)
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        world.ask(address, "/cgi-bin/unready")
        until(lambda: not world.pool().get(address), "its weight is 0")
        until(lambda: world.names() == everyone - {address}, "it has left the name")
        world.ask(address, "/cgi-bin/ready")
        until(lambda: world.serves(everyone), "all three serve again")
    clients.check_all_served()
    clients.check_never_empty()
    assert world.started_at() == before


def test_a_container_off_its_network_is_reconnected_without_a_restart(
    converged: World,
):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        world.api.link.post(f"/networks/{world.network}/disconnect", victim, {"Container": victim, "Force": True})
        until(lambda: world.address(victim) and world.serves(world.addresses()), "all three serve again")
    clients.check_never_empty()
    assert len(world.addresses()) == len(everyone)
    assert world.started_at() == before
    assert f"update {victim}: connect to {world.network}" in world.log()
    assert "(NetworkLost: no longer connected to" in world.log()


def test_pool_and_name_stay_as_they_are_when_all_fail_their_readiness(converged: World):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    with world.watching(), world.clients() as clients:
        first, *others = sorted(everyone)
        for address in others:
            world.ask(address, "/cgi-bin/unready")
        until(lambda: world.names() == {first}, "one is left in the name")
        world.ask(first, "/cgi-bin/unready")
        until(lambda: "LastMember" in world.log() and "LastRecord" in world.log(), "the reasons are logged")
        assert world.names() == {first}
        assert world.pool()[first], "the last one keeps its weight; others do as well while most of them fail"
        for address in everyone:
            world.ask(address, "/cgi-bin/ready")
        until(lambda: world.serves(everyone), "all three serve again")
    clients.check_all_served()
    clients.check_never_empty()
    assert world.started_at() == before


def test_a_template_change_rolls_without_a_failed_request(converged: World):
    world = converged
    before = world.containers()
    with world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        world.edit("command: [/serve]", "command: [/serve, second]")
        out = world.once("--timeout", "60s")
        world.settle()
        until(lambda: len(clients.pages) >= 6, "the new ones serve pages")
    clients.check_all_served()
    clients.check_never_empty()
    after = world.containers()
    assert len(after) == 3
    assert not set(before) & set(after)
    for old in before:
        assert out.index(f": stop {old}") < out.index(f": remove {old}")


def test_containers_that_all_stop_at_once_are_started_together(converged: World):
    world = converged
    before = world.started_at()
    with world.watching():
        world.at_once("stop", before)
        until(
            lambda: all(start != before[name] for name, start in world.started_at().items()), "all were started again"
        )
        world.settle()
    log = world.log()
    assert ": stop " not in log
    assert world.starts_overlap(3), world.journal("start")


@pytest.mark.parametrize("act", ["stop", "kill"])
def test_a_run_after_a_reboot_starts_everything_at_once(converged: World, act: str):
    world = converged
    before = world.started_at()
    world.at_once(act, before)
    out = world.once()
    world.settle()
    after = world.started_at()
    assert set(after) == set(before)
    assert all(after[name] != before[name] for name in before)
    assert ": stop " not in out
    assert world.starts_overlap(3), world.journal("start")
