"""What the loop is made of: the ports it has to the outside, as protocols, and the record that holds them.

`wire.py` fills `Parts` with the real things, simulations with their own; `loop.py` knows nothing else.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from manifests.values.desired import Desired
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Command, Outcome
from reconciler.core.model.step import Step
from reconciler.exits import Exit
from reconciler.shell.apply.applier import Journal
from reconciler.shell.apply.evidence import Cabinet
from reconciler.shell.clock import Clock
from reconciler.shell.probing.targets import Prober
from reconciler.shell.providers import Providers, Runner
from reconciler.shell.report.events import Event, HoldKey


class Stopped(Exception):
    """A signal ended a run before it had a result. `exit` is how the process should end."""

    def __init__(self, exit_code: Exit) -> None:
        super().__init__(exit_code.sentence)
        self.exit = exit_code


class Memory(Journal, Cabinet, Protocol):
    """What the loop needs of the store."""

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ, and acknowledge folded commands in the same transaction.

        It survives a kill at once, and a power cut once `sync` or `begin` has returned.
        """

    def put_decision(self, text: str) -> bool:
        """Store the last decision when it changed."""

    def commands(self) -> Sequence[tuple[int, Command]]:
        """People's commands that are not folded yet, with their numbers."""

    def leftovers(self) -> Sequence[str]:
        """Close what an earlier process left open in the journal; a sentence for each."""

    def told(self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()) -> None:
        """Append to the audit: steps with their outcomes, and what else happened."""

    def held(self) -> Mapping[HoldKey, str]:
        """The holds that an earlier process told last."""


class Source(Protocol):
    """Where manifests come from."""

    def reread(self) -> tuple[Desired | None, tuple[str, ...]]:
        """Read the source again: a new set of manifests when it changed and is valid, and what to tell about it.

        Nothing changed is (None, ()). Called on a thread.
        """

    def same(self) -> bool:
        """Whether the last read was complete and equal to what is in force."""


class Reporter(Protocol):
    """Who tells people what happens. Called from the loop's thread; must not block."""

    def started(self, step: Step) -> None:
        """A call is about to be made."""

    def finished(self, step: Step, outcome: Outcome) -> None:
        """It ended, or was not made."""

    def decided(self, decision: Decision, now: Now) -> None:
        """A decision that differs from the one before."""

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        """Something else worth knowing."""


class SignOfLife(Reporter, Protocol):
    """A reporter that shows that a run goes on while nothing happens."""

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Ask this, whenever it shows so, for what is under way; it answers at once, and an empty tuple is nothing."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the loop is made of; put together by `wire.py`, or by a simulation."""

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
