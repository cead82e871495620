"""The DNS suite on BIND and Knot: bare, through the decorators, and where transfers are refused."""

import pytest

from providers.spi import Context, DNSProvider
from providers.testing.dns_suite import DNSConformance
from providers.testing.faults import faulty, sequence
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned
from tests.providers.dns.rfc2136.name_servers import NameServer


class Suite(DNSConformance):
    """Each test has a zone of its own on a server that all tests share."""

    server: NameServer
    read_back = "axfr"

    def make(self, context: Context) -> DNSProvider:
        return self.server.provider(context, readBack=self.read_back)

    def break_reads(self, context: Context) -> None:
        self.server.kill()

    def unreadable_zone(self, context: Context) -> str:
        return "broken.test."


@pytest.mark.server("named")
class TestBIND(Suite):
    @pytest.fixture(autouse=True)
    def fresh(self, named: NameServer) -> None:
        self.server, self.zone = named, named.new_zone()


@pytest.mark.server("knotd")
class TestKnot(Suite):
    @pytest.fixture(autouse=True)
    def fresh(self, knot: NameServer) -> None:
        self.server, self.zone = knot, knot.new_zone()


class TestBINDThroughEveryDecorator(TestBIND):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))


class TestKnotThroughEveryDecorator(TestKnot):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))


class TestBINDByQueries(TestBIND):
    read_back = "queries"


class TestKnotByQueries(TestKnot):
    read_back = "queries"
