"""A decorator that gives containers files of the repository. `wire.py` puts it around every runtime.

A template names volumes and digests. The files behind a digest are on the disk of the reconciler, in a directory that the template does
not know: it is filled in here, between the decision and the call. For volumes that are changed while a container runs, the decorator says
which files a container knows of.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple, Protocol

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


class _Seen(NamedTuple):
    """A container of the last look: the name that its directory has, and its fact before and after."""

    name: str
    fact: ContainerFact
    shown: ContainerFact


class RuntimeWithFiles:
    """A runtime whose containers get files of the repository."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, files: Files) -> None:
        self.name = inner.name
        self.inner = inner
        self._files = files
        self._known: Mapping[str, _Seen] = {}

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """As the inner provider, with the files that containers know of. An unchanged fact stays the same object."""
        facts = self.inner.observe(names)
        if not any(fact.files for fact in facts) or not self._files.changeable():
            return facts
        seen = {fact.id: self._with_files(fact) for fact in facts if fact.files}
        # Never changed in place: looks run at the same time.
        self._known = seen if names is None else {**self._known, **seen}
        return tuple(seen[fact.id].shown if fact.id in seen else fact for fact in facts)

    def _with_files(self, fact: ContainerFact) -> "_Seen":
        mark = fact.mark or fact.claim
        name = (
            container_name(mark) if mark is not None else fact.name
        )  # its directory keeps the name before it was renamed
        shown = self._files.shown(name, fact.generation)
        files = tuple((volume, shown.get(volume, digest)) for volume, digest in fact.files)
        before = self._known.get(fact.id)
        if before is not None and before.fact is fact and before.shown.files == files:
            return before
        return _Seen(name, fact, fact if files == fact.files else replace(fact, files=files))

    def perform(self, action: RuntimeAction) -> None:
        """Do the action; files are on the disk before a container that mounts them is created, or is sent its signal."""
        if isinstance(action, CreateContainer) and action.template.volumes:
            action = self._files.prepare(action)
        if not isinstance(action, UpdateContainer) or not action.files:
            self.inner.perform(action)
            return
        known = self._known.get(action.expect.container_id)
        name = action.name if known is None else known.name
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
