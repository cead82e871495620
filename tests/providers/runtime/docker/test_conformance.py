"""The public runtime suite on a real Docker Engine and on Podman."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Port, Template
from providers.facts import ContainerFact
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context, RuntimeProvider
from providers.testing import runtime_hooks
from providers.testing.runtime_suite import RuntimeConformance
from tests.providers.runtime.docker.engine import Api, container, held, template


class OnEngine(RuntimeConformance):
    """The suite on the engine at `socket`. Breaking reads means that the socket is gone."""

    socket = ""

    @pytest.fixture(autouse=True)
    def engine(self, tmp_path: Path) -> Iterator[None]:
        raise NotImplementedError

    def use(self, path: str, tmp_path: Path) -> Iterator[None]:
        # The suite's instance is the same in every process, and there is one engine: one test at a time on this machine.
        with held(Path(tempfile.gettempdir()) / f"reconciler-test-{Path(path).name}.lock"):
            self._take_away(path)  # what was killed in the middle of a test has left something
            yield from self._use(path, tmp_path)
            self._take_away(path)

    def _use(self, path: str, tmp_path: Path) -> Iterator[None]:
        # A link of this test's own to the engine's socket can be broken without breaking the engine.
        link = tmp_path / "engine.sock"
        link.symlink_to(path)
        self.socket = str(link)
        yield

    @staticmethod
    def _take_away(path: str) -> None:
        with closing(Api(path)) as api:
            api.clean(runtime_hooks.INSTANCE)
            api.clean(runtime_hooks.OTHER)
            api.remove(runtime_hooks.STRANGER)

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

    def rename(self, runtime: RuntimeProvider, name: str, other: str) -> bool:
        with closing(Api(self.socket)) as api:
            api.link.post(f"/containers/{name}/rename", name, name=other)
        return True

    def crash(self, runtime: RuntimeProvider, name: str) -> None:
        api = Api(self.socket)
        api.kill(name)
        api.close()


@pytest.mark.server("dockerd")
class TestDocker(OnEngine):
    def revive(self, runtime: RuntimeProvider, root: str) -> ContainerFact:
        made = template(container(ports=(Port("http", 8080), Port("metrics", 9090))), restart="unless-stopped")
        action = replace(self.creation(runtime, root), template=made)
        runtime.perform(action)
        fact = self.start(runtime, self.fact_of(runtime, action.name))
        runtime.observe()
        self.crash(runtime, fact.name)
        return fact

    def lose_child(self, runtime: RuntimeProvider, name: str) -> bool:
        fact = self.fact_of(runtime, name)
        with closing(Api(self.socket)) as api:
            limit = {"Memory": 16 << 20, "MemorySwap": 16 << 20}
            api.link.post(f"/containers/{fact.id}/update", name, limit)
            return api.exec(name, "/bin/sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done") == 137

    @pytest.fixture(autouse=True)
    def engine(self, docker_socket: str, tmp_path: Path) -> Iterator[None]:
        yield from self.use(docker_socket, tmp_path)


@pytest.mark.server("podman")
class TestPodman(OnEngine):
    @pytest.fixture(autouse=True)
    def engine(self, podman_socket: str, tmp_path: Path) -> Iterator[None]:
        yield from self.use(podman_socket, tmp_path)
