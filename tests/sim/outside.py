"""The innermost decorator of every simulated provider: it records what really reached the world, and lets watchers judge it.

Here a test can also make a provider lie ("done", without doing it), and kill the process right before or after a write.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from providers.actions import Action, EndpointAction
from providers.errors import ProviderError
from providers.spi import ExecTarget


@dataclass(frozen=True, slots=True)
class Write:
    """One call that reached the world: when (steady), what, whether it changed anything."""

    at: int
    action: Action
    effective: bool


@dataclass(slots=True)
class Traffic:
    """Everything that passes between the program and the world. `check` is called after each write."""

    steady: Callable[[], int]
    snapshot: Callable[[], object]
    check: Callable[[Action], None]
    writes: list[Write] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    """How many actions each call for many of them had."""

    reads: int = 0
    lies: int = 0
    """How many of the next writes are answered with success and not done."""

    kinds: tuple[type, ...] = (object,)
    """Which actions the lies apply to."""

    def count(self, kind: type) -> int:
        """How many effective writes of one kind there were."""
        return sum(1 for write in self.writes if isinstance(write.action, kind) and write.effective)


class Watched:
    """Any provider, watched. It has the verbs of all three roles."""

    def __init__(self, inner: Any, traffic: Traffic, hook: Callable[[str], None]) -> None:
        self.name, self.role, self.Settings = inner.name, inner.role, inner.Settings
        self.inner, self.traffic, self.hook = inner, traffic, hook

    def observe(self, asked: Collection[str] | None = None) -> Any:
        self.hook("read")
        self.traffic.reads += 1
        return self.inner.observe(asked)

    def perform(self, action: Action) -> None:
        self.write(action, self.inner.perform)

    def write(self, action: Action, act: Callable[[Any], None]) -> None:
        self.hook("before write")
        traffic = self.traffic
        if traffic.lies and isinstance(action, traffic.kinds):
            traffic.lies -= 1
            return
        before = traffic.snapshot()
        act(action)
        traffic.writes.append(Write(traffic.steady(), action, traffic.snapshot() != before))
        traffic.check(action)
        self.hook("after write")

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int) -> tuple[str, ...]:
        return self.inner.logs(container, lines)

    def close(self) -> None:
        self.inner.close()


class WatchedBatches(Watched):
    """Endpoints that do many actions in one call, watched at each of them: a process may die in the middle of a batch."""

    def perform_all(self, actions: Sequence[EndpointAction]) -> tuple[ProviderError | None, ...]:
        self.traffic.batches.append(len(actions))
        return tuple(self.answer(action) for action in actions)

    def answer(self, action: EndpointAction) -> ProviderError | None:
        try:
            self.write(action, self.alone)
        except ProviderError as error:
            return error
        return None

    def alone(self, action: EndpointAction) -> None:
        (error,) = self.inner.perform_all([action])
        if error is not None:
            raise error


def watched(inner: Any, traffic: Traffic, hook: Callable[[str], None]) -> Watched:
    """The provider, watched; what it can do in one call it can do so still."""
    return (WatchedBatches if hasattr(inner, "perform_all") else Watched)(inner, traffic, hook)
