"""The DNS suite on the in-memory and the zone file provider, bare and through each decorator."""

from pathlib import Path

from providers.dns.zonefile import ZoneFiles, ZoneFileSettings
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


class TestZoneFiles(DNSConformance):
    def make(self, context: Context) -> DNSProvider:
        return ZoneFiles("zone", ZoneFileSettings(), context)

    def break_reads(self, context: Context) -> None:
        path = Path(context.state_dir, "zones", "example.test.zone")
        path.write_text(path.read_text().replace("SOA", "SO"))


class TestZoneFilesThroughEveryDecorator(TestZoneFiles):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))
