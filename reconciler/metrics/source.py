"""A decorator of the source of manifests that knows how the last read ended. Called by the loop, the reads on a thread."""

from manifests.values.desired import Desired
from reconciler.core.model.source_problem import SourceProblem
from reconciler.core.model.waiting_revision import HeldBack, WaitingRevision, never
from reconciler.metrics.state import Source as Result
from reconciler.shell.parts import Source


class WatchedSource:
    """The source `inner`. A read that raises counts as failed."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        self._raised = False

    @property
    def result(self) -> Result:
        """Whether the last read was complete and valid, and whether what it found is in force."""
        return Result(not self._raised and self._inner.problem() is None, not self._raised and self._inner.same())

    def reread(self, held: HeldBack = never) -> tuple[Desired | None, tuple[str, ...]]:
        """Read the source again."""
        self._raised = True
        answer = self._inner.reread(held)
        self._raised = False
        return answer

    def same(self) -> bool:
        """Whether the last read was complete and equal to the manifests in force."""
        return self._inner.same()

    def commit(self) -> str:
        """The commit of the manifests in force; empty outside of git."""
        return self._inner.commit()

    def newest(self) -> str:
        """The newest commit of a git source whose manifests equal those in force; empty when it is not known, and outside of git."""
        return self._inner.newest()

    def problem(self) -> SourceProblem | None:
        """Why the source cannot be put in force; None while it is valid."""
        return self._inner.problem()

    def news(self) -> tuple[str, ...]:
        """What happened at the source since the last call."""
        return self._inner.news()

    def due_in(self) -> int:
        """Time (ns) until the source should be read again."""
        return self._inner.due_in()

    def hurry(self) -> None:
        """The next read must ask the remote."""
        self._inner.hurry()

    def close(self) -> None:
        """End a read that waits for a remote."""
        self._inner.close()

    def waiting(self) -> WaitingRevision | None:
        """The valid revision that waits."""
        return self._inner.waiting()
