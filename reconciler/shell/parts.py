"""What the loop is made of: the ports it has to the outside, as protocols, and the record that holds them.

`wire.py` fills `Parts` with the real things, simulations with their own; `loop.py` knows nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from manifests.values.desired import Desired
from reconciler.exits import Exit
from reconciler.shell.clock import Clock
from reconciler.shell.probing.targets import Prober
from reconciler.shell.providers import Providers, Runner
from reconciler.shell.reporter import Reporter
from reconciler.shell.store.ports import Memory


class Stopped(Exception):
    """A signal ended a run before it had a result. `exit` is how the process should end."""

    def __init__(self, exit_code: Exit) -> None:
        super().__init__(exit_code.sentence)
        self.exit = exit_code


class Source(Protocol):
    """Where manifests come from."""

    def reread(self) -> tuple[Desired | None, tuple[str, ...]]:
        """Read the source again: a new set of manifests when it changed and is valid, and what to tell about it.

        Nothing changed is (None, ()). Called on a thread.
        """

    def same(self) -> bool:
        """Whether the last read was complete and equal to what is in force."""


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
