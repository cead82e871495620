"""When the manifests are read again, and what becomes of what was read. Called by the loop."""

import logging

from manifests.values.desired import SECOND, Desired
from reconciler.core.decision import Decision
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.reasons import Rule
from reconciler.shell.parts import Parts

READ_SOURCE = 15 * SECOND
"""How often the source is read again without a trigger."""


class ManifestReload:
    """The cadence of the source.

    Attributes:
        read_at: steady instant (ns) of the last complete read that equals what is in force.
        due: steady instant (ns) of the next read; FOREVER without a source.
    """

    def __init__(self, parts: Parts) -> None:
        self.source, self.runner, self.reporter = parts.source, parts.runner, parts.reporter
        self.read_at = 0
        self.due = FOREVER

    def begin(self, now: Now) -> None:
        """What is in force was read just now."""
        self.read_at = now.steady
        if self.source is not None:
            self.due = now.steady + READ_SOURCE

    def read_soon(self) -> None:
        """A hint that the source changed: read it at the next tick."""
        if self.source is not None:
            self.due = 0

    def prove(self, decision: Decision) -> None:
        """Make the second read that proves an absence when it is due, not at the next usual one."""
        for hold in decision.holds if self.source is not None else ():
            if hold.rule is Rule.ABSENCE_UNPROVEN and hold.until is not None:
                self.due = min(self.due, hold.until)

    async def read(self, now: Now) -> Desired | None:
        """Read when it is due: other manifests to put in force, else None. What is broken changes nothing that is in force."""
        if self.source is None or now.steady < self.due:
            return None
        self.due = now.steady + READ_SOURCE
        desired, told = await self.runner.run(self.source.reread)
        for sentence in told:
            self.reporter.note(sentence, level=logging.WARNING if desired is None else logging.INFO)
        if desired is not None or self.source.same():
            self.read_at = now.steady
        return desired
