"""The DNS suite on a real PowerDNS server: bare, and through the decorators."""

import pytest

from providers.spi import Context, DNSProvider
from providers.testing.dns_suite import DNSConformance
from providers.testing.faults import faulty, sequence
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned
from tests.providers.dns.powerdns.power_servers import PowerServer


@pytest.mark.server("pdns_server")
class TestPowerDNS(DNSConformance):
    @pytest.fixture(autouse=True)
    def fresh(self, power: PowerServer) -> None:
        self.server, self.zone = power, power.new_zone()

    def make(self, context: Context) -> DNSProvider:
        return self.server.provider()

    def break_reads(self, context: Context) -> None:
        self.server.kill()

    def unreadable_zone(self, context: Context) -> str:
        return "no-such-zone.test."


class TestPowerDNSThroughEveryDecorator(TestPowerDNS):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))
