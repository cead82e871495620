"""The innermost wrapper of every simulated provider: it records the calls that reach the world, and runs checks after each write.

Here a test can also make a provider lie (success without the write), and kill the process right before or after a write.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifests.values.desired import Role
from providers.actions import Action, EndpointAction
from providers.lib.one_by_one import one_by_one
from providers.spi import ExecTarget, Performed
from providers.testing.checks import perform_one


@dataclass(frozen=True, slots=True)
class Write:
    """One write that reached the world: steady instant, action, and whether it changed anything."""

    at: int
    action: Action
    effective: bool


@dataclass(slots=True)
class Traffic:
    """All calls between the program and the world. `check` is called after each write."""

    steady: Callable[[], int]
    snapshot: Callable[[], object]
    check: Callable[[Action], None]
    writes: list[Write] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    """The number of actions of each call of an endpoint provider."""

    reads: int = 0
    lies: int = 0
    """How many of the next writes return success without being done."""

    kinds: tuple[type, ...] = (object,)
    """The kinds of actions that `lies` applies to."""

    def count(self, kind: type) -> int:
        """The number of effective writes of one kind."""
        return sum(1 for write in self.writes if isinstance(write.action, kind) and write.effective)


class Watched:
    """Any provider, recorded. It has the methods of all three roles."""

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

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        self.inner.close()


class WatchedEndpoints(Watched):
    """Endpoints, recorded at each action of a call: a process may be killed in the middle of a batch."""

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:  # type: ignore[override]
        self.traffic.batches.append(len(actions))
        return one_by_one(actions, lambda action: self.write(action, self.alone), steady=self.traffic.steady)

    def alone(self, action: EndpointAction) -> None:
        perform_one(self.inner, action)


def watched(inner: Any, traffic: Traffic, hook: Callable[[str], None]) -> Watched:
    """The provider, recorded."""
    return (WatchedEndpoints if inner.role is Role.ENDPOINTS else Watched)(inner, traffic, hook)
