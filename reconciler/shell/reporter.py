"""Who tells people what happens while a run goes on, as a protocol: the command line has one, simulations have their own."""

import logging
from collections.abc import Callable
from typing import Protocol

from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Outcome
from reconciler.core.model.step import Step


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


class ProgressReporter(Reporter, Protocol):
    """A reporter that shows that a run goes on while nothing happens."""

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Ask this, whenever it shows so, for what is under way; it answers at once, and an empty tuple is nothing."""
