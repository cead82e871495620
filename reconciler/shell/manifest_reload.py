"""Decides when the manifests are read again, and reads them. Called by the loop."""

import logging

from manifests.values.desired import SECOND, Desired
from reconciler.core.decision import Decision
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.observed import NEVER_READ
from reconciler.core.model.reasons import Rule
from reconciler.core.model.source_problem import SourceProblem
from reconciler.shell.parts import Parts

READ_SOURCE = 15 * SECOND
"""How often (ns) the source is read again without a trigger."""


class ManifestReload:
    """Reads the source on its cadence.

    Attributes:
        read_at: steady instant (ns) of the last complete read that equals the manifests in force; NEVER_READ before the first one.
        due: steady instant (ns) of the next read; FOREVER without a source.
    """

    def __init__(self, parts: Parts) -> None:
        self.source, self.runner, self.reporter = parts.source, parts.runner, parts.reporter
        self.read_at = 0
        self.due = FOREVER

    @property
    def problem(self) -> SourceProblem | None:
        """Why the source cannot be put in force."""
        return None if self.source is None else self.source.problem()

    @property
    def commit(self) -> str:
        """The commit of the manifests in force; empty outside of git."""
        return "" if self.source is None else self.source.commit()

    def begin(self, now: Now) -> None:
        """Start the cadence: the manifests in force were read just now, or stored by an earlier run."""
        self.read_at = now.steady if self.source is None or self.source.same() else NEVER_READ
        if self.source is not None:
            self.due = now.steady + READ_SOURCE

    def read_soon(self) -> None:
        """Read the source at the next tick: something hints at a change."""
        if self.source is not None:
            self.due = 0

    def prove(self, decision: Decision) -> None:
        """Schedule the second read that proves an absence at the end of its hold, not at the next usual read."""
        for hold in decision.holds if self.source is not None else ():
            if hold.rule is Rule.ABSENCE_UNPROVEN and hold.until is not None:
                self.due = min(self.due, hold.until)

    async def read(self, now: Now) -> Desired | None:
        """Read the source if it is due. Returns new manifests to put in force; None when unchanged or invalid."""
        if self.source is None or now.steady < self.due:
            return None
        self.due = now.steady + READ_SOURCE
        desired, messages = await self.runner.run(self.source.reread)
        for message in messages:
            self.reporter.note(message, level=logging.WARNING if desired is None else logging.INFO)
        if desired is not None or self.source.same():
            self.read_at = now.steady
        return desired
