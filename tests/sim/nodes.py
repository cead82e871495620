"""What happens to single nodes of a simulated world: silence, slow answers, reboots, engines that end, and returns with old containers.

`Nodes` keeps what happens to each node. `linked` puts it between the program and a node's runtime: calls of the program to a silent node
fail, and those to a slow one end later. Operators, engines and restart policies act on the runtimes themselves, so a silent node
lives on.
"""

import asyncio
import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from providers.actions import Action
from providers.errors import OutcomeUnknown, Unreachable
from providers.facts import ExitCause, ProbeValue
from providers.naming import object_of
from providers.testing.memory import MemoryWorld
from providers.testing.memory_container import MemoryContainer
from providers.testing.memory_runtime import MemoryRuntime
from tests.sim.apps import Apps
from tests.sim.clock import SimClock

T = TypeVar("T")


class Later(Exception):
    """The answer of a call comes `duration` ns later, from `answer`."""

    def __init__(self, duration: int, answer: Callable[[], Any]) -> None:
        super().__init__()
        self.duration, self.answer = duration, answer


@dataclass(slots=True)
class Link:
    """The way from the program to one node.

    Attributes:
        cut: no call arrives.
        lost: replies of this many further writes are lost: they are done, and the caller cannot know.
        slow: ns until an answer comes.
        old: a slow answer shows the node as it was at the call; otherwise as it is when the answer comes.
    """

    cut: bool = False
    lost: int = 0
    slow: int = 0
    old: bool = True


@dataclass(slots=True)
class Nodes:
    """What happens to the nodes of one world. Names of nodes are those of their runtimes."""

    outside: MemoryWorld
    apps: Apps
    runtimes: dict[str, MemoryRuntime]
    steady: Callable[[], int]
    links: dict[str, Link] = field(default_factory=dict)
    silent_since: dict[str, int] = field(default_factory=dict)
    """Steady instants (ns) at which nodes fell silent, of those that still are."""

    longest: int = 0
    """The longest time (ns) that any answer took so far."""

    _copies: dict[str, dict[str, MemoryContainer]] = field(default_factory=dict)

    def link(self, node: str) -> Link:
        """The way to a node."""
        return self.links.setdefault(node, Link())

    # --- silence --------------------------------------------------------------------------------------------

    def silence(self, node: str, probes: ProbeValue = ProbeValue.PASS, lost: int = 0) -> None:
        """A node answers no call any more; its containers run on.

        Args:
            node: its name.
            probes: what its containers answer to probes: PASS as they are, because only the engine is silent; FAIL: every
                probe times out; UNKNOWN: there is no route.
            lost: this many writes are still done, without a reply.
        """
        link = self.link(node)
        link.cut, link.lost = True, lost
        self.silent_since.setdefault(node, self.steady())
        if probes is ProbeValue.PASS:
            self.apps.cut.pop(node, None)
        else:
            self.apps.cut[node] = probes

    def end_silence(self, node: str) -> None:
        """A node answers again, with the containers that it has."""
        link = self.link(node)
        link.cut, link.lost = False, 0
        self.silent_since.pop(node, None)
        self.apps.cut.pop(node, None)

    def is_silent(self, node: str) -> bool:
        """Whether it answers no call."""
        return node in self.silent_since

    # --- slow answers ---------------------------------------------------------------------------------------

    def slow(self, node: str, duration: int, old: bool = True) -> None:
        """Each answer of a node takes `duration` ns from now on; see `Link.old`."""
        link = self.link(node)
        link.slow, link.old = duration, old
        self.longest = max(self.longest, duration)

    def is_slow(self, node: str) -> bool:
        """Whether its answers take time."""
        return self.link(node).slow > 0

    # --- hosts and engines ----------------------------------------------------------------------------------

    def reboot(self, node: str, revive: bool = True) -> None:
        """The host of a node restarts: its containers are down, and it answers nothing while it is silent.

        `revive`: its engine starts the containers whose restart policy says so.
        """
        runtime = self.runtimes[node]
        before = [name for name, item in self.outside.nodes[node].items() if item.up]
        runtime.reboot()
        if revive:
            self._revive(node, before)

    def end_engine(self, node: str, live_restore: bool = True) -> None:
        """The engine of a node is killed: nothing answers, and its containers run on or end with it."""
        self.silence(node)
        if live_restore:
            return
        for item in self.outside.nodes[node].values():
            if item.up:
                item.end(None, ExitCause.HOST_RESTARTED, 0)

    def start_engine(self, node: str) -> None:
        """A killed engine is back, and starts the containers that ended with it and whose restart policy says so."""
        ended = ExitCause.HOST_RESTARTED
        self._revive(node, [name for name, item in self.outside.nodes[node].items() if item.exit_cause is ended])
        self.end_silence(node)

    def _revive(self, node: str, names: Collection[str]) -> None:
        for name in names:
            item = self.outside.nodes[node][name]
            if item.revived and not item.up:
                item.start(self.outside.wall(), self.outside.steady())

    # --- old containers -------------------------------------------------------------------------------------

    def keep(self, node: str) -> None:
        """Make a copy of a node's containers, as a snapshot of its host does."""
        self._copies[node] = copy.deepcopy(self.outside.nodes[node])

    def restore(self, node: str, revive: bool = True) -> None:
        """A host starts from its copy, if there is one: it has its containers of then, also those that were removed since."""
        kept = self._copies.pop(node, None)
        if kept is None:
            return
        self.outside.nodes[node] = kept
        self.reboot(node, revive)

    def end_all(self) -> None:
        """Every node answers at once again."""
        for node in list(self.links):
            self.end_silence(node)
            self.slow(node, 0)


class Linked:
    """A node's runtime at the end of its link. It has the methods of a runtime."""

    def __init__(self, inner: Any, nodes: Nodes) -> None:
        self.name, self.role, self.Settings = inner.name, inner.role, inner.Settings
        self.inner, self.nodes = inner, nodes

    def observe(self, names: Collection[str] | None = None) -> Any:
        """A look: fails on a cut link, comes later on a slow one."""
        self._reach()
        return self._take(lambda: self.inner.observe(names))

    def perform(self, action: Action) -> None:
        """A write: fails on a cut link, is done later on a slow one."""
        link = self.nodes.link(self.name)
        if link.cut and link.lost:
            link.lost -= 1
            self.inner.perform(action)
            raise OutcomeUnknown(object_of(action), f"the reply of {self.name} was lost", "retried automatically")
        self._reach()
        if link.slow:
            raise Later(link.slow, lambda: self.inner.perform(action))
        self.inner.perform(action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> Any:
        """Fails on a cut link."""
        self._reach()
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """Fails on a cut link."""
        self._reach()
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()

    def _reach(self) -> None:
        if self.nodes.link(self.name).cut:
            raise Unreachable(self.name, "no answer: the node is silent")

    def _take(self, look: Callable[[], Any]) -> Any:
        link = self.nodes.link(self.name)
        if not link.slow:
            return look()
        if not link.old:
            raise Later(link.slow, lambda: self._later(look))
        seen = look()
        raise Later(link.slow, lambda: self._later(lambda: seen))

    def _later(self, look: Callable[[], Any]) -> Any:
        self._reach()  # a node that falls silent meanwhile never answers
        return look()


class DelayedRunner:
    """A runner that calls in place; answers of slow nodes come later in virtual time."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result; what it raises is raised here."""
        await asyncio.sleep(0)
        try:
            return call()
        except Later as later:
            await self.clock.elapse(later.duration)
            return later.answer()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Nothing to let go of."""
