"""The protocol of reporters, which show the operator the progress of a run. Implemented by the command line and simulations."""

import logging
from collections.abc import Callable
from typing import Protocol

from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.step import Step


class Reporter(Protocol):
    """Shows the operator what happens. Called from the loop's thread; must not block."""

    def started(self, step: Step) -> None:
        """A call is about to be made."""

    def finished(self, step: Step, outcome: Outcome) -> None:
        """The call ended, or was skipped."""

    def decided(self, decision: Decision, now: Now) -> None:
        """A decision that differs from the previous one."""

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        """Something changed that is neither a step nor a hold, in the words of the audit (`store/audit.py`). `actor`: who ordered it."""

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        """Any other message."""


class ProgressReporter(Reporter, Protocol):
    """A reporter that also shows which calls are under way while nothing else happens."""

    def follow(self, under_way: Callable[[], tuple[str, ...]]) -> None:
        """Set the function that returns the calls under way. It returns at once; the tuple may be empty."""
