"""The DNS suite on Route 53: bare, and through the decorators."""

import pytest

from providers.spi import Context, DNSProvider
from providers.testing.dns_suite import DNSConformance
from providers.testing.faults import faulty, sequence
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned
from tests.providers.dns.route53.cloud import Cloud, refusal


class TestRoute53(DNSConformance):
    counts = False
    long_set = 400
    """One batch holds 32,000 characters, and a replaced set counts twice."""

    @pytest.fixture(autouse=True)
    def fresh(self, cloud: Cloud) -> None:
        self.cloud, self.zone = cloud, cloud.new_zone()

    def make(self, context: Context) -> DNSProvider:
        return self.cloud.provider()

    def break_reads(self, context: Context) -> None:
        self.cloud.door.fail["list_resource_record_sets"] = refusal("AccessDenied", status=403)

    def unreadable_zone(self, context: Context) -> str:
        return "no-such-zone.test."


class TestRoute53ThroughEveryDecorator(TestRoute53):
    def wrap(self, names: DNSProvider, context: Context) -> DNSProvider:
        return limited(owned(faulty(names, sequence()), context.instance), Limits(workers=1))
