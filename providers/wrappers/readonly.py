"""A decorator that refuses every action. `wire.py` puts it around the providers of plans, dry runs and `doctor`.

So a plan cannot write, and no place that writes needs a check of its own.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar, NoReturn, overload

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import Action, ChangeRecords, EndpointAction, RuntimeAction
from providers.errors import Rejected
from providers.facts import ContainerFact, PoolFact, ZoneFact
from providers.naming import object_of
from providers.spi import (
    DNSProvider,
    EndpointProvider,
    ExecTarget,
    Performed,
    Provider,
    RuntimeProvider,
    capabilities_of,
)


def _refusal(name: str, action: Action) -> Rejected:
    cause = f"{type(action).__name__} refused: provider {name} is open read-only"
    return Rejected(object_of(action), cause, "run reconcile to apply changes")


def _refuse(name: str, action: Action) -> NoReturn:
    raise _refusal(name, action)


class ReadOnlyRuntime:
    """A runtime that can only be observed."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider) -> None:
        self.name = inner.name
        self.inner = inner

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """As the inner provider."""
        return self.inner.observe(names)

    def perform(self, action: RuntimeAction) -> None:
        """Refuse. Raises `Rejected`, always."""
        _refuse(self.name, action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """Refuse: running a program in a container may change something. Raises `Rejected`, always."""
        del argv
        raise Rejected(
            container, f"exec refused: provider {self.name} is open read-only", "run reconcile to apply changes"
        )

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """As the inner provider."""
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


class ReadOnlyEndpoints:
    """Pools that can only be observed."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: EndpointProvider) -> None:
        self.name = inner.name
        self.inner = inner

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """As the inner provider."""
        return self.inner.observe(pools)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Refuse each action with `Rejected`, always."""
        return Performed(tuple(_refusal(self.name, action) for action in actions))

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


class ReadOnlyDNS:
    """Zones that can only be observed."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: DNSProvider) -> None:
        self.name = inner.name
        self.inner = inner
        self.capabilities = capabilities_of(inner)

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """As the inner provider."""
        return self.inner.observe(zones)

    def perform(self, action: ChangeRecords) -> None:
        """Refuse. Raises `Rejected`, always."""
        _refuse(self.name, action)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


@overload
def read_only(provider: RuntimeProvider) -> ReadOnlyRuntime: ...
@overload
def read_only(provider: EndpointProvider) -> ReadOnlyEndpoints: ...
@overload
def read_only(provider: DNSProvider) -> ReadOnlyDNS: ...
def read_only(provider: Provider) -> Provider:
    """The provider, which now changes nothing."""
    if provider.role is Role.RUNTIME:
        return ReadOnlyRuntime(provider)  # type: ignore[arg-type]
    if provider.role is Role.ENDPOINTS:
        return ReadOnlyEndpoints(provider)  # type: ignore[arg-type]
    return ReadOnlyDNS(provider)  # type: ignore[arg-type]
