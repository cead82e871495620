"""One nginx for each test module, with no pool at the start of each test."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.endpoints.nginx.provider import NginxEndpoints
from providers.endpoints.nginx.settings import NginxSettings
from providers.spi import Context
from tests.providers.endpoints.nginx.server import Nginx


@pytest.fixture(scope="module")
def running_nginx() -> Iterator[Nginx]:
    with tempfile.TemporaryDirectory(prefix="ngx-") as directory:
        server = Nginx(Path(directory))
        yield server
        server.stop()


@pytest.fixture
def nginx(running_nginx: Nginx) -> Nginx:
    stale = list(running_nginx.pools.iterdir())
    for path in stale:
        path.unlink()
    running_nginx.write_main()
    running_nginx.pid_file.write_text(f"{running_nginx.process.pid}\n")
    if stale:
        running_nginx.reload()
    return running_nginx


def settings_of(nginx: Nginx, **more: object) -> NginxSettings:
    paths = {"directory": str(nginx.pools), "configuration": str(nginx.main), "pidFile": str(nginx.pid_file)}
    more = {"reloadInterval": "100ms", **more}
    return NginxSettings.model_validate({**paths, **more})


@pytest.fixture
def pools(nginx: Nginx, tmp_path: Path) -> Callable[..., NginxEndpoints]:
    """Makes a provider on that nginx, as local documents or (not `local`) a tree declare it; keywords are settings."""

    def make(instance: str = "suite", *, local: bool = True, **more: object) -> NginxEndpoints:
        return NginxEndpoints("edge", settings_of(nginx, **more), Context(instance, str(tmp_path), local))

    return make
