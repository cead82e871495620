"""The edge between the clock of a host and that of the instance: the only place where instants of one become those of the other.

Runtimes and the probe engine read CLOCK_BOOTTIME of the host; the loop and all rules use the steady time of the instance
(`instance_clock.py`). `wire.py` puts these decorators around every runtime and around the probe engine. Endpoint and DNS providers give no
instants. Pushes are dated by the loop's own clock; the sequence numbers of senders are no instants.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import RuntimeAction
from providers.facts import ContainerFact, Generation, ProbeFact
from providers.spi import ExecTarget, RuntimeProvider
from reconciler.probes.target import Target
from reconciler.shell.probing.targets import Prober


def in_instance_time(fact: ContainerFact, offset: int) -> ContainerFact:
    """The fact with its steady instants in the time of the instance; 0 stays 0, because it is no instant."""
    health = fact.health
    return replace(
        fact,
        running_since=_moved(fact.running_since, offset),
        exited_at=_moved(fact.exited_at, offset),
        health=health if health is None else health._replace(last_at=_moved(health.last_at, offset)),
        starts=tuple(start._replace(running_since=_moved(start.running_since, offset)) for start in fact.starts),
    )


def _moved(at: int, offset: int) -> int:
    return at + offset if at > 0 else 0


class InstanceTimeRuntime:
    """A runtime whose facts are in the time of the instance. `offset` is that time minus the steady clock of the runtime's host (ns)."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, inner: RuntimeProvider, offset: int) -> None:
        self.name = inner.name
        self.inner = inner
        self._offset = offset
        self._known: dict[str, tuple[ContainerFact, ContainerFact]] = {}

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """As the inner provider. A fact that the inner provider returns again stays the same object."""
        known, facts = self._known, []
        for fact in self.inner.observe(names):
            before = known.get(fact.id)
            pair = before if before is not None and before[0] is fact else (fact, in_instance_time(fact, self._offset))
            facts.append(pair)
        pairs = {fact.id: (fact, moved) for fact, moved in facts}
        self._known = (
            pairs if names is None else {**known, **pairs}
        )  # never changed in place: looks run at the same time
        return tuple(moved for _, moved in facts)

    def perform(self, action: RuntimeAction) -> None:
        """As the inner provider: an action has no instants."""
        self.inner.perform(action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """As the inner provider."""
        return self.inner.exec_target(container, argv)

    def logs(self, container: str, lines: int, *until: int) -> tuple[str, ...]:
        """As the inner provider: `until` is of the wall clock."""
        return self.inner.logs(container, lines, *until)

    def close(self) -> None:
        """Close the inner provider."""
        self.inner.close()


class InstanceTimeProber:
    """Implements `Prober` over a probe engine of this host, with targets and results in the time of the instance."""

    def __init__(self, inner: Prober, offset: int) -> None:
        self._inner, self._offset = inner, offset

    def set_targets(self, targets: list[Target]) -> None:
        """Run exactly these probes from now on."""
        offset = self._offset
        self._inner.set_targets(
            [target._replace(started=target.started and target.started - offset) for target in targets]
        )

    def read(self) -> Mapping[tuple[Generation, str], ProbeFact]:
        """The results since the last call, newest per target."""
        offset = self._offset
        return {
            key: fact._replace(since=fact.since + offset, last_at=fact.last_at + offset)
            for key, fact in self._inner.read().items()
        }

    def fileno(self) -> int:
        """A descriptor that is readable when there are results; -1 when there is none."""
        return self._inner.fileno()

    def silent(self) -> str:
        """Why the engine's results cannot be used now; empty when they can."""
        return self._inner.silent()

    def restart(self) -> None:
        """Start a new child in place of one that died or does not answer."""
        self._inner.restart()

    def close(self) -> None:
        """End the engine."""
        self._inner.close()
