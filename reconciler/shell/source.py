"""The source of manifests while a run goes on: read again, adopted only when it has settled and is valid.

An editor that truncates before it writes, a rename, a half-copied tree: what is in force changes only when two reads a short
while apart are equal and everything in them is valid. A single run never changes its manifests half-way. Called by the loop.
"""

from collections.abc import Callable
from pathlib import Path

from manifests.problems import ManifestErrors, render
from manifests.source.directory import read_tree
from manifests.values.desired import SECOND, Desired
from reconciler.shell.clock import BlockingClock

SETTLE = SECOND // 10
"""How far apart (ns) two equal reads must be before a change counts."""

READS = 10
"""How often a source that keeps changing is read before it is left for the next time."""


class DirectorySource:
    """A directory or file of manifests.

    Args:
        path: what to read.
        extra: local files whose change counts too (the Instance file).
        load: reads, checks and resolves everything; raises `ManifestErrors`.
        clock: waits between two reads.
        follow: adopt changes; without it they are only told.
    """

    def __init__(
        self, path: Path, extra: tuple[Path, ...], load: Callable[[], Desired], clock: BlockingClock, *, follow: bool
    ) -> None:
        self._path, self._extra, self._load, self._clock, self._follow = path, extra, load, clock, follow
        self._in_force = self._digest()
        self._refused = ""
        self._same = True

    def _digest(self) -> str:
        """The content of the source now; what cannot be read is part of it, so that it never looks like the last good one."""
        tree = read_tree(self._path)
        local = [path.read_bytes().hex() if path.is_file() else "absent" for path in self._extra]
        return "\n".join([tree.revision, *(problem.render() for problem in tree.problems), *local])

    def same(self) -> bool:
        """Whether the last read was complete and equal to what is in force."""
        return self._same

    def reread(self) -> tuple[Desired | None, tuple[str, ...]]:
        """Read again: new manifests when they changed, have settled and are valid, and what to tell about it."""
        digest = self._digest()
        self._same = digest == self._in_force
        if self._same or digest == self._refused:
            return None, ()
        digest = self._settled(digest)
        if not digest:
            return None, ("the manifests keep changing; what is in force stays until they have settled",)
        if digest == self._in_force:
            self._same = True
            return None, ()
        if not self._follow:
            self._refused = digest
            return None, ("the manifests changed during this run; run again to apply them",)
        try:
            desired = self._load()
        except ManifestErrors as error:
            self._refused = digest
            return None, ("the manifests are not valid; the last good revision stays in force", render(error.problems))
        self._in_force, self._refused, self._same = digest, "", True
        return desired, (f"manifests changed: revision {desired.revision[:12]} is in force",)

    def _settled(self, digest: str) -> str:
        """The content once two reads in a row agree; empty when they never do."""
        for _ in range(READS):
            self._clock.pause(SETTLE)
            again = self._digest()
            if again == digest:
                return digest
            digest = again
        return ""
