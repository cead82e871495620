"""Limits as a decorator: a deadline for every call, few threads, one call at a time per object, an optional rate limit.

`wire.py` puts it around every provider, so that no provider can hang the loop or is called faster than it allows. `calls.py`
runs the calls.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

from pydantic import BaseModel

from manifests.values.desired import SECOND, Role
from providers.actions import Action, ChangeRecords, EndpointAction, RuntimeAction, StopContainer
from providers.facts import ContainerFact, PoolFact, ZoneFact
from providers.lib.clock import boottime
from providers.lib.rate import Rate
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
from providers.wrappers.calls import Calls, Report

WORKERS = 16
"""Calls of one kind that a provider makes at a time: a few long ones (a stop with its grace) must not keep others waiting."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one provider.

    Attributes:
        deadline: of each call in ns; a stop gets its grace on top.
        workers: the number of threads for looks, and of those for actions.
        rate: limits all calls together; a call waits for its turn within its deadline.
        steady: the steady clock, for the rate limit and for ages in messages.
        report: gets every call: the provider, `observe` or `perform`, seconds, and the name of its error (empty without one).
    """

    deadline: int = 30 * SECOND
    workers: int = WORKERS
    rate: Rate | None = None
    steady: Callable[[], int] = boottime
    report: Report | None = None


class LimitedRuntime:
    """A runtime whose calls end within their deadlines."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, limits: Limits) -> None:
        self.name = inner.name
        self.inner = inner
        self._limits = limits
        self._calls = Calls(inner.name, limits.workers, limits.steady, limits.rate, limits.report)

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """A look. Raises `Unreachable` after the deadline."""
        return self._calls.read(_looks(names), lambda: self.inner.observe(names), self._limits.deadline)

    def perform(self, action: RuntimeAction) -> None:
        """An action. Raises `OutcomeUnknown` after the deadline, and at once while the container is busy."""
        deadline = _deadline(self._limits, action)
        self._calls.write(object_of(action), lambda: self.inner.perform(action), deadline)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """A look. Raises `Unreachable` after the deadline."""
        look = f"exec {container} {argv!r}"
        return self._calls.read(look, lambda: self.inner.exec_target(container, argv), self._limits.deadline)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """A look. Raises `Unreachable` after the deadline."""
        look = f"logs {container}"
        return self._calls.read(look, lambda: self.inner.logs(container, lines, *until), self._limits.deadline)

    def busy(self) -> frozenset[str]:
        """Names of containers whose last action has not returned yet."""
        return self._calls.busy()

    def close(self) -> None:
        """Close within a second, whatever hangs."""
        self._calls.close(self.inner.close)


class LimitedEndpoints:
    """Pools whose calls end within their deadlines."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: EndpointProvider, limits: Limits) -> None:
        self.name = inner.name
        self.inner = inner
        self._limits = limits
        self._calls = Calls(inner.name, limits.workers, limits.steady, limits.rate, limits.report)

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """A look. Raises `Unreachable` after the deadline."""
        return self._calls.read(_looks(pools), lambda: self.inner.observe(pools), self._limits.deadline)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Do the actions in one call with one deadline.

        After the deadline every action is answered with `OutcomeUnknown`, and its endpoint is busy until the call returns. An
        endpoint that is busy already is left out: `OutcomeUnknown`, or `Unreachable` if it stays busy until the deadline.
        """

        def act(chosen: Sequence[int]) -> Performed:
            some = actions if len(chosen) == len(actions) else [actions[index] for index in chosen]
            return self.inner.perform(some)

        return self._calls.write_all([object_of(action) for action in actions], act, self._limits.deadline)

    def busy(self) -> frozenset[str]:
        """Endpoints, as `<pool>/<address>:<port>`, whose last action has not returned yet."""
        return self._calls.busy()

    def close(self) -> None:
        """Close within a second, whatever hangs."""
        self._calls.close(self.inner.close)


class LimitedDNS:
    """Zones whose calls end within their deadlines."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: DNSProvider, limits: Limits) -> None:
        self.name = inner.name
        self.inner = inner
        self.capabilities = capabilities_of(inner)
        self._limits = limits
        self._calls = Calls(inner.name, limits.workers, limits.steady, limits.rate, limits.report)

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """A look. Raises `Unreachable` after the deadline."""
        return self._calls.read(_looks(zones), lambda: self.inner.observe(zones), self._limits.deadline)

    def perform(self, action: ChangeRecords) -> None:
        """An action. Raises `OutcomeUnknown` after the deadline, and at once while the zone is busy."""
        deadline = _deadline(self._limits, action)
        self._calls.write(object_of(action), lambda: self.inner.perform(action), deadline)

    def busy(self) -> frozenset[str]:
        """Zones whose last change has not returned yet."""
        return self._calls.busy()

    def close(self) -> None:
        """Close within a second, whatever hangs."""
        self._calls.close(self.inner.close)


def _looks(names: Collection[str] | None) -> str:
    return "everything" if names is None else "only " + " ".join(sorted(names))


def _deadline(limits: Limits, action: Action) -> int:
    return limits.deadline + (action.grace if isinstance(action, StopContainer) else 0)


@overload
def limited(provider: RuntimeProvider, limits: Limits = ...) -> LimitedRuntime: ...
@overload
def limited(provider: EndpointProvider, limits: Limits = ...) -> LimitedEndpoints: ...
@overload
def limited(provider: DNSProvider, limits: Limits = ...) -> LimitedDNS: ...
def limited(provider: Provider, limits: Limits = Limits()) -> Provider:
    """The provider with deadlines, few threads and an optional rate limit. Close it to end its threads."""
    if provider.role is Role.RUNTIME:
        return LimitedRuntime(provider, limits)  # type: ignore[arg-type]
    if provider.role is Role.ENDPOINTS:
        return LimitedEndpoints(provider, limits)  # type: ignore[arg-type]
    return LimitedDNS(provider, limits)  # type: ignore[arg-type]
