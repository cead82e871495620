"""The endpoint suite on the in-memory and the file provider, bare and through each decorator."""

from pathlib import Path

from providers.endpoints.file.provider import FileEndpoints, FileSettings
from providers.spi import Context, EndpointProvider
from providers.testing.endpoint_suite import EndpointConformance
from providers.testing.faults import faulty, sequence
from providers.testing.memory import MemoryEndpoints, MemorySettings, MemoryWorld
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned


class TestMemoryEndpoints(EndpointConformance):
    def make(self, context: Context) -> EndpointProvider:
        return MemoryEndpoints("edge", MemorySettings(), context)

    def break_reads(self, context: Context) -> None:
        MemoryWorld.of(context).break_reads("edge")


class TestMemoryEndpointsThroughEveryDecorator(TestMemoryEndpoints):
    def wrap(self, endpoints: EndpointProvider, context: Context) -> EndpointProvider:
        return limited(owned(faulty(endpoints, sequence()), context.instance), Limits(workers=1))


class TestFileEndpoints(EndpointConformance):
    cuts_sessions = False

    def make(self, context: Context) -> EndpointProvider:
        return FileEndpoints("edge", FileSettings(), context)

    def break_reads(self, context: Context) -> None:
        Path(context.state_dir, "pools", "web.json").write_text('{"format_version": 1, "pool": "web", "members": [')


class TestFileEndpointsThroughEveryDecorator(TestFileEndpoints):
    def wrap(self, endpoints: EndpointProvider, context: Context) -> EndpointProvider:
        return limited(owned(faulty(endpoints, sequence()), context.instance), Limits(workers=1))
