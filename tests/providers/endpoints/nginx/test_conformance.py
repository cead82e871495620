"""The endpoint suite on a real nginx, bare and through each decorator."""

from pathlib import Path

import pytest

from providers.endpoints.nginx.provider import NginxEndpoints
from providers.endpoints.nginx.settings import NginxSettings
from providers.spi import Context, EndpointProvider
from providers.testing.endpoint_suite import EndpointConformance
from providers.testing.faults import faulty, sequence
from providers.wrappers.limited import Limits, limited
from providers.wrappers.owned import owned
from tests.providers.endpoints.nginx.server import Nginx

pytestmark = pytest.mark.server("nginx")


class TestNginx(EndpointConformance):
    cuts_sessions = False

    @pytest.fixture(autouse=True)
    def world(self, nginx: Nginx) -> None:
        self.nginx = nginx

    def make(self, context: Context) -> EndpointProvider:
        settings = {
            "directory": str(self.nginx.pools),
            "configuration": str(self.nginx.main),
            "pidFile": str(self.nginx.pid_file),
        }
        return NginxEndpoints("edge", NginxSettings.model_validate(settings), context)

    def break_reads(self, context: Context) -> None:
        Path(self.nginx.pools, "web.conf").write_text("upstream web {\n    # reconciler begin suite\n")


class TestNginxThroughEveryDecorator(TestNginx):
    def wrap(self, endpoints: EndpointProvider, context: Context) -> EndpointProvider:
        return limited(owned(faulty(endpoints, sequence()), context.instance), Limits(workers=1))
