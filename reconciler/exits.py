"""Exit codes: the number that a script gets and the sentence that an operator reads.

Used by the loop, which judges how a run ended, and by the command line.
"""

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """How a run ended."""

    OK = 0
    ERROR = 1
    CHANGES = 2
    INVALID = 3
    STALE = 4
    LOCKED = 5
    UNFINISHED = 6
    MANUAL = 7
    SOURCE = 8
    USAGE = 64
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def sentence(self) -> str:
        """The code in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Exit.OK: "converged",
    Exit.ERROR: "stopped by an error",
    Exit.CHANGES: "changes are planned",
    Exit.INVALID: "the manifests are invalid; nothing was changed",
    Exit.STALE: "the plan is stale; nothing was changed",
    Exit.LOCKED: "another process holds this instance",
    Exit.UNFINISHED: "not converged: something failed, cannot be read, or is unfinished",
    Exit.MANUAL: "manual action required",
    Exit.SOURCE: "the source cannot be read or is refused; nothing was changed",
    Exit.USAGE: "invalid command line",
    Exit.INTERRUPTED: "interrupted",
    Exit.TERMINATED: "terminated",
}

_WORST_FIRST = (
    Exit.ERROR,
    Exit.INVALID,
    Exit.SOURCE,
    Exit.STALE,
    Exit.LOCKED,
    Exit.UNFINISHED,
    Exit.MANUAL,
    Exit.CHANGES,
    Exit.OK,
)


def worst(codes: Iterable[Exit]) -> Exit:
    """The worst of several results; OK when there are none."""
    present = set(codes)
    return next((code for code in _WORST_FIRST if code in present), Exit.OK)
