"""Worlds for the end-to-end tests on real servers. One Docker daemon serves all workers of a run."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.edge_world import World, engine_with_image, podman_home, podman_with_image
from tests.e2e.quickstart_world import World as Quickstart


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Quickstart]:
    """The quickstart on a machine of its own; its remaining processes are killed."""
    made = Quickstart(tmp_path)
    yield made
    for pid in made.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    made.claim.drop()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture(scope="session")
def engine(shared: Path) -> str:
    """The socket of a Docker daemon that has the example's image."""
    return engine_with_image(shared)


@pytest.fixture(scope="session")
def podman() -> Iterator[Path]:
    """The directory of a Podman service of this test process."""
    with podman_home() as home:
        yield home


@pytest.fixture
def edge(engine: str) -> Iterator[World]:
    """The example, with its servers running and nothing in them yet."""
    world = World(engine)
    try:
        world.start_servers()
        yield world
    finally:
        world.close()


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.server("dockerd")),
        pytest.param("podman", marks=pytest.mark.server("podman")),
    ]
)
def bare(request: pytest.FixtureRequest) -> Iterator[World]:
    """The example's servers with nothing in them yet, on each engine."""
    docker = request.param == "docker"
    world = World(request.getfixturevalue("engine") if docker else podman_with_image(request.getfixturevalue("podman")))
    try:
        world.start_servers()
        yield world
    finally:
        world.close()


@pytest.fixture
def converged(edge: World) -> World:
    """The example with three containers that serve."""
    edge.once()
    edge.settle()
    return edge
