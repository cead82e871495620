"""A decorator that gives containers files of the repository. `wire.py` puts it around every runtime.

A template names volumes and digests. The files behind a digest are on the disk of the reconciler, in a directory that the template does
not know: it is filled in here, between the decision and the call. For volumes that are changed while a container runs, the decorator says
which files a container has been told about.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar, Protocol

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import CreateContainer, RuntimeAction, UpdateContainer
from providers.facts import ContainerFact, Generation, container_name
from providers.spi import ExecTarget, RuntimeProvider


class Files(Protocol):
    """The directories with the files, implemented by the shell's file store."""

    def prepare(self, action: CreateContainer) -> CreateContainer:
        """The action with bind mounts instead of mounts of files. Raises ProviderError."""

    def changeable(self) -> Collection[str]:
        """The names of containers with volumes that are changed while they run."""

    def shown(self, name: str, generation: Generation) -> Mapping[str, str]:
        """The digests by volume that a container has seen and knows of; empty where it has not got its signal yet."""

    def change(self, name: str, volumes: Collection[tuple[str, str]]) -> None:
        """Show a container other files: (volume, digest). Raises ProviderError."""

    def changed(self, name: str, generation: Generation, volumes: Collection[tuple[str, str]]) -> None:
        """Remember that this generation got its signal. Raises ProviderError."""


class RuntimeWithFiles:
    """A runtime whose containers get files of the repository."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, files: Files) -> None:
        self.name = inner.name
        self.inner = inner
        self._files = files
        self._names: dict[str, str] = {}
        self._known: dict[str, tuple[ContainerFact, ContainerFact]] = {}

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """As the inner provider, with the files that containers know of. An unchanged fact stays the same object."""
        facts = self.inner.observe(names)
        changeable = frozenset(self._files.changeable()) if any(fact.files for fact in facts) else frozenset()
        return tuple(self._with_files(fact) for fact in facts) if changeable else facts

    def _with_files(self, fact: ContainerFact) -> ContainerFact:
        mark = fact.mark or fact.claim
        if mark is None or not fact.files:
            return fact
        name = container_name(mark)  # an operator may have renamed it: its directory keeps the first name
        shown = self._files.shown(name, fact.generation)
        files = tuple((volume, shown.get(volume, digest)) for volume, digest in fact.files)
        self._names[fact.id] = name
        if files == fact.files:
            return fact
        before = self._known.get(fact.id)
        if before is not None and before[0] is fact and before[1].files == files:
            return before[1]
        seen = replace(fact, files=files)
        self._known[fact.id] = fact, seen
        return seen

    def perform(self, action: RuntimeAction) -> None:
        """Do the action; files are on the disk before a container that mounts them is created, or is sent its signal."""
        if isinstance(action, CreateContainer) and action.template.volumes:
            action = self._files.prepare(action)
        if not isinstance(action, UpdateContainer) or not action.files:
            self.inner.perform(action)
            return
        name = self._names.get(action.expect.container_id, action.name)
        volumes = [(volume, digest) for volume, digest, _ in action.files]
        self._files.change(name, volumes)
        self.inner.perform(action)
        self._files.changed(name, action.expect, volumes)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """As the inner provider."""
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """As the inner provider."""
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()
