"""The public runtime suite on a real Docker Engine and on Podman."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from docker_engine import Api, container, held, template

from manifests.desired import Port, Template
from providers.runtime.docker import DockerRuntime, DockerSettings
from providers.spi import Context, RuntimeProvider
from providers.testing import runtime_hooks
from providers.testing.runtime_suite import RuntimeConformance


class OnEngine(RuntimeConformance):
    """The suite on the engine at `socket`. Breaking reads means that the socket is gone."""

    socket = ""

    @pytest.fixture(autouse=True)
    def engine(self, tmp_path: Path) -> Iterator[None]:
        raise NotImplementedError

    def use(self, path: str, shared: Path, tmp_path: Path) -> Iterator[None]:
        # The suite's instance is the same in every worker, and there is one engine: one test at a time.
        with held(shared / f"{Path(path).name}.lock"):
            yield from self._use(path, tmp_path)

    def _use(self, path: str, tmp_path: Path) -> Iterator[None]:
        # A link of this test's own to the engine's socket can be broken without breaking the engine.
        link = tmp_path / "engine.sock"
        link.symlink_to(path)
        self.socket = str(link)
        yield
        api = Api(path)
        api.clean(runtime_hooks.INSTANCE)
        api.clean("other")
        api.close()

    def make(self, context: Context) -> RuntimeProvider:
        return DockerRuntime("local", DockerSettings(socket=self.socket), context)

    def template(self) -> Template:
        return template(container(ports=(Port("http", 8080), Port("metrics", 9090))))

    def break_reads(self, context: Context) -> None:
        os.unlink(self.socket)

    def stranger(self, runtime: RuntimeProvider, name: str, labels: Mapping[str, str]) -> bool:
        api = Api(self.socket)
        api.create(name, *container().argv, Labels=dict(labels))
        api.start(name)
        api.close()
        return True

    def forget_stranger(self, runtime: RuntimeProvider, name: str) -> None:
        api = Api(self.socket)
        api.remove(name)
        api.close()

    def crash(self, runtime: RuntimeProvider, name: str) -> None:
        api = Api(self.socket)
        api.kill(name)
        api.close()


@pytest.mark.server("dockerd")
class TestDocker(OnEngine):
    @pytest.fixture(autouse=True)
    def engine(self, docker_socket: str, shared: Path, tmp_path: Path) -> Iterator[None]:
        yield from self.use(docker_socket, shared, tmp_path)


@pytest.mark.server("podman")
class TestPodman(OnEngine):
    @pytest.fixture(autouse=True)
    def engine(self, podman_socket: str, shared: Path, tmp_path: Path) -> Iterator[None]:
        yield from self.use(podman_socket, shared, tmp_path)
