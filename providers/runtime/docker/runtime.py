"""`type: docker`: replicas as containers of a Docker Engine or Podman on this host, over its unix socket.

What happens where: `docker_look.py` reads, `docker_create.py` creates, `docker_act.py` starts, stops, removes and changes in
place, `docker_image.py` pulls, `docker_check.py` answers the doctor, `docker_events.py` and `docker_ends.py` hint at changes. The `docker` package is loaded with the first call.
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
from providers.runtime.docker import exec_helper
from providers.runtime.docker.client import Link
from providers.runtime.docker.create import Creator
from providers.runtime.docker.doctor import problems_of
from providers.runtime.docker.events import Listener
from providers.runtime.docker.exec_watch import ExecWatch
from providers.runtime.docker.exits import Ends
from providers.runtime.docker.lifecycle import Actor
from providers.runtime.docker.logs import read_lines
from providers.runtime.docker.observe import Looks
from providers.runtime.docker.own_stops import Stops
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
        description="Address under which balancers and clients reach this host. It stands for a port that is published on "
        "all addresses; without it such a port is known at 127.0.0.1, which only programs on this host can use.",
    )
    registries: tuple[Registry, ...] = Field(default=(), description="How to log in to registries.")

    @field_validator("socket")
    @classmethod
    def _local(cls, value: str) -> str:
        path = value.removeprefix("unix://")
        if "://" in path:
            raise ValueError(
                f"{value} is not a unix socket of this host, and containers elsewhere cannot be probed from here"
            )
        if not os.path.isabs(path) or "\0" in path:
            raise ValueError(f"{value!r} is not an absolute path, such as {DEFAULT_SOCKET}")
        return path

    @field_validator("address")
    @classmethod
    def _an_address(cls, value: IPv4Address | IPv6Address | None) -> IPv4Address | IPv6Address | None:
        if value is not None and (value.is_unspecified or value.is_multicast):
            raise ValueError(f"{value} is not the address of a host; write the one that others use to reach it")
        return value

    @field_validator("registries")
    @classmethod
    def _once(cls, value: tuple[Registry, ...]) -> tuple[Registry, ...]:
        servers = [one.server for one in value]
        if len(set(servers)) < len(servers):
            raise ValueError("a registry is in the list twice")
        return value


class DockerRuntime:
    """Runs replicas as containers; see the module."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = DockerSettings
    supports: ClassVar[frozenset[str]] = ENGINE_FIELDS
    """All fields of a pod template that there are."""

    requires: ClassVar[frozenset[str]] = frozenset({"image"})

    def __init__(self, name: str, settings: BaseModel, context: Context) -> None:
        self.name = name
        found = DockerSettings.model_validate(settings)
        self._socket = found.socket
        self._link = Link(name, found.socket)
        stops = Stops(name, context.state_dir)
        self._looks = Looks(self._link, stops, str(found.address or ""))
        self._images = Images(self._link, found.registries)
        self._creator = Creator(self._link, self._looks, self._images)
        self._actor = Actor(self._link, self._looks, stops, self._creator.network)
        self._instance = context.instance
        self._watch = ExecWatch(found.socket)
        self._changed: list[Callable[[], None]] = []
        self._listeners: list[Listener] = []

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All containers of this node, or those of `names`, in the order of their names. Raises Unreachable."""
        if names is not None:
            return self._looks.named(names)
        facts = self._looks.all()
        if self._looks.take_again():
            self._tell()
        return facts

    def perform(self, action: RuntimeAction) -> None:
        """Do one action; a stop blocks for its grace, a creation for at most 15 s of pulling."""
        if action.node != self.name:
            raise Rejected(action.name, f"the action is for node {action.node}, this is {self.name}")
        if isinstance(action, CreateContainer):
            self._creator.create(action)
        elif isinstance(action, StartContainer):
            self._actor.start(action)
        elif isinstance(action, StopContainer):
            self._actor.stop(action)
        elif isinstance(action, RemoveContainer):
            self._actor.remove(action)
        else:
            self._actor.update(action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """How to run `argv` inside that container (its name or id): by a helper that asks the engine to.

        Raises Gone, Rejected, Unreachable.
        """
        life = self._looks.life(container)
        if life is None:
            raise Gone(container, f"there is no such container on {self.name}", "look again")
        if not argv or not argv[0]:
            raise Rejected(container, "the command to run is empty", "give at least the program")
        # Isolated and without site packages: it starts in a few milliseconds and needs only the standard library.
        helper = (sys.executable, "-I", "-S", exec_helper.__file__, self._socket, life.id, self._watched())
        return ExecTarget((*helper, *argv), (("PATH", os.defpath),), "/")

    def _watched(self) -> str:
        """Where helpers tell of their commands; empty while nothing can listen (no descriptor is free)."""
        try:
            return self._watch.name()
        except OSError:
            return ""

    def logs(self, container: str, lines: int) -> tuple[str, ...]:
        """The last output lines, of earlier generations too; empty when there are none. Raises Unreachable."""
        try:
            return read_lines(self._link, container, lines)
        except Gone:
            return ()
        except Unreachable:
            raise
        except ProviderError:  # a logging driver that sends lines away keeps none to read
            return ()

    def check(self, templates: Sequence[Template] = ()) -> tuple[str, ...]:
        """What is wrong with the engine, or missing for these templates; reads only, empty when all is well."""
        return problems_of(self._link, self._looks, self._images, templates)

    def progress(self) -> tuple[str, ...]:
        """How far the pulls under way are; empty without any. Asks nobody, so it answers at once."""
        return self._images.progress()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from another thread, whenever something may have changed here; until `close`. A hint, no proof."""
        self._changed.append(changed)
        self._listeners.append(Listener(self._socket, self._instance, changed))
        if self._looks.ends is None:
            with suppress(OSError):  # the engine tells as well, only later
                self._looks.ends = Ends(self._tell)

    def _tell(self) -> None:
        for changed in self._changed:
            changed()

    def close(self) -> None:
        """Close the connections. Containers and pulls go on."""
        for listener in self._listeners:
            listener.close()
        if self._looks.ends is not None:
            self._looks.ends.close()
        self._watch.close()
        self._images.close()
        self._link.close()
