"""Scripted faults: a decorator that makes a provider fail on purpose, at exactly the calls that a test chooses.

Used by the conformance suites (for lost replies), by the simulation and by tests of the loop. Deterministic: a script is a pure
function of the call, or a list that is used up call by call.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import ClassVar, TypeVar, overload

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import Action, ChangeRecords, EndpointAction, RuntimeAction
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
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

R = TypeVar("R")


class Fault(StrEnum):
    """The fault of one call."""

    NONE = "none"
    UNREACHABLE = "unreachable"
    """No answer, and nothing is done."""
    LOST_REQUEST = "lost-request"
    """A write never arrives and nothing is done, but the caller cannot know: outcome unknown. A read: unreachable."""
    LOST_REPLY = "lost-reply"
    """A write is done, but its answer is lost: outcome unknown. A read: unreachable."""
    REJECTED = "rejected"
    """Understood and refused; nothing is done."""
    TRUNCATED = "truncated"
    """A read is cut short. A provider must never answer with a part, so: unreachable. A write: as LOST_REPLY."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: counted from 0 for each decorator, with its verb (`observe`, `perform`) and its target."""

    index: int
    verb: str
    target: str
    action: Action | None = None


Script = Callable[[Call], Fault]


def sequence(*faults: Fault, verb: str = "perform") -> Script:
    """A script that gives the calls of one verb these faults in order, then none."""
    left = list(faults)
    lock = Lock()

    def next_fault(call: Call) -> Fault:
        with lock:
            return left.pop(0) if left and call.verb == verb else Fault.NONE

    return next_fault


def _no_delay(call: Call) -> None:
    del call


class _Faults:
    """Counts calls and applies the script to each."""

    def __init__(self, script: Script, delay: Callable[[Call], None]) -> None:
        self._script = script
        self._delay = delay
        self._count = 0
        self._lock = Lock()

    def _next(self, verb: str, target: str, action: Action | None = None) -> tuple[Call, Fault]:
        with self._lock:
            call = Call(self._count, verb, target, action)
            self._count += 1
        self._delay(call)
        return call, self._script(call)

    def read(self, target: str, act: Callable[[], R]) -> R:
        """A look under the script."""
        call, fault = self._next("observe", target)
        if fault is Fault.NONE:
            return act()
        if fault is Fault.REJECTED:
            raise Rejected(target, f"refused on purpose at call {call.index}", "end the script of faults")
        if fault is Fault.TRUNCATED:
            act()
            raise Unreachable(target, f"the answer was cut short on purpose at call {call.index}")
        raise Unreachable(target, f"no answer, on purpose, at call {call.index}")

    def write(self, action: Action, act: Callable[[], None]) -> None:
        """An action under the script."""
        before, after = self._write(action)
        if before is not None:
            raise before
        act()
        if after is not None:
            raise after

    def write_all(
        self,
        actions: Sequence[EndpointAction],
        act: Callable[[Sequence[EndpointAction]], Performed],
    ) -> Performed:
        """The actions of one call: the script decides about each. Pools that were read back are dropped."""
        scripted = [self._write(action) for action in actions]
        sent = [index for index, (before, _) in enumerate(scripted) if before is None]
        answers = [before for before, _ in scripted]
        if sent:
            for index, error in zip(sent, act([actions[index] for index in sent]).errors, strict=True):
                answers[index] = error or scripted[index][1]
        return Performed(tuple(answers))

    def _write(self, action: Action) -> tuple[ProviderError | None, ProviderError | None]:
        """The errors with which the script fails an action before it is done, and after."""
        target = object_of(action)
        call, fault = self._next("perform", target, action)
        if fault is Fault.UNREACHABLE:
            return Unreachable(target, f"no connection, on purpose, at call {call.index}"), None
        if fault is Fault.REJECTED:
            return Rejected(target, f"refused on purpose at call {call.index}", "end the script of faults"), None
        if fault is Fault.LOST_REQUEST:
            return OutcomeUnknown(
                target, f"the request was lost on purpose at call {call.index}", "retried automatically"
            ), None
        if fault in (Fault.LOST_REPLY, Fault.TRUNCATED):
            return None, OutcomeUnknown(
                target, f"the reply was lost on purpose at call {call.index}", "retried automatically"
            )
        return None, None


class FaultyRuntime:
    """A runtime whose calls fail as scripted."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, faults: _Faults) -> None:
        self.name = inner.name
        self.inner = inner
        self._faults = faults

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """A look under the script."""
        return self._faults.read(self.name, lambda: self.inner.observe(names))

    def perform(self, action: RuntimeAction) -> None:
        """An action under the script."""
        self._faults.write(action, lambda: self.inner.perform(action))

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """As the inner provider: exec probes have faults of their own."""
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """As the inner provider."""
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


class FaultyEndpoints:
    """Endpoints whose calls fail as scripted."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: EndpointProvider, faults: _Faults) -> None:
        self.name = inner.name
        self.inner = inner
        self._faults = faults

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """A look under the script."""
        return self._faults.read(self.name, lambda: self.inner.observe(pools))

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """The actions under the script; those that reach the inner provider reach it in one call."""
        return self._faults.write_all(actions, self.inner.perform)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


class FaultyDNS:
    """Zones whose calls fail as scripted."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: DNSProvider, faults: _Faults) -> None:
        self.name = inner.name
        self.inner = inner
        self.capabilities = capabilities_of(inner)
        self._faults = faults

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """A look under the script."""
        return self._faults.read(self.name, lambda: self.inner.observe(zones))

    def perform(self, action: ChangeRecords) -> None:
        """An action under the script."""
        self._faults.write(action, lambda: self.inner.perform(action))

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


@overload
def faulty(provider: RuntimeProvider, script: Script, delay: Callable[[Call], None] = ...) -> FaultyRuntime: ...
@overload
def faulty(provider: EndpointProvider, script: Script, delay: Callable[[Call], None] = ...) -> FaultyEndpoints: ...
@overload
def faulty(provider: DNSProvider, script: Script, delay: Callable[[Call], None] = ...) -> FaultyDNS: ...
def faulty(provider: Provider, script: Script, delay: Callable[[Call], None] = _no_delay) -> Provider:
    """A provider whose calls fail as scripted.

    Args:
        provider: the provider that does the real work.
        script: decides about each call; see `sequence`.
        delay: called before each call, for example to advance virtual time.
    """
    faults = _Faults(script, delay)
    if provider.role is Role.RUNTIME:
        return FaultyRuntime(provider, faults)  # type: ignore[arg-type]
    if provider.role is Role.ENDPOINTS:
        return FaultyEndpoints(provider, faults)  # type: ignore[arg-type]
    return FaultyDNS(provider, faults)  # type: ignore[arg-type]
