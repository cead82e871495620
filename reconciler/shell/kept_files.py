"""Removes the files of the repository that no container, no revision and no manifest needs any more. Called by the loop.

It has something to do after the manifests or their revisions changed, and after a container was removed; an idle daemon never asks.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

from manifests.values.desired import Desired
from manifests.values.files import FileContents
from providers.actions import RemoveContainer
from providers.errors import ProviderError
from reconciler.core.decision import Decision
from reconciler.core.model.observed import Observed
from reconciler.core.model.step import Step
from reconciler.core.replicas import file_changes
from reconciler.shell.providers import Runner

log = logging.getLogger(__name__)


class Files(Protocol):
    """Where the files are; implemented by the file store."""

    def offer(self, contents: Mapping[str, FileContents]) -> None:
        """The files of the manifests in force."""

    def any(self) -> bool:
        """Whether there is anything to remove."""

    def collect(self, digests: Collection[str], containers: Collection[str]) -> None:
        """Remove what neither these digests nor these containers need. Raises OSError."""


class KeptFiles:
    """Removes files beside the loop. `files` is None where a run keeps none, as a plan or a simulation."""

    def __init__(self, files: Files | None, runner: Runner) -> None:
        self._files, self._runner = files, runner
        self._due = True
        self._templates: Mapping[str, str] | None = None
        self._desired: Desired | None = None
        self._removing: asyncio.Task[None] | None = None

    def offer(self, desired: Desired) -> None:
        """The manifests in force."""
        if self._files is not None:
            self._files.offer(desired.file_contents)

    def ended(self, step: Step) -> None:
        """A step has ended: a container that is removed may have been the last with its files."""
        self._due = self._due or isinstance(step.action, RemoveContainer)

    def ticked(self, decision: Decision, desired: Desired, observed: Callable[[], Observed]) -> None:
        """Remove what is not needed any more, if there may be something; not while a node cannot be read."""
        if self._files is None:
            return
        if decision.ledger.templates is not self._templates or desired is not self._desired:
            self._due, self._templates, self._desired = True, decision.ledger.templates, desired
        if not self._due or (self._removing is not None and not self._removing.done()):
            return
        if not self._files.any():
            self._due = False
            return
        needed = file_changes.needed(desired, decision.ledger, observed().runtimes)
        if needed is None:
            return
        self._due = False
        self._removing = asyncio.create_task(self._remove(self._files, *needed))

    async def _remove(self, files: Files, digests: Collection[str], containers: Collection[str]) -> None:
        try:
            await self._runner.run(partial(files.collect, digests, containers))
        except (OSError, ProviderError) as error:
            log.warning("files of the repository that are not needed any more cannot be removed: %s", error)

    async def settle(self) -> None:
        """Wait for a removal that is under way, at the end of a run."""
        if self._removing is not None:
            await asyncio.wait({self._removing})
