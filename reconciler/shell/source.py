"""Reads the manifests again during a run; new ones are used only when they have settled and are valid.

An editor may truncate a file before it writes, and a copy may be half done. So the manifests in force change only when two reads
SETTLE apart are equal and everything in them is valid. A single run never changes its manifests. Called by the loop.
"""

from collections.abc import Callable
from pathlib import Path

from manifests.problems import ManifestErrors, render
from manifests.source.directory import read_tree
from manifests.values.desired import SECOND, Desired
from reconciler.shell.clock import BlockingClock

SETTLE = SECOND // 10
"""Time (ns) between two equal reads before a change counts."""

READS = 10
"""Reads of a source that keeps changing, before it is left for the next time."""


class DirectorySource:
    """A directory or file of manifests.

    Args:
        path: what to read.
        extra: local files that also count as manifests (the Instance file).
        load: reads, checks and resolves everything; raises `ManifestErrors`.
        clock: waits between two reads.
        follow: use changed manifests; without it changes are only reported.
    """

    def __init__(
        self, path: Path, extra: tuple[Path, ...], load: Callable[[], Desired], clock: BlockingClock, *, follow: bool
    ) -> None:
        self._path, self._extra, self._load, self._clock, self._follow = path, extra, load, clock, follow
        self._in_force = self._digest()
        self._refused = ""
        self._same = True

    def _digest(self) -> str:
        """The content of the source, with the problems of unreadable files, so that it never equals the last good one by accident."""
        tree = read_tree(self._path)
        local = [path.read_bytes().hex() if path.is_file() else "absent" for path in self._extra]
        return "\n".join([tree.revision, *(problem.render() for problem in tree.problems), *local])

    def same(self) -> bool:
        """Whether the last read was complete and equal to the manifests in force."""
        return self._same

    def reread(self) -> tuple[Desired | None, tuple[str, ...]]:
        """Read again: the new manifests when they changed, settled and are valid, and messages for the operator."""
        digest = self._digest()
        self._same = digest == self._in_force
        if self._same or digest == self._refused:
            return None, ()
        digest = self._settled(digest)
        if not digest:
            return None, ("the manifests keep changing; the last good revision stays in force until they settle",)
        if digest == self._in_force:
            self._same = True
            return None, ()
        if not self._follow:
            self._refused = digest
            return None, ("the manifests changed during this run; run reconcile again to apply them",)
        try:
            desired = self._load()
        except ManifestErrors as error:
            self._refused = digest
            return None, ("the manifests are invalid; the last good revision stays in force", render(error.problems))
        self._in_force, self._refused, self._same = digest, "", True
        return desired, (f"the manifests changed; revision {desired.revision[:12]} is in force",)

    def _settled(self, digest: str) -> str:
        """The content once two reads in a row are equal; empty when they never are."""
        for _ in range(READS):
            self._clock.pause(SETTLE)
            again = self._digest()
            if again == digest:
                return digest
            digest = again
        return ""
