"""The parts of the loop: its ports as protocols, and the record `Parts` that holds them.

`wire.py` fills `Parts` with the real implementations, simulations with their own. `loop.py` uses nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from manifests.values.desired import Desired
from reconciler.core.model.source_problem import SourceProblem
from reconciler.core.model.waiting_revision import HeldBack, WaitingRevision, never
from reconciler.core.plan_places import Places
from reconciler.exits import Exit
from reconciler.shell.clock import Clock
from reconciler.shell.daemon_view import DaemonView
from reconciler.shell.kept_files import Files
from reconciler.shell.monitor import Monitor, NoMonitor
from reconciler.shell.probing.targets import Prober
from reconciler.shell.providers import Providers, Runner
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.ports import Memory


class Stopped(Exception):
    """A signal ended a run before it had a result. `exit` is the exit code of the process."""

    def __init__(self, exit_code: Exit) -> None:
        super().__init__(exit_code.sentence)
        self.exit = exit_code


class Source(Protocol):
    """The source of manifests."""

    def reread(self, held: HeldBack = never) -> tuple[Desired | None, tuple[str, ...]]:
        """Read the source again: the new set of manifests when it changed and is valid, and messages for the operator.

        (None, ()) when nothing changed. Called on a thread. `held`: whether a new revision waits; those in force then stay.
        """

    def same(self) -> bool:
        """Whether the last read was complete and equal to the manifests in force."""

    def commit(self) -> str:
        """The commit of the manifests in force; empty outside of git."""

    def newest(self) -> str:
        """The newest commit of a git source whose manifests equal those in force; empty when it is not known, and outside of git."""

    def problem(self) -> SourceProblem | None:
        """Why the source cannot be put in force; None while it is valid."""

    def news(self) -> tuple[str, ...]:
        """What happened at the source since the last call, for the audit."""

    def due_in(self) -> int:
        """Time (ns) from the last read until the source should be read again without a trigger."""

    def hurry(self) -> None:
        """The next read must ask the remote. Called from any thread."""

    def close(self) -> None:
        """End a read that waits for a remote, at the end of a run. Called from any thread."""

    def waiting(self) -> WaitingRevision | None:
        """The valid revision that the last read found and that waits; None when there is none."""


def no_places(_revision: str) -> Places | None:
    """The files are not kept."""
    return None


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of the loop."""

    desired: Desired
    providers: Providers
    providers_for: Callable[[Desired], Providers] | None
    prober: Prober
    memory: Memory
    source: Source | None
    reporter: Reporter
    clock: Clock
    runner: Runner
    remembered: frozenset[str] = frozenset()
    approve: str = ""
    approves: tuple[str, ...] = ()
    """The items that were approved with a saved plan."""
    approves_text: str = ""
    """What these are, for the audit."""
    who: str = ""
    """The operator who started this run, for the audit of what was ordered with it."""
    view: DaemonView | None = None
    """Of the process that runs beside this one; only for plans."""
    monitor: Monitor = field(default_factory=NoMonitor)
    files: Files | None = None
    """Keeps the files of the repository that containers mount; None for a plan."""
    booted: int = 0
    """The steady instant at which this host booted."""
    before: Desired | None = None
    """The manifests that an earlier run put in force last; None when they are not known."""
    places: Callable[[str], Places | None] = no_places
    """Finds fields in the files of the manifests in force, by their revision; None where they are not kept."""
