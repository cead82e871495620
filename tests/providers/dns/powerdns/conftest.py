"""One PowerDNS server for each test process, started when the first test needs it."""

from collections.abc import Iterator

import pytest

from tests.providers.dns.powerdns.power_servers import PowerServer


@pytest.fixture(scope="session")
def power_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerServer]:
    server = PowerServer(tmp_path_factory.mktemp("pdns"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def power(power_server: PowerServer) -> PowerServer:
    """PowerDNS, running, whatever the test before did to it."""
    power_server.start()
    return power_server
