"""Decides when the manifests are read again, and reads them. Called by the loop.

A read runs beside the loop, because a file system may hang. A source that cannot be read leaves the manifests in force.
"""

import asyncio
import logging
from functools import partial

from manifests.values.desired import SECOND, Desired
from providers.errors import ProviderError
from reconciler.core.decision import Decision
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.observed import NEVER_READ
from reconciler.core.model.reasons import Rule
from reconciler.core.model.source_problem import SourceProblem
from reconciler.core.model.waiting_revision import HeldBack, WaitingRevision
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.parts import Parts, Source
from reconciler.shell.source import READ_AGAIN

log = logging.getLogger(__name__)

READ_SOURCE = READ_AGAIN
"""How often (ns) the source is read again without a trigger."""

SOONEST = SECOND // 10
"""The least time (ns) between two reads without a trigger."""

HANGS = 60 * SECOND
"""A read that takes longer than this (ns) is reported. The largest trees take seconds."""


class ManifestReload:
    """Reads the source on its cadence.

    Args:
        held: whether a valid revision has to wait, by what is known now.

    Attributes:
        read_at: steady instant (ns) of the last complete read that equals the manifests in force; NEVER_READ before the first one.
        unreadable: why the last read failed or does not return; empty when it succeeded.
    """

    def __init__(self, parts: Parts, wake: Wake, held: HeldBack) -> None:
        self._held = held
        self.source, self.runner, self.reporter, self.wake = parts.source, parts.runner, parts.reporter, wake
        self.read_at = 0
        self.unreadable = ""
        self._due = FOREVER
        self._reading: asyncio.Task[None] | None = None
        self._began = 0
        self._proves = False
        self._fresh: Desired | None = None
        self._later: Desired | None = None
        self._news: tuple[str, ...] = ()

    @property
    def due(self) -> int:
        """The instant at which `start` has something to do."""
        if self._reading is None:
            return self._due
        return FOREVER if self.unreadable else self._began + HANGS

    @property
    def problem(self) -> SourceProblem | None:
        """Why the source cannot be put in force."""
        return None if self.source is None else self.source.problem()

    @property
    def waiting(self) -> WaitingRevision | None:
        """The valid revision that waits."""
        return None if self.source is None else self.source.waiting()

    @property
    def commit(self) -> str:
        """The commit of the manifests in force; empty outside of git."""
        return "" if self.source is None else self.source.commit()

    @property
    def newest(self) -> str:
        """The newest commit of a git source whose manifests equal those in force; empty when it is not known, and outside of git."""
        return "" if self.source is None else self.source.newest()

    def begin(self, now: Now) -> None:
        """Start the cadence: the manifests in force were read just now, or stored by an earlier run."""
        self.read_at = now.steady if self.source is None or self.source.same() else NEVER_READ
        if self.source is not None:
            self._due = now.steady + READ_SOURCE

    def read_soon(self) -> None:
        """Read the source at the next tick: something hints at a change."""
        if self.source is not None:
            self.source.hurry()
            self._due = 0

    def prove(self, decision: Decision) -> None:
        """Schedule the second read that proves an absence at the end of its hold, not at the next usual read."""
        for hold in decision.holds if self.source is not None else ():
            if hold.rule is Rule.ABSENCE_UNPROVEN and hold.until is not None:
                self._due = min(self._due, hold.until)
                self._proves = True

    def start(self, now: Now) -> None:
        """Start a read if it is due. It wakes the loop when there are new manifests, or when it proves an absence."""
        if self._reading is not None:
            if now.steady >= self._began + HANGS and not self.unreadable:
                self.unreadable = (
                    f"a read has not returned for {HANGS // SECOND}s; the file system or the remote may hang"
                )
                self.wake.set("the manifests cannot be read")
            return
        waiting = self.waiting
        if waiting is not None and not self._held(waiting):
            self._due = 0  # what held it is over: no other trigger may come
        if self.source is None or now.steady < self._due:
            return
        self._due, self._began = now.steady + READ_SOURCE, now.steady
        self._reading = asyncio.create_task(self._read(self.source))

    def take(self) -> Desired | None:
        """New manifests to put in force; None when there are none."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def take_news(self) -> tuple[str, ...]:
        """What happened at the source since the last call, for the audit."""
        news, self._news = self._news, ()
        return news

    def keep(self, desired: Desired, problem: str) -> None:
        """Manifests that cannot be put in force now: `take` returns them again after the next read, unless it finds newer ones."""
        self.unreadable, self._later = problem, desired

    async def _read(self, source: Source) -> None:
        desired: Desired | None = None
        unreadable, proves, self._proves = "", self._proves, False
        refused = self.problem, self.waiting
        try:
            desired, messages = await self.runner.run(partial(source.reread, self._held))
            self._due = min(self._due, self._began + max(SOONEST, source.due_in()))
            news = source.news()
            self._news += news
            for message in (*news, *messages):
                self.reporter.note(message, level=logging.WARNING if desired is None else logging.INFO)
            if desired is not None or source.same():
                self.read_at = self._began
        except ProviderError as error:  # no thread can be started
            unreadable = str(error)
        except Exception as error:
            unreadable = f"{type(error).__name__}: {error}"
            if not self.unreadable:
                log.warning("the manifests cannot be read; those in force stay", exc_info=error)
        finally:
            self._reading = None
        later, self._later = self._later, None
        self._fresh = desired or later or self._fresh
        moved = unreadable != self.unreadable or (self.problem, self.waiting) != refused
        self.unreadable = unreadable
        if self._fresh is not None or proves or moved or self._news:
            self.wake.set("the manifests were read")
        else:
            self.wake.end_sleep()  # the next read may be due before the loop wakes up

    async def settle(self) -> None:
        """End a read that is under way, at the end of a run."""
        if self.source is not None:
            self.source.close()
        if self._reading is not None:
            reading = self._reading
            reading.cancel()
            await asyncio.wait({reading})
