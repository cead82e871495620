"""One HAProxy for each test module, with all its slots free at the start of each test."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.spi import Context
from tests.providers.endpoints.haproxy.server import HAProxy


@pytest.fixture(scope="module")
def short_directory() -> Iterator[Path]:
    """Paths of Unix sockets are short."""
    with tempfile.TemporaryDirectory(prefix="hap-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def running(short_directory: Path) -> Iterator[HAProxy]:
    server = HAProxy(short_directory)
    yield server
    server.stop()


@pytest.fixture
def haproxy(running: HAProxy) -> HAProxy:
    running.reset()
    return running


@pytest.fixture
def provider(haproxy: HAProxy, tmp_path: Path) -> Callable[..., HAProxyEndpoints]:
    """Makes a provider on that HAProxy; keywords are settings."""

    def make(instance: str = "suite", **settings: object) -> HAProxyEndpoints:
        model = HAProxySettings.model_validate({"sockets": [haproxy.socket], **settings})
        return HAProxyEndpoints("edge", model, Context(instance, str(tmp_path)))

    return make
