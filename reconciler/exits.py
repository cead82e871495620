"""Exit codes: one enumeration drives the number a script sees and the sentence a person reads.

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
    LOCKED = 5
    UNFINISHED = 6
    PERSON = 7
    USAGE = 64
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def sentence(self) -> str:
        """The same in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Exit.OK: "as wanted",
    Exit.ERROR: "stopped by an error",
    Exit.CHANGES: "changes are planned",
    Exit.INVALID: "the manifests are invalid; nothing was changed",
    Exit.LOCKED: "another process holds this instance",
    Exit.UNFINISHED: "not everything is as wanted: something failed, cannot be read, or is not finished",
    Exit.PERSON: "a person is needed",
    Exit.USAGE: "the command line is wrong",
    Exit.INTERRUPTED: "interrupted",
    Exit.TERMINATED: "terminated",
}

_RANK = (Exit.ERROR, Exit.INVALID, Exit.LOCKED, Exit.UNFINISHED, Exit.PERSON, Exit.CHANGES, Exit.OK)


def worst(codes: Iterable[Exit]) -> Exit:
    """The worst of several results; OK when there are none."""
    present = set(codes)
    return next((code for code in _RANK if code in present), Exit.OK)
