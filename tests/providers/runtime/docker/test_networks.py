"""Networks are created once, and a replica is connected again to a network that it has lost."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from manifests.values.desired import Port
from manifests.values.pod import Mount, VolumeKind
from providers.actions import CreateContainer
from providers.errors import Rejected
from providers.facts import ContainerState, Mark, container_name
from providers.runtime.docker.container import expected_networks, missing_networks
from providers.runtime.docker.inspection import connected_networks
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import Api, container, template


@pytest.mark.parametrize(
    ("mode", "further", "podman", "networks"),
    [
        ("edge", (), False, ("edge",)),
        ("edge", ("logs",), False, ("edge", "logs")),
        ("", (), False, ("bridge",)),
        ("default", (), False, ("bridge",)),
        ("bridge", ("logs",), False, ("bridge", "logs")),
        ("host", (), False, ()),
        ("none", (), False, ()),
        ("container:0123", (), False, ()),
        ("bridge", (), True, ()),
        ("bridge", ("logs",), True, ("logs",)),
        ("slirp4netns:cidr=10.0.0.0/24", (), True, ()),
    ],
)
def test_expected_networks_are_those_that_it_can_be_disconnected_from(
    mode: str, further: tuple[str, ...], podman: bool, networks: tuple[str, ...]
) -> None:
    assert expected_networks(mode, further, podman) == networks
    assert missing_networks(networks, ("else", *networks)) == ()
    assert missing_networks(networks, ("else",)) == tuple(sorted(networks))


def test_a_network_given_by_id_matches_the_network_of_that_id() -> None:
    connected = connected_networks(
        {"edge": {"NetworkID": "0123456789abcdef" * 4}, "logs": {"NetworkID": ""}, "bare": None}
    )
    assert missing_networks(("0123456789abcdef" * 4, "0123456789ab", "edge", "logs", "bare"), connected) == ()
    assert missing_networks(("0123456789ac", "0123", "edg"), connected) == ("0123", "0123456789ac", "edg")


@pytest.mark.server("dockerd")
def test_replicas_created_in_parallel_share_one_network(docker_socket, api: Api, tmp_path: Path):
    instance, network = f"nets-{uuid4().hex[:8]}", f"nets-{uuid4().hex[:8]}"
    settings = DockerSettings(socket=docker_socket)
    runtime = DockerRuntime("local", settings, Context(instance, str(tmp_path)))
    marks = [Mark(instance, "web", ordinal, "0123456789abcdef") for ordinal in range(8)]
    actions = [
        CreateContainer("local", container_name(mark), mark, template(networks=(network,)), str(tmp_path))
        for mark in marks
    ]
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(runtime.perform, actions))
        filters = json.dumps({"name": [network]})
        assert [entry["Name"] for entry in api.link.get("/networks", "test", filters=filters)] == [network]
        for action in actions:
            api.start(action.name)
    finally:
        api.clean(instance)
        api.link.delete(f"/networks/{network}", "test")
        runtime.close()


@pytest.mark.server("dockerd")
def test_missing_networks_and_volumes_are_created(bench: Bench) -> None:
    first, second = bench.network(), bench.network()
    volume = f"{bench.instance}-data"
    made = container("web", mounts=(Mount(VolumeKind.NAMED, volume, "/data"),), ports=(Port("http", 80),))
    fact = bench.run(template(made, networks=(first, second)))
    networks = bench.api.inspect(fact.name)["NetworkSettings"]["Networks"]
    assert set(networks) == {first, second}
    assert fact.address == networks[first]["IPAddress"]
    assert [(port.address, port.port) for port in fact.ports] == [(fact.address, 80)]
    bench.remove(bench.stop(fact))
    assert bench.api.link.get(f"/volumes/{volume}", volume)["Name"] == volume
    bench.api.link.delete(f"/volumes/{volume}", volume)


@pytest.mark.server("dockerd")
def test_a_start_connects_a_network_that_an_interrupted_create_left_out(bench: Bench) -> None:
    first, second = bench.network(), bench.network()
    fact = bench.create(template(networks=(first, second)))
    bench.api.link.post(f"/networks/{second}/disconnect", second, {"Container": fact.name, "Force": True})
    running = bench.start(fact)
    assert set(bench.api.inspect(running.name)["NetworkSettings"]["Networks"]) == {first, second}


@pytest.mark.server("dockerd")
def test_a_start_creates_a_removed_network_again(bench: Bench) -> None:
    network = bench.network()
    fact = bench.stop(bench.run(template(networks=(network,))))
    bench.api.link.delete(f"/networks/{network}", network)
    assert bench.start(fact).address


@pytest.mark.server("dockerd")
def test_a_running_container_is_connected_to_its_lost_networks_again(bench: Bench) -> None:
    first, second = bench.network(), bench.network()
    fact = bench.run(template(networks=(first, second)))
    assert bench.looked(fact.name).unjoined == ()
    bench.disconnect(fact, first)
    bench.disconnect(fact, second)
    lost = bench.looked(fact.name)
    assert (lost.state, lost.generation, lost.unjoined, lost.address) == (
        ContainerState.RUNNING,
        fact.generation,
        tuple(sorted((first, second))),
        "",
    )
    bench.api.link.delete(f"/networks/{first}", first)
    back = bench.join(lost, *lost.unjoined)
    assert (back.generation, back.unjoined) == (fact.generation, ())
    assert back.address == bench.api.inspect(fact.name)["NetworkSettings"]["Networks"][first]["IPAddress"] != ""
    assert bench.join(back, *lost.unjoined) == bench.looked(fact.name)


@pytest.mark.server("dockerd")
def test_a_start_connects_a_network_that_was_lost_while_it_was_down(bench: Bench) -> None:
    network = bench.network()
    fact = bench.stop(bench.run(template(networks=(network,))))
    bench.disconnect(fact, network)
    assert bench.looked(fact.name).unjoined == (network,)
    assert bench.start(bench.fact(fact.name)).address


def test_a_lost_further_network_is_connected_again_on_each_engine(engine: Bench) -> None:
    first, second = engine.network(), engine.network()
    fact = engine.run(template(networks=(first, second)))
    engine.disconnect(fact, second)
    lost = engine.looked(fact.name)
    assert (lost.unjoined, lost.address) == ((second,), fact.address)
    back = engine.join(lost, second)
    assert (back.generation, back.unjoined, back.address) == (fact.generation, (), fact.address)
    assert second in engine.api.inspect(fact.name)["NetworkSettings"]["Networks"]


@pytest.mark.server("dockerd")
def test_the_address_on_a_network_of_no_template_is_not_used(bench: Bench) -> None:
    network, other = bench.network(), bench.network()
    bench.run(template(networks=(other,)), 1)
    fact = bench.run(template(networks=(network,)))
    bench.disconnect(fact, network)
    bench.api.link.post(f"/networks/{other}/connect", other, {"Container": fact.id})
    moved = bench.looked(fact.name)
    assert (moved.address, moved.unjoined) == ("", (network,))
    assert bench.join(moved, network).address == dict(bench.looked(fact.name).addresses)[network]


@pytest.mark.server("dockerd")
def test_a_manifest_may_name_a_network_by_its_id(bench: Bench) -> None:
    network = bench.network()
    bench.run(template(networks=(network,)), 1)
    for number, length in ((2, 64), (3, 12)):
        asked = bench.api.link.get(f"/networks/{network}", network)["Id"][:length]
        fact = bench.run(template(networks=(asked,)), number)
        looked = bench.looked(fact.name)
        assert (looked.unjoined, looked.address) == ((), dict(looked.addresses)[network])


@pytest.mark.server("dockerd")
def test_containers_without_networks_of_their_own_miss_none(bench: Bench) -> None:
    for number, network in enumerate(("host", "none")):
        fact = bench.run(template(networks=(network,)), number)
        assert bench.looked(fact.name).unjoined == ()


@pytest.mark.server("dockerd")
def test_the_address_of_a_stopped_replica_may_go_to_a_foreign_container(bench: Bench) -> None:
    """An engine gives a stopped container's address to the container that starts next."""
    network = bench.network()
    made = template(container(ports=(Port("http", 80),)), networks=(network,))
    fact = bench.run(made)
    stopped = bench.stop(fact)
    assert (stopped.address, stopped.ports) == ("", ())
    stranger = f"{bench.instance}-stranger"
    bench.api.create(stranger, HostConfig={"NetworkMode": network})
    bench.api.start(stranger)
    try:
        theirs = bench.api.inspect(stranger)["NetworkSettings"]["Networks"][network]["IPAddress"]
        assert theirs == fact.address
        assert fact.address not in {other.address for other in bench.runtime.observe() if other.mark is not None}
        assert bench.looked(stranger).address == fact.address
        assert bench.start(stopped).address not in ("", theirs)
    finally:
        bench.api.remove(stranger)


@pytest.mark.parametrize("length", [64, 12])
def test_the_host_network_cannot_be_named_by_its_id(bench: Bench, length: int) -> None:
    host = bench.api.link.get("/networks/host", "host")["Id"]
    with pytest.raises(Rejected, match="is the id of network 'host', which cannot be used"):
        bench.run(template(container("web", "/bin/sleep", "300"), networks=(host[:length],)))
    assert bench.api.names(f"reconciler.instance={bench.instance}") == []
