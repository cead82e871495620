"""One BIND and one Knot for each test process, started when the first test needs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.providers.dns.rfc2136.name_servers import Knot, Named, NameServer


def _running(make: type[NameServer], directory: Path) -> Iterator[NameServer]:
    server = make(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def named_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    yield from _running(Named, tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="session")
def knot_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    yield from _running(Knot, tmp_path_factory.mktemp("knot"))


@pytest.fixture
def named(named_server: NameServer) -> NameServer:
    """BIND, running, whatever the test before did to it."""
    named_server.start()
    return named_server


@pytest.fixture
def knot(knot_server: NameServer) -> NameServer:
    """Knot, running, whatever the test before did to it."""
    knot_server.start()
    return knot_server
