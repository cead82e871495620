"""The DNS suite on the in-memory and the zone file provider, bare and through each decorator."""

from providers.limited import Limits, limited
from providers.owned import owned
from providers.spi import Context, DNSProvider
from providers.testing.dns_suite import DNSConformance
from providers.testing.faults import faulty, sequence
from providers.testing.memory import MemoryDNS, MemorySettings, MemoryWorld


class TestMemoryDNS(DNSConformance):
    def make(self, context: Context) -> DNSProvider:
        return MemoryDNS("zone", MemorySettings(), context)

    def break_reads(self, context: Context) -> None:
        MemoryWorld.of(context).break_reads("zone")


class TestMemoryDNSThroughEveryDecorator(TestMemoryDNS):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))
