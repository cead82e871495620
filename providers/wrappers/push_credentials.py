"""A decorator that gives new containers the credentials to push. `wire.py` puts it around runtimes while pushes are accepted.

Credentials are made for one container and are secret, so they are neither in the plan nor in the revision. They are added here,
between the decision and the call.
"""

from collections.abc import Callable, Collection
from typing import ClassVar

from pydantic import BaseModel

from manifests.values.desired import Role
from manifests.values.pod import RELATIVE_WORKING_DIR
from providers.actions import CreateContainer, RuntimeAction
from providers.facts import ContainerFact
from providers.spi import ExecTarget, RuntimeProvider

AddCredentials = Callable[[CreateContainer, bool], CreateContainer]
"""(action, whether the new processes see our files) -> the action with `extra_env` and `extra_mounts`."""


class CredentialedRuntime:
    """A runtime whose new containers get the credentials to push."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, add: AddCredentials, shares_files: bool) -> None:
        self.name = inner.name
        self.inner = inner
        self._add = add
        self._shares_files = shares_files

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """As the inner provider."""
        return self.inner.observe(names)

    def perform(self, action: RuntimeAction) -> None:
        """Do the action; a new container that pushes gets its credentials first."""
        if isinstance(action, CreateContainer) and action.push:
            action = self._add(action, self._shares_files)
        self.inner.perform(action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """As the inner provider."""
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """As the inner provider."""
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


def shares_files(provider: object) -> bool:
    """Whether a runtime's processes see our files: it supports working directories relative to the manifests."""
    return RELATIVE_WORKING_DIR in getattr(provider, "supports", ())
