"""`type: docker`: replicas as containers of a Docker Engine or Podman on this host, over its unix socket.

`observe.py` reads (`inspection.py`, `container.py` and `fact.py` lead from the engine's JSON to a fact), `create.py` creates,
`lifecycle.py` starts, stops, removes and updates in place, `pull.py` pulls images, `exec_probe.py` runs exec probes, `doctor.py`
checks the engine, `events.py` and `exit_watch.py` hint at changes. The `docker` package is loaded with the first call.
"""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from manifests.values.desired import Role, Template
from manifests.values.pod import ENGINE_FIELDS
from providers.actions import CreateContainer, RemoveContainer, RuntimeAction, StartContainer, StopContainer
from providers.errors import Gone, ProviderError, Rejected, Unreachable
from providers.facts import ContainerFact
from providers.lib.shapes import expected_shape
from providers.runtime.docker import exec_probe
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.create import Creator
from providers.runtime.docker.doctor import problems_of, warnings_of
from providers.runtime.docker.events import Listener
from providers.runtime.docker.exec_watch import ExecWatch
from providers.runtime.docker.exit_watch import ExitWatch
from providers.runtime.docker.lifecycle import Lifecycle
from providers.runtime.docker.logs import read_lines
from providers.runtime.docker.observe import Observer
from providers.runtime.docker.own_stops import OwnStops
from providers.runtime.docker.pull import Images, Registry
from providers.spi import Context, ExecTarget

DEFAULT_SOCKET = "/var/run/docker.sock"


class DockerSettings(BaseModel):
    """Settings of a Docker or Podman runtime."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    socket: str = Field(
        default=DEFAULT_SOCKET,
        description="Absolute path of the engine's unix socket on this host; Podman's is /run/podman/podman.sock.",
    )
    address: IPv4Address | IPv6Address | None = Field(
        default=None,
        description="Address under which balancers and clients reach this host. Used for ports that are published on all "
        "addresses; without it such a port has the address 127.0.0.1, which only programs on this host can reach.",
    )
    registries: tuple[Registry, ...] = Field(default=(), description="Logins for registries.")

    @field_validator("socket")
    @classmethod
    def _local(cls, value: str) -> str:
        path = value.removeprefix("unix://")
        if "://" in path:
            raise ValueError(
                f"{value} is not a unix socket of this host; containers on other hosts cannot be probed from here"
            )
        if not os.path.isabs(path) or "\0" in path:
            raise ValueError(f"{value!r} is not an absolute path; use one such as {DEFAULT_SOCKET}")
        return path

    @field_validator("address")
    @classmethod
    def _host_address(cls, value: IPv4Address | IPv6Address | None) -> IPv4Address | IPv6Address | None:
        if value is not None and (value.is_unspecified or value.is_multicast):
            raise ValueError(
                f"{value} is not the address of a host; set the address under which others reach this host"
            )
        return value

    @field_validator("registries")
    @classmethod
    def _unique(cls, value: tuple[Registry, ...]) -> tuple[Registry, ...]:
        servers = [registry.server for registry in value]
        if len(set(servers)) < len(servers):
            raise ValueError("a registry is listed twice; give each registry one login")
        return value


class DockerRuntime:
    """Runs replicas as containers; see the module docstring."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = DockerSettings
    supports: ClassVar[frozenset[str]] = ENGINE_FIELDS
    """All fields of a pod template."""

    requires: ClassVar[frozenset[str]] = frozenset({"image"})

    def __init__(self, name: str, settings: BaseModel, context: Context) -> None:
        self.name = name
        docker_settings = DockerSettings.model_validate(settings)
        self._socket = docker_settings.socket
        self._client = EngineClient(name, docker_settings.socket)
        stops = OwnStops(name, context.state_dir)
        self._observer = Observer(
            self._client,
            stops,
            str(docker_settings.address or ""),
            compare_secrets=context.compare_secrets,
            setups=context.setups,
        )
        self._images = Images(self._client, docker_settings.registries)
        self._creator = Creator(self._client, self._observer, self._images)
        self._lifecycle = Lifecycle(self._client, self._observer, stops, self._creator.network)
        self._instance = context.instance
        self._exec_watch = ExecWatch(docker_settings.socket)
        self._callbacks: list[Callable[[], None]] = []
        self._listeners: list[Listener] = []

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All containers of this node, or those of `names`, in the order of their names. Raises Unreachable."""
        with expected_shape(self.name, "the engine"):
            if names is not None:
                return self._observer.named(names)
            facts = self._observer.all()
        if self._observer.take_exit_hint():
            self._hint()
        return facts

    def perform(self, action: RuntimeAction) -> None:
        """Do one action; a stop blocks for its grace period, a creation for at most 15 s of pulling."""
        if action.node != self.name:
            raise Rejected(action.name, f"the action is for node {action.node}, this is {self.name}")
        if isinstance(action, CreateContainer):
            self._creator.create(action)
        elif isinstance(action, StartContainer):
            self._lifecycle.start(action)
        elif isinstance(action, StopContainer):
            self._lifecycle.stop(action)
        elif isinstance(action, RemoveContainer):
            self._lifecycle.remove(action)
        else:
            self._lifecycle.update(action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """The command that runs `argv` inside a container (by name or id): `exec_probe.py`, which asks the engine.

        Raises Gone, Rejected, Unreachable.
        """
        with expected_shape(container, "the engine"):
            target = self._observer.container(container)
        if target is None:
            raise Gone(container, f"container does not exist on {self.name}", "retried automatically")
        if not argv or not argv[0]:
            raise Rejected(container, "the command is empty", "set at least the program")
        # Isolated and without site packages: it starts in a few milliseconds and uses only the standard library.
        probe = (sys.executable, "-I", "-S", exec_probe.__file__, self._socket, target.id, self._watch_name())
        return ExecTarget((*probe, *argv), (("PATH", os.defpath),), "/")

    def _watch_name(self) -> str:
        """The socket where probes register their commands; empty while none can be opened (no descriptor is free)."""
        try:
            return self._exec_watch.name()
        except OSError:
            return ""

    def logs(self, container: str, lines: int, until: int = 0) -> tuple[str, ...]:
        """The last output lines, of earlier generations too; empty when there are none. Raises Unreachable."""
        try:
            return read_lines(self._client, container, lines, until)
        except Gone:
            return ()
        except Unreachable:
            raise
        except ProviderError:  # the logging driver keeps no lines
            return ()

    def check(self, templates: Sequence[Template] = ()) -> tuple[str, ...]:
        """Problems of the engine, and what these templates need and the node lacks; reads only, empty without problems."""
        return problems_of(self._client, self._observer, self._images, templates)

    def warnings(self, templates: Sequence[Template] = ()) -> tuple[str, ...]:
        """What these templates cost on this engine; reads only. Raises ProviderError."""
        return warnings_of(self._client, self._observer, templates)

    def progress(self) -> tuple[str, ...]:
        """Progress of the pulls under way; empty without any. Does not ask the engine, so it returns at once."""
        return self._images.progress()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from another thread, whenever a container may have changed; until `close`. A hint, no proof."""
        self._callbacks.append(changed)
        self._listeners.append(Listener(self._socket, self._instance, changed))
        if self._observer.exits is None:
            with suppress(OSError):  # the engine reports exits as well, only later
                self._observer.exits = ExitWatch(self._hint)

    def _hint(self) -> None:
        for changed in self._callbacks:
            changed()

    def close(self) -> None:
        """Close the connections. Containers and pulls continue."""
        for listener in self._listeners:
            listener.close()
        if self._observer.exits is not None:
            self._observer.exits.close()
        self._exec_watch.close()
        self._images.close()
        self._client.close()
