"""A valid revision of the manifests that is at the source and not in force yet. Made by the shell, judged by `limits/commits`."""

from collections.abc import Callable
from dataclasses import dataclass

from manifests.values.desired import Guard
from reconciler.core.model.source_problem import named


@dataclass(frozen=True, slots=True)
class WaitingRevision:
    """A revision that waits until new commits are taken.

    Attributes:
        revision: digest of the files; 64 hex digits.
        commit: what is checked out there; empty when it is no git work tree.
        guard: its own Guard, with the local documents as they are now: it says when the revision may come into force.
        in_force: the revision that stays in force until then, as operators see it.
        since: steady instant (ns) since which it waits.
    """

    revision: str
    commit: str
    guard: Guard
    in_force: str
    since: int

    @property
    def name(self) -> str:
        """The revision as operators see it."""
        return named(self.revision, self.commit)


HeldBack = Callable[[WaitingRevision], bool]
"""Whether a valid revision has to wait. Asked on the thread that reads the source."""


def never(_waiting: WaitingRevision) -> bool:
    """No revision has to wait."""
    return False
