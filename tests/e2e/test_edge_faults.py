"""Faults on real servers: a clear message, the right exit code, and running containers stay."""

import pytest

from tests.e2e.edge_world import IMAGE, World, servers, until

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy"), pytest.mark.server("named")]


def unchanged(world: World, before: dict[str, str]) -> None:
    """All containers have the same generation as before, and all serve."""
    after = world.started_at()
    assert {name: after.get(name) for name in before} == before
    assert world.serves({world.address(name) for name in before})


def test_a_missing_image_is_reported_and_running_containers_stay(converged: World):
    world = converged
    before = world.started_at()
    world.edit(f"image: {IMAGE}", "image: reconciler-test/web:no-such-tag")
    out = world.once("--timeout", "5s", expect=6)
    assert "image docker.io/reconciler-test/web:no-such-tag is not on local" in out
    unchanged(world, before)
    assert world.containers() == sorted(before)

    world.edit("imagePullPolicy: Never", "imagePullPolicy: IfNotPresent")
    world.edit("image: reconciler-test/web:no-such-tag", "image: 127.0.0.1:9/web:1")
    out = world.once("--timeout", "5s", expect=6)
    assert "127.0.0.1:9/web:1" in out
    unchanged(world, before)

    world.edit("image: 127.0.0.1:9/web:1", f"image: {IMAGE}")
    world.edit("imagePullPolicy: IfNotPresent", "imagePullPolicy: Never")
    world.once()
    unchanged(world, before)


def test_a_foreign_container_of_the_same_name_is_left_alone(edge: World):
    world = edge
    code, plan = world.run("plan")
    assert code == 0, plan
    name = next(word for word in plan.split() if word.startswith(f"{world.id}-web-") and word.endswith("-1"))
    foreign = world.api.create(name, "/bin/sleep", "1000", image=IMAGE)
    try:
        out = world.once("--timeout", "10s", expect=7)
        assert f"create {name} (NameTaken" in out, out
        assert out.count(f": create {name} on") <= 1, out
        assert world.api.inspect(name)["Id"] == foreign
        assert world.api.inspect(name)["State"]["Status"] == "created"
        assert len(world.containers()) == 2
        assert world.serves(world.addresses())
    finally:
        world.api.remove(name)
    world.once()
    world.settle()


def test_a_container_of_an_image_committed_from_a_replica_is_foreign(converged: World):
    world = converged
    before = world.started_at()
    tag = f"edge-committed-{world.id}:1"
    repo, _, version = tag.partition(":")
    committed = world.api.link.post("/commit", tag, {}, container=min(before), repo=repo, tag=version)
    copy = f"copy-{world.id}"
    try:
        world.api.create(copy, "/serve", image=tag, HostConfig={"NetworkMode": world.network})
        world.api.start(copy)
        inherited = world.api.inspect(copy)["Config"]["Labels"]
        assert inherited["reconciler.instance"] == world.id
        address, start = world.address(copy), world.api.inspect(copy)["State"]["StartedAt"]
        out = world.once()
        assert "nothing to do" in out
        assert address not in world.pool()
        assert address not in world.names()
        world.once("--prune", "--take-over")
        code, out = world.run("destroy", "--yes")
        assert code == 0, out
        assert world.containers() == [copy]
        assert world.api.inspect(copy)["State"]["StartedAt"] == start
    finally:
        world.api.remove(copy)
        world.api.link.delete(f"/images/{committed['Id']}", tag, force="1")


def test_a_container_removed_between_plan_and_apply_is_created_again(converged: World):
    world = converged
    before = world.started_at()
    world.edit("command: [/serve]", "command: [/serve, second]")
    code, plan = world.run("plan", "--detailed-exitcode")
    assert code == 2, plan
    world.api.remove(min(before))
    out = world.once("--timeout", "60s")
    world.settle()
    assert not set(before) & set(world.containers()), out


def test_only_a_container_removed_under_a_daemon_is_created_again(converged: World):
    world = converged
    before = world.started_at()
    gone = min(before)
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        world.api.remove(gone)
        until(lambda: gone in world.containers(), "it was made again")
        world.settle()
    clients.check_never_empty()
    after = world.started_at()
    assert {name for name in before if after[name] != before[name]} == {gone}
    assert ": stop " not in world.log()


def test_the_slot_of_a_dead_generation_has_weight_0_before_any_start(converged: World):
    world = converged
    gone = min(world.containers())
    address = world.address(gone)
    world.api.remove(gone)
    # A foreign container gets the address of the removed one: engines reuse addresses at once.
    foreign = f"foreign-{world.id}"
    try:
        world.api.create(foreign, "/serve", image=IMAGE, HostConfig={"NetworkMode": world.network})
        world.api.start(foreign)
        assert world.address(foreign) == address
        out = world.once()
        lines = [line for line in out.splitlines() if line.startswith("done")]
        cut = next(n for n, line in enumerate(lines) if f"weight 100 -> 0 {address}:8080" in line)
        assert cut < min(n for n, line in enumerate(lines) if ": start " in line), out
        with world.clients() as clients:
            until(lambda: len(clients.pages) == 3, "all three serve pages")
        clients.check_all_served(1)
        assert address not in world.pool()
        assert address not in world.names()
        me = world.api.inspect(foreign)
        assert f"hello from {me['Config']['Hostname']}" not in clients.pages
        assert me["State"]["Running"]
    finally:
        world.api.remove(foreign)


def test_a_reload_of_haproxy_and_its_death_lose_no_weight(converged: World):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    victim = world.address(min(before))
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        servers.reload_haproxy(world.edge)
        until(lambda: world.serves(everyone), "all three are in the pool after the reload")
        # The daemon speaks to the new process: what it decides now takes effect there.
        world.ask(victim, "/cgi-bin/unready")
        until(lambda: not world.pool().get(victim), "the weight is 0 in the new process")
        world.ask(victim, "/cgi-bin/ready")
        until(lambda: world.serves(everyone), "all three serve again")
    clients.check_all_served()
    clients.check_never_empty()

    with world.watching():
        world.kill("haproxy")
        until(lambda: "PoolUnknown" in world.log(), "the pool is unknown")
        world.ask(victim, "/cgi-bin/unready")
        assert world.names() <= everyone
        servers.start_haproxy(world.edge)
        until(lambda: not world.pool().get(victim) and len(world.pool()) >= 2, "the others are back, it is not")
        world.ask(victim, "/cgi-bin/ready")
        until(lambda: world.serves(everyone), "all three serve again")
    assert world.started_at() == before


def test_without_a_name_server_names_are_unknown_and_the_rest_converges(converged: World):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    address = world.address(victim)
    world.kill("named")
    world.ask(address, "/cgi-bin/break")
    out = world.once("--timeout", "25s", expect=6)
    assert "cannot be read: names/edge.test." in out
    after = world.started_at()
    assert {name for name in after if after[name] != before[name]} == {victim}, out
    assert world.pool() == dict.fromkeys(everyone, 100)
    servers.start_named(world.edge)
    world.once()
    assert world.serves(everyone)


def test_a_wrong_key_is_reported_and_changes_nothing(converged: World):
    world = converged
    before = world.started_at()
    key = world.directory / "update.key"
    right = key.read_text()
    wrong = "d3Jvbmctc2VudGluZWwtc2VjcmV0LXRoYXQtaXMtbm90LWl0"
    key.write_text(f"{wrong}\n")
    out = world.once("--timeout", "10s", expect=6)
    assert "edge-key" in out
    assert wrong not in out
    assert right.strip() not in out
    key.write_text(right)
    world.once()
    unchanged(world, before)
