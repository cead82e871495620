"""The endpoint suite on a real HAProxy: bare, with a state file, through each decorator, and on two processes at once."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.spi import Context, EndpointProvider
from providers.testing.endpoint_suite import EndpointConformance
from providers.testing.faults import faulty, sequence
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned
from tests.providers.endpoints.haproxy.server import HAProxy

pytestmark = pytest.mark.server("haproxy")


@pytest.fixture(scope="module")
def second(short_directory: Path) -> Iterator[HAProxy]:
    server = HAProxy(short_directory, name="two")
    yield server
    server.stop()


class TestHAProxy(EndpointConformance):
    @pytest.fixture(autouse=True)
    def world(self, haproxy: HAProxy) -> None:
        self.servers = [haproxy]

    def make(self, context: Context) -> EndpointProvider:
        links = [self.link(context, server) for server in self.servers]
        for link, server in zip(links, self.servers, strict=True):
            if not link.is_symlink():
                link.symlink_to(server.socket)
        settings = {"sockets": [str(link) for link in links], **self.settings()}
        return HAProxyEndpoints("edge", HAProxySettings.model_validate(settings), context)

    def settings(self) -> dict[str, object]:
        return {}

    def break_reads(self, context: Context) -> None:
        link = self.link(context, self.servers[-1])
        link.unlink()
        link.symlink_to("/nonexistent")

    def link(self, context: Context, server: HAProxy) -> Path:
        """A name of the socket for this test alone."""
        name = hashlib.sha256(context.state_dir.encode()).hexdigest()[:8]
        return server.directory / f"{name}.{Path(server.socket).stem}"


class TestHAProxyThroughEveryDecorator(TestHAProxy):
    def settings(self) -> dict[str, object]:
        return {"stateFile": self.servers[0].state}

    def wrap(self, endpoints: EndpointProvider, context: Context) -> EndpointProvider:
        return limited(owned(faulty(endpoints, sequence()), context.instance), Limits(workers=1))


class TestHAProxyOwned(TestHAProxy):
    """It says that it checks ownership itself; so the decorator lets it."""

    def wrap(self, endpoints: EndpointProvider, context: Context) -> EndpointProvider:
        return owned(endpoints, context.instance)


class TestTwoHAProxies(TestHAProxy):
    @pytest.fixture(autouse=True)
    def world(self, haproxy: HAProxy, second: HAProxy) -> None:
        second.reset()
        self.servers = [haproxy, second]
