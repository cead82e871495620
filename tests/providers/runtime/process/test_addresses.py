"""Each replica has its own loopback address, on which its ports are free."""

import socket

import pytest
from pydantic import ValidationError

from manifests.values.desired import Port
from providers.errors import Rejected, Unreachable
from providers.facts import ContainerState
from providers.runtime.process.runtime import ProcessSettings

ONE_PORT = (Port("http", 8080),)


def test_every_replica_of_all_nodes_has_its_own_address(bench):
    settings = {"addressRange": "127.90.0.0/28"}
    addresses = []
    for node in ("local", "second"):
        bench.node = node
        for ordinal in range(7):
            action = bench.creation(ordinal=ordinal, ports=ONE_PORT)
            bench.runtime(**settings).perform(action)
        addresses += [fact.address for fact in bench.runtime().observe()]
    assert sorted(addresses, key=lambda text: int(text.split(".")[3])) == [f"127.90.0.{n}" for n in range(1, 15)]
    with pytest.raises(Rejected, match="larger addressRange"):
        bench.runtime(**settings).perform(bench.creation(ordinal=7, ports=ONE_PORT))


def test_an_address_whose_port_is_in_use_is_skipped(bench):
    first = bench.create(ports=ONE_PORT)
    bench.remove(first)
    with socket.socket() as other:
        other.bind((first.address, 8080))
        other.listen()
        assert bench.create(ports=ONE_PORT).address != first.address


def test_a_port_in_use_on_all_addresses_is_named(bench):
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Unreachable, match=f"0.0.0.0:{port}"):
            bench.create(ports=(Port("http", port),))
    assert bench.runtime().observe() == ()


@pytest.mark.parametrize("value", ["10.0.0.0/8", "127.0.0.1/32", "127.0.0.0/7", "nonsense", "127.64.0.1/10"])
def test_an_unusable_address_range_is_refused(value):
    with pytest.raises(ValidationError):
        ProcessSettings.model_validate({"addressRange": value})


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValidationError):
        ProcessSettings.model_validate({"adressRange": "127.64.0.0/10"})


def test_a_port_taken_since_the_create_is_named(bench):
    created = bench.create(ports=(Port("http", 8080),))
    with socket.socket() as other:
        other.bind((created.address, 8080))
        other.listen()
        with pytest.raises(Unreachable, match=f"{created.address}:8080 is in use"):
            bench.start(created)
    assert bench.start(created).state is ContainerState.RUNNING
