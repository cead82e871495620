"""The DNS suite on the in-memory and the zone file provider, bare and through each decorator."""

from dataclasses import replace
from pathlib import Path

from manifests.values.geo import GeoKind
from providers.capabilities import PLAIN, Alias
from providers.dns.zonefile.provider import ZoneFiles, ZoneFileSettings
from providers.spi import Context, DNSProvider
from providers.testing.dns_suite import DNSConformance
from providers.testing.faults import faulty, sequence
from providers.testing.memory import MemoryDNS, MemorySettings, MemoryWorld
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned


class TestMemoryDNS(DNSConformance):
    def make(self, context: Context) -> DNSProvider:
        return MemoryDNS("zone", MemorySettings(), context)

    def break_reads(self, context: Context) -> None:
        MemoryWorld.of(context).break_reads("zone")

    def unreadable_zone(self, context: Context) -> str:
        MemoryWorld.of(context).break_reads("zone", zone="other.test.")
        return "other.test."


class Narrow(TestMemoryDNS):
    """A provider in memory that is capable of what one of the cloud services is, and of nothing else."""

    __test__ = False
    capabilities = PLAIN

    def make(self, context: Context) -> DNSProvider:
        return MemoryDNS("zone", MemorySettings(), context, capabilities=self.capabilities)


class TestPlainSetsOnly(Narrow):
    __test__ = True


class TestWeightsAlone(Narrow):
    __test__ = True
    capabilities = replace(PLAIN, weight=(1, 100))


class TestPlacesAlone(Narrow):
    __test__ = True
    capabilities = replace(
        PLAIN, geo=frozenset({GeoKind.DEFAULT, GeoKind.CONTINENT, GeoKind.SUBDIVISION}), subdivisions=frozenset({"US"})
    )


class TestPlacesWithoutADefault(Narrow):
    __test__ = True
    capabilities = replace(PLAIN, geo=frozenset({GeoKind.CONTINENT}))


class TestAliasesInTheZoneAlone(Narrow):
    __test__ = True
    capabilities = replace(PLAIN, alias=Alias.ZONE)


class TestFewTypesAndTTLs(Narrow):
    __test__ = True
    capabilities = replace(PLAIN, types=frozenset({"A", "AAAA", "CNAME", "TXT"}), ttl_min=30, ttl_max=86_400)


class TestMemoryDNSThroughEveryDecorator(TestMemoryDNS):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))


class TestZoneFiles(DNSConformance):
    def make(self, context: Context) -> DNSProvider:
        return ZoneFiles("zone", ZoneFileSettings(), context)

    def break_reads(self, context: Context) -> None:
        path = Path(context.state_dir, "zones", "example.test.zone")
        path.write_text(path.read_text().replace("SOA", "SO"))

    def unreadable_zone(self, context: Context) -> str:
        Path(context.state_dir, "zones", "other.test.zone").write_text("$GENERATE 1-3 h$ A 192.0.2.$\n")
        return "other.test."


class TestZoneFilesThroughEveryDecorator(TestZoneFiles):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))
