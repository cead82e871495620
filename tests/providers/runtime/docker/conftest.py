"""Engines as fixtures. Each test has an instance of its own, whose containers are removed afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import Api, ensure_docker, ensure_podman, podman_home


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture(scope="session")
def docker_socket(shared: Path) -> str:
    return ensure_docker(shared)


@pytest.fixture(scope="session")
def podman() -> Iterator[Path]:
    with podman_home() as home:
        yield home


@pytest.fixture
def podman_socket(podman: Path) -> str:
    """Checked for each test: the service exits when it is idle for a while."""
    return ensure_podman(podman)


@pytest.fixture
def api(docker_socket: str) -> Iterator[Api]:
    api = Api(docker_socket)
    yield api
    api.close()


@pytest.fixture
def bench(docker_socket: str, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(docker_socket, tmp_path)
    yield bench
    bench.close()


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.server("dockerd")),
        pytest.param("podman", marks=pytest.mark.server("podman")),
    ]
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A bench on each engine."""
    bench = Bench(request.getfixturevalue(f"{request.param}_socket"), tmp_path)
    yield bench
    bench.close()
